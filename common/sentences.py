"""Translatable sentences for packages that import no Django: marked here, translated by the pages."""

from collections.abc import Mapping
from typing import Any


def gettext_noop(text: str) -> str:
    """Mark ``text`` for makemessages and return it unchanged."""
    return text


class Sentence(str):
    """English sentence, ``template`` with its ``values`` filled in, that can be translated later.

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
        """JSON that `from_json` reads; values that JSON does not know become their texts."""
        values = {
            name: each if isinstance(each, int | float | str) else str(each) for name, each in self.values.items()
        }
        return {"template": self.template, "values": values}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Sentence":
        return cls(document["template"], **document["values"])


def in_words(document: Any) -> Any:
    """A JSON document with each sentence in it as English text."""
    if isinstance(document, list):
        return [in_words(each) for each in document]
    if not isinstance(document, dict):
        return document
    if document.keys() == {"template", "values"}:
        return str(Sentence.from_json(document))
    return {name: in_words(value) for name, value in document.items()}
