"""What staff see under ``/studies/``: one module for each kind of page."""
