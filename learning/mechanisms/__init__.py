"""Mechanisms: a package for each method, with its questions and how holders answer them. Does not import Django."""
