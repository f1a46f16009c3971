"""Mechanisms: a package for each method, with its questions and the holders' answers. Does not import Django."""
