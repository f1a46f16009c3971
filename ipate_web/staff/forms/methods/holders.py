"""Base of the form fields of methods in which every holder is asked: the representation, and names of fields."""

from abc import abstractmethod
from typing import Any, ClassVar

from django import forms
from django.forms.boundfield import BoundField
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ipate_web.staff.forms.methods.base import MethodFields
from learning.mechanisms.neighbours.choices import REPRESENTATION_CHOICES
from learning.representations import REPRESENTATIONS

_STATEMENTS = {name: kind.statement for name, kind in REPRESENTATIONS.items() if kind.statement}
"""What the operator has to state before a representation may be used."""


class HoldersFields(MethodFields):
    """See :class:`MethodFields`.

    prefix: of the names of the method's fields in the form.  space_help: what the representation is to the method.
    """

    prefix: ClassVar[str]
    space_help: ClassVar[str | Promise]

    def _add(self) -> None:
        fields: dict[str, forms.Field] = {
            "representation": forms.ChoiceField(
                label=_("Representation"),
                help_text=str(self.space_help),
                required=False,
                choices=[(name, _(label)) for name, label in REPRESENTATION_CHOICES.items()],
            ),
            **{
                _statement(name): forms.BooleanField(
                    label=_("I state: %(statement)s") % {"statement": _(statement)}, required=False
                )
                for name, statement in _STATEMENTS.items()
            },
            **self._fields(),
        }
        self.form.fields |= {self.field(name): field for name, field in fields.items()}

    @abstractmethod
    def _fields(self) -> dict[str, forms.Field]:
        """The method's other fields, by their names without the prefix."""

    @classmethod
    def field(cls, name: str) -> str:
        """The name in the form."""
        return f"{cls.prefix}-{name}"

    @property
    def space(self) -> BoundField:
        return self._bound("representation")

    @property
    def statements(self) -> list[tuple[str, BoundField]]:
        """Statement that a representation needs: its name and the field."""
        return [(name, self._bound(_statement(name))) for name in _STATEMENTS]

    def check(self) -> None:
        chosen, public = self._value("representation"), self.form.cleaned_data.get("public_dataset")
        if chosen in _STATEMENTS and not self._value(_statement(chosen)):
            self.form.add_error(self.field(_statement(chosen)), _("It can be used only if you state this."))
        if chosen and public is not None and public.schema["kind"] == "table" and REPRESENTATIONS[chosen].images:
            message = _("This representation is for images. Choose another one.")
            self.form.add_error(self.field("representation"), message)

    def chosen_space(self) -> dict[str, Any]:
        """The fields of :class:`learning.mechanisms.choices.Choices` that the form asks for."""
        chosen = self._value("representation")
        return {
            "representation": chosen,
            "stated": chosen in _STATEMENTS and self._value(_statement(chosen)),
        }

    def asked(self, document: dict[str, Any]) -> dict[str, Any]:
        """Proposal of a run by a method in which holders are asked, with ``asking``."""
        return {
            "learner": "",
            "variant": "",
            "teachers": None,
            "asking": document,
            "batch_size": self._value("batch_size"),
        }

    def _bound(self, name: str) -> BoundField:
        return self.form[self.field(name)]

    def _value(self, name: str) -> Any:
        return self.form.cleaned_data.get(self.field(name))


def rounds_choices(most: int) -> list[tuple[int, str]]:
    """Numbers of rounds, in words."""
    return [
        (rounds, ngettext("%(rounds)d round", "%(rounds)d rounds", rounds) % {"rounds": rounds})
        for rounds in range(1, most + 1)
    ]


def _statement(representation: str) -> str:
    return f"stated-{representation}"
