"""Mechanisms: a package for each method, with its questions and the way holders answer them. Does not import Django."""
