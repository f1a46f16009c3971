"""Mechanisms: what a method asks of whom, one package for each. Imports no Django."""
