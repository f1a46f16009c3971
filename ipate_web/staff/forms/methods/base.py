"""Base of the form fields of a method."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.forms.boundfield import BoundField
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from consent.models import Study
from learning.learners import LEARNERS, LearnerField, parameter_fields
from learning.learners.base import Parametrised
from learning.mechanisms.pate import AGGREGATORS, Aggregator, AggregatorField
from learning.students import STUDENTS
from training.models import Run

if TYPE_CHECKING:
    from ipate_web.staff.forms.runs import RunForm

#: Fields in which something is chosen that has parameters of its own: learners, students and aggregators, by name.
CHOICES: dict[str, Mapping[str, type[Parametrised]] | Mapping[str, type[Aggregator]]] = {
    "learner": LEARNERS,
    "student_learner": STUDENTS,
    "aggregator": AGGREGATORS,
}


class MethodFields(ABC):
    """The fields of one method in a form; they count only while the method is chosen.

    name: a :class:`training.models.Run.Method`.  help: what the method does, for whoever chooses.  places: names of
    fields of a run, and the form's field beside which it is said what is wrong with them; None for above the form.
    """

    name: ClassVar[str]
    help: ClassVar[str | Promise]
    places: ClassVar[Mapping[str, str | None]] = {}

    def __init__(self, form: RunForm) -> None:
        self.form = form
        others = set(form.fields)
        self._add()
        self.names = [name for name in form.fields if name not in others]

    @property
    def template(self) -> str:
        return f"staff/runs/{self.name}/fields.html"

    @abstractmethod
    def _add(self) -> None:
        """Add the fields to the form."""

    @abstractmethod
    def uncounted(self) -> list[str]:
        """The fields of the method that do not count, by what was chosen in its others."""

    @abstractmethod
    def check(self) -> None:
        """Add to the form's errors what only the form can tell."""

    @abstractmethod
    def run_fields(self) -> dict[str, Any]:
        """The method's own fields of the run, as ``run_propose`` takes them."""

    def rehearsed(self) -> dict[str, Any]:
        """Fields that the method adds to the parameters of a rehearsal."""
        return {}

    @staticmethod
    @abstractmethod
    def initial(study: Study) -> dict[str, Any]:
        """Sensible values for a first run."""

    @staticmethod
    @abstractmethod
    def initial_like(run: Run) -> dict[str, Any]:
        """The values of an earlier run by this method."""


@dataclasses.dataclass(frozen=True)
class ParameterGroup:
    """Fields that count only while the field ``control`` has ``value``."""

    control: BoundField
    value: str
    title: str | Promise
    help: str | Promise
    fields: list[BoundField]


def choice_add(form: forms.Form, role: str, label: Any) -> None:
    """Add the field ``role`` of :data:`CHOICES`, and those of the parameters of each choice."""
    form.fields[role] = forms.ChoiceField(
        choices=[(name, _(choice.label)) for name, choice in CHOICES[role].items()], label=label
    )
    for name in CHOICES[role]:
        for spec in parameters_of(role, name):
            form.fields[parameter(role, name, spec.name)] = _form_field(spec)


def parameter_groups(form: forms.Form, role: str) -> list[ParameterGroup]:
    """The parameters of each choice, for the template."""
    return [
        ParameterGroup(
            control=form[role],
            value=name,
            title=_(choice.label),
            help=_(choice.help) if choice.help else "",
            fields=[form[parameter(role, name, spec.name)] for spec in parameters_of(role, name)],
        )
        for name, choice in CHOICES[role].items()
    ]


def parameters_not_chosen(form: forms.Form, role: str) -> list[str]:
    """The fields of the parameters of what was not chosen."""
    return [
        parameter(role, name, spec.name)
        for name in CHOICES[role]
        if name != form.cleaned_data.get(role)
        for spec in parameters_of(role, name)
    ]


def parameters_chosen(form: forms.Form, role: str) -> dict[str, Any]:
    """The parameters of what was chosen."""
    name = form.cleaned_data[role]
    return {spec.name: form.cleaned_data[parameter(role, name, spec.name)] for spec in parameters_of(role, name)}


def parameter(role: str, name: str, of: str) -> str:
    """The name of the form field of the parameter ``of`` of the learner or aggregator ``name``."""
    return f"{role}-{name}-{of}"


def parameters_of(role: str, name: str) -> tuple[LearnerField, ...] | tuple[AggregatorField, ...]:
    choice = CHOICES[role][name]
    return choice.fields() if issubclass(choice, Aggregator) else parameter_fields(choice)


def number(*, whole: bool = False, **given: Any) -> forms.Field:
    """A field for a number."""
    if whole:
        return forms.IntegerField(**given)
    return forms.FloatField(widget=forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"}), **given)


def _form_field(spec: LearnerField | AggregatorField) -> forms.Field:
    if isinstance(spec, AggregatorField):
        return number(label=f"{spec.symbol}, {_(spec.label)}", help_text=_(spec.help))
    label = capfirst(_(spec.help))
    if spec.type is bool:
        return forms.BooleanField(label=label, initial=spec.default, required=False)
    return number(
        whole=spec.type is int, label=label, initial=spec.default, min_value=spec.minimum, max_value=spec.maximum
    )
