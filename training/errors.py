"""Errors of runs, error codes, and translated messages."""

from typing import Any

from django.utils.translation import gettext as _

from common.sentences import Sentence


class RunError(Exception):
    """Raised if a run cannot continue. The message is for staff: it contains the remedy and no private data."""


STATE = "state"
"""Code of a ValidationError for an action that the run's status does not allow."""

PROPOSER = "proposer"
"""Code of a ValidationError for an action that only the run's proposer may take."""


def translated(sentence: str | dict[str, Any]) -> str:
    """Return a message from a file reader, or one stored in a report, in the user's language."""
    if isinstance(sentence, dict):
        sentence = Sentence.from_json(sentence)
    if isinstance(sentence, Sentence):
        return _(sentence.template) % sentence.values
    return _(sentence) if sentence else ""
