"""Mechanisms, one package each: a method's questions, and the holders asked. Does not import Django."""
