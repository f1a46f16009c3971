"""Tokens with which programs use the REST API in the name of a person."""
