"""Errors that end a run."""


class RunError(Exception):
    """A run cannot go on. The message is for staff: it says what to do and holds nothing of the private data."""


REPEATED = "repeated"
"""Code of a ValidationError that says: the key of a request was used for another."""

STATE = "state"
"""Code of a ValidationError that says: the run is in no state in which this can be done."""

PROPOSER = "proposer"
"""Code of a ValidationError that says: only whoever proposed the run may do this."""
