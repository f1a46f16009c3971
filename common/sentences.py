"""Translatable sentences for packages that import no Django: marked here, translated by the pages."""

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
        return {"template": self.template, "values": self.values}


def in_words(document: Any) -> Any:
    """A JSON document with each sentence in it as English text."""
    if isinstance(document, list):
        return [in_words(each) for each in document]
    if not isinstance(document, dict):
        return document
    if document.keys() == {"template", "values"}:
        return document["template"] % document["values"]
    return {name: in_words(value) for name, value in document.items()}
