"""Synthetic rows: counts of columns, of pairs and along a tree of columns, and rows drawn from them. No Django here."""
