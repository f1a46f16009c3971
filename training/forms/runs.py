"""The form in which a run is proposed, built from what the learners and aggregators say of themselves."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.forms.boundfield import BoundField
from django.forms.models import fields_for_model
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from consent.disclosure import SMALLEST, rounded_size
from consent.models import Study
from consent.selectors import consent_snapshot
from training.learners import LEARNERS, learner_fields
from training.models import Dataset, Run
from training.pate import AGGREGATORS
from training.services.lifecycle import run_check

#: The aggregators that a run can hold its vote with, and what they are called.
OFFERED_AGGREGATORS = {"confident_gnmax": "Confident-GNMax", "gnmax": "GNMax", "lnmax": "LNMax"}
_AGGREGATOR_FIELDS: dict[str, tuple[Any, Any]] = {
    "sigma": (_("σ, the noise of the vote"), _("About 0.2 × the number of teachers. More noise, cheaper labels.")),
    "sigma_threshold": (_("σ_T, the noise of the check"), _("Usually two to four times σ.")),
    "threshold": (_("T, the threshold"), _("How many votes must agree, before noise, for a query to be answered.")),
    "gamma": (_("γ, the inverse scale of the noise"), _("A smaller γ is more noise.")),
}
_LEARNERS = [(name, _(learner.label)) for name, learner in LEARNERS.items()]
_DATASETS = {
    "private_dataset": _("Private dataset"),
    "public_dataset": _("Public dataset"),
    "test_dataset": _("Test dataset"),
}
_OF_THE_MODEL = (
    "title", "purpose", "private_dataset", "public_dataset", "test_dataset", "learner", "student_learner", "variant",
    "weight_scheme", "teachers", "small_groups", "on_exhausted", "method", "conversion", "batch_size", "wanted_labels",
    "simulation", "seed",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ParameterGroup:
    """Fields that count only while the field ``control`` has ``value``."""

    control: BoundField
    value: str
    title: str | Promise
    fields: list[BoundField]


class RunForm(forms.Form):
    """A run that ``acting_user`` proposes; ``may_simulate`` offers simulations, whose results only staff see."""

    def __init__(self, *args: Any, study: Study, acting_user: User, may_simulate: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.study = study
        self.acting_user = acting_user
        self.fields |= fields_for_model(Run, fields=_OF_THE_MODEL)
        for kind in Dataset.Kind.values:
            self.fields[f"{kind}_dataset"].queryset = study.datasets.filter(kind=kind)  # type: ignore[attr-defined]
        for name, label in _DATASETS.items():
            self.fields[name].label = label
        self._choose("learner", _LEARNERS, self.fields["learner"].label)
        self._choose("student_learner", _LEARNERS, self.fields["student_learner"].label)
        self._choose("aggregator", list(OFFERED_AGGREGATORS.items()), _("Aggregator"))
        self.fields["conversion"].label = _("From RDP to ε")
        self.fields["small_groups"].label = _("Groups too small for a teacher")
        self.fields["batch_size"].label = _("Queries in a batch")
        self.fields["wanted_labels"].help_text = _("The vote ends there. Empty: as many as the budgets allow.")
        self.fields["purpose"].widget.attrs["rows"] = 3
        if not may_simulate:
            del self.fields["simulation"], self.fields["seed"]
        for role in ("learner", "student_learner"):
            for learner in LEARNERS:
                self._add_learner_fields(role, learner)
        for name, (label, help_text) in _AGGREGATOR_FIELDS.items():
            widget = forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"})
            self.fields[name] = forms.FloatField(label=label, help_text=help_text, widget=widget)

    def _choose(self, name: str, choices: list[tuple[str, Any]], label: Any) -> None:
        self.fields[name] = forms.ChoiceField(label=label, choices=choices)

    def _add_learner_fields(self, role: str, learner: str) -> None:
        for spec in learner_fields(learner):
            limits: dict[str, Any] = {"min_value": spec.minimum, "max_value": spec.maximum}
            options: dict[str, Any] = {"label": capfirst(_(spec.help)), "initial": spec.default}
            if spec.type is bool:
                field: forms.Field = forms.BooleanField(**options, required=False)
            elif spec.type is int:
                field = forms.IntegerField(**options, **limits)
            else:
                widget = forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"})
                field = forms.FloatField(**options, **limits, widget=widget)
            self.fields[_parameter(role, learner, spec.name)] = field

    # --- For the template ---------------------------------------------------------------------------------------------

    @property
    def learner_groups(self) -> list[ParameterGroup]:
        return self._groups_of_learners("learner")

    @property
    def student_groups(self) -> list[ParameterGroup]:
        return self._groups_of_learners("student_learner")

    def _groups_of_learners(self, role: str) -> list[ParameterGroup]:
        return [
            ParameterGroup(
                control=self[role],
                value=name,
                title=label,
                fields=[self[_parameter(role, name, spec.name)] for spec in learner_fields(name)],
            )
            for name, label in _LEARNERS
        ]

    @property
    def aggregator_fields(self) -> list[tuple[BoundField, str]]:
        """Each parameter with the names of the aggregators that take it."""
        return [
            (self[name], " ".join(key for key in OFFERED_AGGREGATORS if name in _taken_by(key)))
            for name in _AGGREGATOR_FIELDS
        ]

    @property
    def details_have_errors(self) -> bool:
        names = ("method", "conversion", "weight_scheme", "on_exhausted", "batch_size", "small_groups")
        return any(name in self.errors for name in names)

    # --- What was asked for -------------------------------------------------------------------------------------------

    def clean(self) -> dict[str, Any]:
        for name in self._fields_that_do_not_count():
            self.errors.pop(name, None)
        for name in _taken_by(self.cleaned_data.get("aggregator", "")):
            if self.cleaned_data.get(name) is not None and self.cleaned_data[name] <= 0:
                self.add_error(name, _("Give a number above 0."))
        if not self.errors:
            try:
                run_check(self.proposal(), private=self.acting_user.has_perm("consent.view_group_sizes", self.study))
            except ValidationError as error:
                self._show(error)
        return self.cleaned_data

    def _fields_that_do_not_count(self) -> list[str]:
        """The parameters of learners and aggregators that were not chosen."""
        taken = _taken_by(self.cleaned_data.get("aggregator", ""))
        return [name for name in _AGGREGATOR_FIELDS if name not in taken] + [
            _parameter(role, learner, spec.name)
            for role in ("learner", "student_learner")
            for learner in LEARNERS
            if learner != self.cleaned_data.get(role)
            for spec in learner_fields(learner)
        ]

    def run_fields(self) -> dict[str, Any]:
        """The fields of the run, as ``run_propose`` takes them."""
        values = {name: self.cleaned_data[name] for name in _OF_THE_MODEL if name in self.fields}
        aggregator = self.cleaned_data["aggregator"]
        return values | {
            "learner_parameters": self._learner_parameters("learner"),
            "student_parameters": self._learner_parameters("student_learner"),
            "aggregator": {"name": aggregator} | {name: self.cleaned_data[name] for name in _taken_by(aggregator)},
        }

    def proposal(self) -> Run:
        """The run as it would be, not saved."""
        return Run(study=self.study, created_by=self.acting_user, **self.run_fields())

    def _learner_parameters(self, role: str) -> dict[str, Any]:
        learner = self.cleaned_data[role]
        return {spec.name: self.cleaned_data[_parameter(role, learner, spec.name)] for spec in learner_fields(learner)}

    def _show(self, error: ValidationError) -> None:
        """Put what is wrong with the run beside the field that it can be corrected in."""
        fields = {"learner_parameters": "learner", "student_parameters": "student_learner"}
        for name, messages in error.message_dict.items():
            field = fields.get(name, name)
            self.add_error(None if name == NON_FIELD_ERRORS or field not in self.fields else field, messages)


def _parameter(role: str, learner: str, name: str) -> str:
    """The name of the form field of a learner's parameter."""
    return f"{role}-{learner}-{name}"


