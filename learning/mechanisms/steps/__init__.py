"""Private gradient steps, which add the noise to the model itself. Imports no Django."""
