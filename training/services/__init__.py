"""Every write of the training app, one module for each thing that is written."""
