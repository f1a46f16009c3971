"""Wording: what a study and its forms say to people, and how it is shown."""
