"""Errors of runs and files, in words and in codes."""

from typing import Any

from django.utils.translation import gettext as _

from common.sentences import Sentence


class RunError(Exception):
    """A run cannot go on. The message is for staff: it says what to do and holds nothing of the private data."""


REPEATED = "repeated"
"""Code of a ValidationError that says: the key of a request was used for another."""

STATE = "state"
"""Code of a ValidationError that says: the run is in no state in which this can be done."""

PROPOSER = "proposer"
"""Code of a ValidationError that says: only whoever proposed the run may do this."""


def translated(sentence: str | dict[str, Any]) -> str:
    """A sentence of a reader of files, or what a report kept of one, in the language of whoever asks."""
    if isinstance(sentence, dict):
        sentence = Sentence.from_json(sentence)
    if isinstance(sentence, Sentence):
        return _(sentence.template) % sentence.values
    return _(sentence) if sentence else ""
