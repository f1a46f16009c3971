"""Fields of runs in which teachers vote."""

from typing import Any, get_args

from django import forms
from django.forms.models import fields_for_model
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounting.head_counts import head_counts
from accounting.privacy import Conversion, Method
from consent.models import Study
from ipate_web.staff.forms.methods.base import (
    CHOICES,
    MethodFields,
    ParameterGroup,
    choice_add,
    parameter,
    parameter_groups,
    parameters_chosen,
    parameters_not_chosen,
    parameters_of,
)
from learning.learners import learner_parameters, learner_suggested
from learning.mechanisms.pate import AGGREGATORS
from training.engine.rehearsals import DEFAULTS
from training.models import Dataset, Run

_OF_THE_MODEL = ("teachers", "variant", "weight_scheme", "small_groups", "on_exhausted", "batch_size")
_COUNTING = {"counted": "method", "conversion": "conversion"}
"""Fields that say how a rehearsal counts costs, with their names in the run."""


class PateFields(MethodFields):
    """See :class:`MethodFields`."""

    name = Run.Method.PATE.value
    help = gettext_lazy(
        "Holders' records are divided among teachers, each a model of its own, and the teachers vote on the public "
        "points: Individualized PATE in the variants of its papers."
    )
    places = {"learner_parameters": "learner"}

    def _add(self) -> None:
        form = self.form
        form.fields |= fields_for_model(Run, fields=_OF_THE_MODEL)
        form.fields["variant"].required = form.fields["teachers"].required = True
        variant: Any = form.fields["variant"]
        variant.choices = [choice for choice in variant.choices if choice[0]]
        choice_add(form, "learner", gettext_lazy("Teacher learner"))
        choice_add(form, "aggregator", gettext_lazy("Aggregator"))
        form.fields["small_groups"].label = _("Groups too small for a teacher")
        form.fields["batch_size"].label = _("Queries in a batch")
        if form.study.rehearsal:
            for name, words, choices in (
                ("counted", _("How costs are counted"), get_args(Method)),
                ("conversion", _("From RDP to ε"), get_args(Conversion)),
            ):
                form.fields[name] = forms.ChoiceField(
                    label=words, choices=[(choice, choice) for choice in choices], initial=DEFAULTS[_COUNTING[name]]
                )
        else:
            self._remove_choice("variant", Run.Variant.VANISHING)
            self._remove_choice("weight_scheme", Run.WeightScheme.CALIBRATED)

    def _remove_choice(self, name: str, value: str) -> None:
        field: Any = self.form.fields[name]
        field.choices = [choice for choice in field.choices if choice[0] != value]

    @property
    def learner_groups(self) -> list[ParameterGroup]:
        return parameter_groups(self.form, "learner")

    @property
    def aggregator_groups(self) -> list[ParameterGroup]:
        return parameter_groups(self.form, "aggregator")

    @property
    def details_have_errors(self) -> bool:
        names = (*_COUNTING, "weight_scheme", "on_exhausted", "batch_size", "small_groups")
        return any(name in self.form.errors for name in names)

    def uncounted(self) -> list[str]:
        return [*parameters_not_chosen(self.form, "learner"), *parameters_not_chosen(self.form, "aggregator")]

    def check(self) -> None:
        values = self.form.cleaned_data
        aggregator = values.get("aggregator", "")
        for spec in parameters_of("aggregator", aggregator) if aggregator else ():
            name = parameter("aggregator", aggregator, spec.name)
            if values.get(name) is not None and values[name] <= 0:
                self.form.add_error(name, _("Give a number above 0."))

    def run_fields(self) -> dict[str, Any]:
        values = self.form.cleaned_data
        return {name: values[name] for name in (*_OF_THE_MODEL, "learner")} | {
            "learner_parameters": parameters_chosen(self.form, "learner"),
            "aggregator": {"name": values["aggregator"], **parameters_chosen(self.form, "aggregator")},
        }

    def rehearsed(self) -> dict[str, Any]:
        return {stored: self.form.cleaned_data[name] for name, stored in _COUNTING.items()}

    @staticmethod
    def initial(study: Study) -> dict[str, Any]:
        """About 13 holders a teacher, noise and threshold in proportion.

        They rest on the study's head counts, or, in a rehearsal, on the owners of its data.
        """
        holders = sum(count.count for count in head_counts(study))
        private = study.datasets.filter(kind=Dataset.Kind.PRIVATE, removed_at=None).order_by("-imported_at").first()
        if study.rehearsal:
            holders = private.holders if private is not None else 0
        teachers = max(1, _round(holders / 13))
        classes = len(private.classes) if private is not None else 10
        learner = learner_suggested(private.schema["kind"] if private is not None else "table")
        return {
            "teachers": teachers,
            "learner": learner.name,
            "aggregator": next(iter(CHOICES["aggregator"])),
            **{parameter("learner", learner.name, name): value for name, value in learner_parameters(learner).items()},
            **{
                parameter("aggregator", name, spec.name): round(spec.suggested(teachers, classes), 2)
                for name in CHOICES["aggregator"]
                for spec in AGGREGATORS[name].fields()
            },
        }

    @staticmethod
    def initial_like(run: Run) -> dict[str, Any]:
        aggregator = dict(run.aggregator)
        chosen = {"learner": run.learner, "aggregator": aggregator.pop("name")}
        given = {"learner": run.learner_parameters, "aggregator": aggregator}
        values = {name: getattr(run, name) for name in _OF_THE_MODEL} | chosen
        for role, parameters in given.items():
            values |= {parameter(role, chosen[role], name): value for name, value in parameters.items()}
        counting = {name: run.rehearsed[stored] for name, stored in _COUNTING.items()} if run.rehearsed else {}
        return values | counting


def _round(number: float) -> int:
    """To tens where there are enough of them."""
    return 10 * round(number / 10) if number >= 45 else round(number)
