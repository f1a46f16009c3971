"""Services of the training app, with one module for each kind of object."""
