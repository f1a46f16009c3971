"""Mechanisms: the questions that a method asks and who is asked, with one package for each. Imports no Django."""
