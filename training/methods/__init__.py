"""Training methods: one package for each. Imports no Django."""
