"""Views of the staff pages under ``/studies/``, one module for each kind of page."""