def _taken_by(aggregator: str) -> list[str]:
    if aggregator not in OFFERED_AGGREGATORS:
        return []
    return [field.name for field in dataclasses.fields(AGGREGATORS[aggregator])]


def initial_for(study: Study, acting_user: User) -> dict[str, Any]:
    """Sensible values for a first run: about 13 holders a teacher, noise and threshold in proportion.

    They tell how many holders there are, and rest on a rounded number for those who may not see the exact one.
    """
    holders = len(consent_snapshot(study))
    if not acting_user.has_perm("consent.view_group_sizes", study):
        holders = rounded_size(holders) or SMALLEST
    teachers = max(1, _round(holders / 13))
    datasets = {
        f"{kind}_dataset": study.datasets.filter(kind=kind).order_by("-imported_at").first()
        for kind in Dataset.Kind.values
    }
    private = datasets["private_dataset"]
    is_image = private is not None and private.schema["kind"] == "image"
    learner = "nearest_neighbour" if is_image else "random_forest"
    return {
        **datasets,
        "teachers": teachers,
        "learner": learner,
        "student_learner": learner,
        "learner-nearest_neighbour-copies": 20,
        "student_learner-nearest_neighbour-copies": 20,
        "aggregator": "confident_gnmax",
        "sigma": _hundredths(0.2 * teachers),
        "sigma_threshold": _hundredths(0.4 * teachers),
        "threshold": _hundredths(0.5 * teachers),
        "gamma": _hundredths(10 / teachers),
    }


def initial_like(run: Run, acting_user: User) -> dict[str, Any]:
    """The values of an earlier run."""
    values: Mapping[str, Any] = {name: getattr(run, name) for name in _OF_THE_MODEL if name != "seed"}
    parameters = {"learner": run.learner_parameters, "student_learner": run.student_parameters}
    chosen = {
        _parameter(role, values[role], name): value
        for role, given in parameters.items()
        for name, value in given.items()
    }
    aggregator = dict(run.aggregator)
    return {
        **initial_for(run.study, acting_user),
        **values,
        **chosen,
        "aggregator": aggregator.pop("name"),
        **aggregator,
    }


def _round(number: float) -> int:
    """To tens where there are enough of them."""
    return 10 * round(number / 10) if number >= 45 else round(number)


def _hundredths(number: float) -> float:
    return round(number, 2)
