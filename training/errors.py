"""Errors that end a run."""


class RunError(Exception):
    """A run cannot go on. The message is for staff: it says what to do and holds nothing of the private data."""
