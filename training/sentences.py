"""Words for people, in packages that import no Django: marked here, said in the reader's language by the pages."""

from typing import Any


def gettext_noop(text: str) -> str:
    """``text`` as it is; under this name makemessages finds it."""
    return text


class Sentence(str):
    """``template`` with its ``values`` filled in: English as it stands, and ready to be said in another language.

    >>> told = Sentence("%(count)d holders of group %(group)s", count=3, group="HIGH")
    >>> told, told.template, told.values
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
