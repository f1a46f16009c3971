"""Form fields shared by several staff forms, including fields for choosing an object that has its own parameters."""

import dataclasses
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.boundfield import BoundField
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from consent.people.circumstances import day_of
from consent.services.committee import ANSWER_DAYS, answer_day
from ipate_web.lists import DayField
from learning.learners import LearnerField, parameter_fields
from learning.learners.learner import Parametrised
from learning.mechanisms.pate import Aggregator, AggregatorParameter
from learning.students import STUDENTS
from training.methods import IMPLEMENTED


def _in_time() -> date:
    return day_of(timezone.now()) + timedelta(days=ANSWER_DAYS)


class AnswerField(DayField):
    """Field for the ethics committee's deadline for answering a proposal, which defaults to two weeks from now."""

    def __init__(self) -> None:
        super().__init__(
            label=gettext_lazy("Answer by"),
            required=False,
            initial=_in_time,
            help_text=gettext_lazy(
                "Everyone in the study can see this. After this day the chair gets an email, but the proposal is "
                "neither approved nor rejected automatically."
            ),
        )

    def clean(self, value: Any) -> date | None:
        """Return the given day if it is within the range. Raises ValidationError."""
        day = super().clean(value)
        if day is not None:
            answer_day(day)
        return day


class LinesField(forms.CharField):
    """Field for strings, one per line."""

    def __init__(self, *, rows: int = 3, **kwargs: Any) -> None:
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": rows, "spellcheck": "false"}), **kwargs)

    def clean(self, value: Any) -> list[str]:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


REASON_LENGTH = 500


class ReasonForm(forms.Form):
    """Form for the reason for an act that cannot be undone."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=REASON_LENGTH,
        help_text=gettext_lazy("This is stored permanently with your name."),
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class WithdrawalForm(ReasonForm):
    """Form for the reason why a model is withdrawn. Everyone who asks for the model will see the reason."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = gettext_lazy(
            "Everyone who has downloaded the model or requests it sees this."
        )


#: Available choices, by the name of the field.
KINDS: dict[str, Mapping[str, type[Parametrised] | type[Aggregator]]] = {"student_learner": STUDENTS} | {
    choice.name: choice.kinds for method in IMPLEMENTED for choice in method.choices.described() if choice.kinds
}


@dataclasses.dataclass(frozen=True)
class ParameterGroup:
    """Fields that apply only while the field ``control`` has ``value``."""

    control: BoundField
    value: str
    title: str | Promise
    help: str | Promise
    fields: list[BoundField]


def kind_add(form: forms.Form, role: str, label: Any, unset: str = "") -> None:
    """Add the field ``role``, with the choices in :data:`KINDS`, and fields for the parameters of each choice.

    ``unset`` describes the effect of choosing nothing, if this is allowed.
    """
    named = [(name, _(kind.label)) for name, kind in KINDS[role].items()]
    left_open = [("", capfirst(_(unset)))] if unset else []
    form.fields[role] = forms.ChoiceField(choices=left_open + named, label=label, required=not unset)
    for name in KINDS[role]:
        for spec in parameters_of(role, name):
            form.fields[parameter(role, name, spec.name)] = _form_field(spec)


def parameter_groups(form: forms.Form, role: str) -> list[ParameterGroup]:
    """Return the parameters of each kind that can be chosen for ``role``."""
    return [
        ParameterGroup(
            control=form[role],
            value=name,
            title=_(kind.label),
            help=_(kind.help) if kind.help else "",
            fields=[form[parameter(role, name, spec.name)] for spec in parameters_of(role, name)],
        )
        for name, kind in KINDS[role].items()
    ]


def unused_parameters(form: forms.Form, role: str) -> list[str]:
    """Return the fields for parameters of kinds that were not chosen."""
    return [
        parameter(role, name, spec.name)
        for name in KINDS[role]
        if name != form.cleaned_data.get(role)
        for spec in parameters_of(role, name)
    ]


def chosen_parameters(form: forms.Form, role: str) -> dict[str, Any]:
    """Return the parameters of the chosen kind."""
    name = form.cleaned_data[role]
    return {spec.name: form.cleaned_data[parameter(role, name, spec.name)] for spec in parameters_of(role, name)}


def parameter_values(role: str, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the field ``role`` and of the fields for the chosen kind's parameters."""
    return {role: name, **{parameter(role, name, of): value for of, value in parameters.items()}}


def parameter(role: str, name: str, of: str) -> str:
    """Return the name of the form field for the parameter ``of`` of the learner or aggregator ``name``."""
    return f"{role}-{name}-{of}"


def parameters_of(role: str, name: str) -> tuple[LearnerField, ...] | tuple[AggregatorParameter, ...]:
    kind = KINDS[role][name]
    return kind.fields() if issubclass(kind, Aggregator) else parameter_fields(kind)


def number(*, whole: bool = False, **options: Any) -> forms.Field:
    """Return a form field for a number."""
    if whole:
        return forms.IntegerField(**options)
    return forms.FloatField(widget=forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"}), **options)


def _form_field(spec: LearnerField | AggregatorParameter) -> forms.Field:
    if isinstance(spec, AggregatorParameter):
        return number(label=f"{spec.symbol}, {_(spec.label)}", help_text=_(spec.help), validators=[_positive_check])
    label = capfirst(_(spec.help))
    if spec.type is bool:
        return forms.BooleanField(label=label, initial=spec.default, required=False)
    return number(
        whole=spec.type is int, label=label, initial=spec.default, min_value=spec.minimum, max_value=spec.maximum
    )


def _positive_check(value: float) -> None:
    if value <= 0:
        raise ValidationError(_("Enter a number above 0."))
