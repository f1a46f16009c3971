"""Form for what is to be learned of the rows of a table: classes, numbers, times to an event, or several labels."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from ipate_web.staff.fields import LinesField
from learning.outcomes import OUTCOME_LABELS, Classes, Labels, Numbers, Times

PARTS = {
    "value": _("number to learn"),
    "time": _("time to the event or to the end of follow-up"),
    "event": _("whether the event happened"),
    "flag": _("yes/no label to learn"),
}
"""Uses of a column that holds a part of another target than classes."""
DATED = ("value", "time")
"""Those that may be dates, of which the time between is learned."""


class TargetForm(forms.Form):
    """Form for what is to be learned; each kind has fields of its own."""

    learned = forms.ChoiceField(
        label=_("What to learn"), choices=[(kind, _(label)) for kind, label in OUTCOME_LABELS.items()]
    )
    classes = LinesField(label=_("Classes, one a line"), help_text=_("In numerical order."))
    smallest = forms.FloatField(
        label=_("Smallest number"),
        required=False,
        help_text=_("Based on subject knowledge, not on these rows. Values beyond the range count as its end."),
    )
    largest = forms.FloatField(label=_("Largest number"), required=False)
    unit = forms.CharField(label=_("Unit"), required=False, max_length=30, help_text=_("Such as mmHg, or days."))
    ends = LinesField(
        label=_("Ends of the intervals, one per line"),
        help_text=_(
            "The probability of the event is learned for each interval. The last end is the end of the time line."
        ),
    )

    def clean(self) -> dict[str, Any]:
        data, kind = self.cleaned_data, self.cleaned_data.get("learned")
        if kind == Numbers.kind:
            for name in ("smallest", "largest"):
                if data.get(name) is None and name not in self.errors:
                    self.add_error(name, _("Write a number."))
        if kind == Times.kind:
            try:
                data["ends"] = [number_read(line) for line in data.get("ends", [])]
            except ValueError as error:
                self.add_error("ends", ValidationError(_("“%(text)s” is not a number."), params={"text": str(error)}))
        return data

    def document(self, columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The part of a schema that says what is learned; the form is valid. Labels are named by their columns."""
        data, kind = self.cleaned_data, self.cleaned_data["learned"]
        if kind == Classes.kind:
            return {"classes": data["classes"]}
        target: dict[str, Any] = {"kind": kind}
        if kind == Numbers.kind:
            target |= {"minimum": whole(data["smallest"]), "maximum": whole(data["largest"]), "unit": data["unit"]}
        elif kind == Times.kind:
            target |= {"ends": data["ends"], "unit": data["unit"]}
        else:
            target |= {"names": [each["part"] for each in columns if each["role"] == "target"]}
        return {"classes": [], "target": target}

    @staticmethod
    def initial_of(schema: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the form for a schema in JSON."""
        target = schema.get("target", {"kind": Classes.kind})
        return {
            "learned": target["kind"],
            "classes": "\n".join(schema.get("classes", [])),
            "smallest": target.get("minimum"),
            "largest": target.get("maximum"),
            "unit": target.get("unit", ""),
            "ends": "\n".join(f"{end:g}" for end in target.get("ends", [])),
        }


def part_document(name: str, use: str, called: str, spellings: Sequence[str]) -> dict[str, Any]:
    """A column of a target as JSON.

    Raises:
        ValueError: a spelling does not stand for a number; its message is the line.
    """
    pairs = [line.rpartition("=") for line in spellings]
    numbers = {}
    for line, (written, sign, meant) in zip(spellings, pairs, strict=True):
        try:
            numbers[written.strip()] = number_read(meant)
        except ValueError as error:
            raise ValueError(line) from error
        if not sign:
            raise ValueError(line)
    part = (called or name) if use == "flag" else use
    return {"name": name, "role": "target", "part": part, "numbers": numbers}


def part_initial(column: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Values of the form of a column of a target."""
    labels = kind == Labels.kind
    return {
        "use": "flag" if labels else column["part"],
        "called": column["part"] if labels and column["part"] != column["name"] else "",
        "spellings": "\n".join(f"{written} = {meant:g}" for written, meant in column.get("numbers", {}).items()),
    }


def number_read(text: str) -> float | int:
    """A number as somebody wrote it, with a point or a comma. Raises ValueError with the text."""
    try:
        number = float(text.strip().replace(",", "."))
    except ValueError as error:
        raise ValueError(text.strip()) from error
    if not math.isfinite(number):
        raise ValueError(text.strip())
    return whole(number)


def whole(number: float) -> float | int:
    """A whole number as one."""
    return int(number) if float(number).is_integer() else number
