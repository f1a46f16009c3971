"""Errors of runs and files, in words and in codes."""

from typing import Any

from django.utils.translation import gettext as _

from common.sentences import Sentence


class RunError(Exception):
    """A run cannot continue. The message is for staff: it says what to do and holds nothing of the private data."""


STATE = "state"
"""Code of a ValidationError: the run's status does not allow this."""

PROPOSER = "proposer"
"""Code of a ValidationError: only the person who proposed the run may do this."""


def translated(sentence: str | dict[str, Any]) -> str:
    """Return a sentence of a reader of files, or a stored one from a report, in the user's language."""
    if isinstance(sentence, dict):
        sentence = Sentence.from_json(sentence)
    if isinstance(sentence, Sentence):
        return _(sentence.template) % sentence.values
    return _(sentence) if sentence else ""
