"""Synthetic rows drawn from counts of columns, pairs of columns, and a tree of columns. Does not import Django."""
