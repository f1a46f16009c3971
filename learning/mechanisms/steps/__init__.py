"""Private gradient steps, which add noise to the model itself. Does not import Django."""
