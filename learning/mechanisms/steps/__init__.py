"""Private gradient steps, which add the noise to the model itself. Nothing here imports Django."""
