"""Synthetic rows drawn from counts of columns, of pairs and along a tree of columns. Imports no Django."""
