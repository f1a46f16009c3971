"""Translatable sentences for packages without Django. The pages translate them."""

from collections.abc import Mapping
from typing import Any


def gettext_noop(text: str) -> str:
    """Mark ``text`` for makemessages and return it unchanged."""
    return text


class Sentence(str):
    """English sentence, made from ``template`` and ``values``, that can be translated later.

    >>> sentence = Sentence("%(count)d holders of group %(group)s", count=3, group="HIGH")
    >>> sentence, sentence.template, sentence.values
    ('3 holders of group HIGH', '%(count)d holders of group %(group)s', {'count': 3, 'group': 'HIGH'})
    """

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, **values: Any) -> "Sentence":
        sentence = super().__new__(cls, template % values)
        sentence.template, sentence.values = template, values
        return sentence

    def to_json(self) -> dict[str, Any]:
        """Return JSON that `from_json` reads; values without a JSON type become strings."""
        return {"template": self.template, "values": {name: _value(each) for name, each in self.values.items()}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Sentence":
        values = {
            name: cls.from_json(each) if isinstance(each, dict) else each for name, each in document["values"].items()
        }
        return cls(document["template"], **values)


def _value(value: Any) -> Any:
    if isinstance(value, Sentence):
        return value.to_json()
    return value if isinstance(value, int | float | str) else str(value)


def message_of(error: Exception) -> str:
    """Return an error's message, as a Sentence if the error was raised with a Sentence."""
    return next((each for each in error.args if isinstance(each, Sentence)), str(error))


def in_words(document: Any) -> Any:
    """Return a JSON document with each stored Sentence replaced by its English text."""
    if isinstance(document, list):
        return [in_words(each) for each in document]
    if not isinstance(document, dict):
        return document
    if document.keys() == {"template", "values"}:
        return str(Sentence.from_json(document))
    return {name: in_words(value) for name, value in document.items()}
