"""Private gradient steps: what is planned, what a round asks, what a chunk of steps releases."""
