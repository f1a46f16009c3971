"""Private gradient steps: the model itself is what the noise is added to. Nothing here imports Django."""
