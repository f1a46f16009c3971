"""Mechanisms: the questions that a method asks and of whom, one package for each. Imports no Django."""
