"""Mechanisms, with a package for each: a method's questions and how they are answered. Does not import Django."""
