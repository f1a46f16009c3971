"""Synthetic rows, as the engine asks for what they are drawn from."""
