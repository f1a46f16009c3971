"""Mechanisms, one package each: the questions asked by a method, and the holders asked. Does not import Django."""
