"""The form in which a run is proposed, built from what methods, learners and aggregators say of themselves."""

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.forms.boundfield import BoundField
from django.forms.models import fields_for_model
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from consent.models import Level, Study
from ipate_web.staff.forms import kinds
from ipate_web.staff.forms.methods import METHOD_FIELDS, MethodFields, StudyForm
from ipate_web.staff.templatetags.run_words import said
from learning.learners import learner_parameters
from learning.students import student_create
from training.engine.budgets import DEFAULTS
from training.methods import METHODS, Outcome
from training.models import Dataset, Run
from training.services.runs import run_check
from training.services.suggestions import suggestion_for

_DATASETS = {
    "private_dataset": _("Private dataset"),
    "public_dataset": _("Public dataset"),
    "test_dataset": _("Test dataset"),
    "labelled_dataset": _("Labelled public rows"),
}
_OF_THE_MODEL = ("title", "purpose", *_DATASETS, "wanted_labels", "seed")
_FOR_A_MODEL = ("public_dataset", "test_dataset", "labelled_dataset", "wanted_labels")
"""Fields that count only for a method whose runs lead to a model."""
_LEVELS = [(level, name) for name in ("share", "epsilon") for level in Level]


class RunForm(StudyForm):
    """Proposal of a run by ``acting_user``; in a rehearsal also who is at which level, and how costs are counted."""

    def __init__(self, *args: Any, study: Study, acting_user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.study = study
        self.acting_user = acting_user
        self.fields["method"] = forms.ChoiceField(
            label=_("Method"),
            choices=[(name, capfirst(str(Run.Method(name).label))) for name in METHOD_FIELDS],
            help_text=_suggested(study),
        )
        self.fields |= fields_for_model(Run, fields=_OF_THE_MODEL)
        for kind in Dataset.Kind.values:
            datasets = study.datasets.filter(kind=kind, removed_at=None)
            self.fields[f"{kind}_dataset"].queryset = datasets  # type: ignore[attr-defined]
        labelled = study.datasets.filter(kind=Dataset.Kind.PUBLIC, removed_at=None).exclude(seen_classes=[])
        self.fields["labelled_dataset"].queryset = labelled  # type: ignore[attr-defined]
        self.fields["labelled_dataset"].help_text = _(
            "The student also learns from the labels of these rows: of people without privacy needs, or open data. "
            "They are not put to the vote."
        )
        for name, label in _DATASETS.items():
            self.fields[name].label = label
        self.fields["public_dataset"].help_text = _(
            "Empty: gradient steps on a table with classes count people first, with a tenth of the run's share; rows "
            "drawn from the counts take the place of public points."
        )
        self.fields["purpose"].widget.attrs["rows"] = 3
        if study.rehearsal:
            self._add_levels()
        else:
            del self.fields["seed"]
        self.methods: list[MethodFields] = [fields(self) for fields in METHOD_FIELDS.values()]
        self.fields["wanted_labels"].help_text = _("No more are asked for. Empty: as many as can be had.")
        kinds.kind_add(self, "student_learner", _("Student"))

    def _add_levels(self) -> None:
        texts = {"share": _("share of the owners"), "epsilon": "ε"}
        for level, name in _LEVELS:
            self.fields[_level_field(level, name)] = kinds.number(
                label=f"{capfirst(str(level.label))}: {texts[name]}",
                initial=DEFAULTS["levels"][level.value][name],
                min_value=0,
            )

    # --- For the template ---------------------------------------------------------------------------------------------

    @property
    def learning(self) -> list[str]:
        """Names of the methods whose runs lead to a model."""
        return [name for name in METHOD_FIELDS if METHODS[name].outcome == Outcome.MODEL]

    @property
    def student_groups(self) -> list[kinds.ParameterGroup]:
        return kinds.parameter_groups(self, "student_learner")

    @property
    def rehearsed_levels(self) -> list[BoundField]:
        """Share and ε of each level; none outside rehearsal studies."""
        return [self[_level_field(level, name)] for level, name in _LEVELS] if self.study.rehearsal else []

    # --- What was asked for -------------------------------------------------------------------------------------------

    def clean(self) -> dict[str, Any]:
        chosen = self._chosen()
        uncounted = kinds.unused_parameters(self, "student_learner")
        if chosen is not None and chosen.name not in self.learning:
            uncounted += [name for name in self.fields if name.partition("-")[0] in (*_FOR_A_MODEL, "student_learner")]
        for method in self.methods:
            uncounted += method.uncounted() if method is chosen else method.names
        for name in uncounted:
            self.errors.pop(name, None)
        if chosen is not None:
            chosen.check()
        if not self.errors:
            try:
                run_check(self.proposal())
            except ValidationError as error:
                self._show(error)
        return self.cleaned_data

    def _chosen(self) -> MethodFields | None:
        return next((method for method in self.methods if method.name == self.cleaned_data.get("method")), None)

    def run_fields(self) -> dict[str, Any]:
        """The fields of the run, as ``run_propose`` takes them."""
        method = self._chosen()
        assert method is not None, "the form is valid"
        names = [name for name in _OF_THE_MODEL if name in self.fields]
        values: dict[str, Any] = {"method": method.name}
        if method.name not in self.learning:
            names = [name for name in names if name not in _FOR_A_MODEL]
        elif self.cleaned_data["public_dataset"]:
            values["student_learner"] = self.cleaned_data["student_learner"]
            values["student_parameters"] = kinds.chosen_parameters(self, "student_learner")
        values |= {name: self.cleaned_data[name] for name in names}
        if self.study.rehearsal:
            levels: dict[str, dict[str, float]] = {level.value: {} for level in Level}
            for level, name in _LEVELS:
                levels[level.value][name] = self.cleaned_data[_level_field(level, name)]
            values["rehearsed"] = {"levels": levels, **method.rehearsed()}
        return values | method.run_fields()

    def proposal(self) -> Run:
        """The run as it would be, not saved."""
        return Run(study=self.study, rehearsal=self.study.rehearsal, created_by=self.acting_user, **self.run_fields())

    def _show(self, error: ValidationError) -> None:
        """Put what is wrong with the run beside the field that it can be corrected in."""
        method = self._chosen()
        for name, messages in error.message_dict.items():
            field = "student_learner" if name == "student_parameters" else name
            if field not in self.fields and method is not None:
                field = method.place(name) or NON_FIELD_ERRORS
            self.add_error(None if field == NON_FIELD_ERRORS else field, messages)


def _level_field(level: Level, name: str) -> str:
    return f"{level.value}-{name}"


def _suggested(study: Study) -> str:
    """Sentence that says with which method the form begins, and why."""
    suggested = suggestion_for(study)
    method = capfirst(str(Run.Method(suggested.method).label))
    message = _("Suggested for this study: %(method)s. %(reason)s")
    return message % {"method": method, "reason": said(suggested.because)}


def initial_for(study: Study) -> dict[str, Any]:
    """Sensible values for a first run, by every method."""
    datasets = {
        f"{kind}_dataset": study.datasets.filter(kind=kind, removed_at=None).order_by("-imported_at").first()
        for kind in Dataset.Kind.values
    }
    suggested = suggestion_for(study)
    parameters = learner_parameters(student_create(suggested.student))
    values: dict[str, Any] = {**datasets, "method": suggested.method}
    values |= kinds.parameter_values("student_learner", suggested.student, parameters)
    for method in METHOD_FIELDS.values():
        values |= method.initial(study)
    return values


def initial_like(run: Run) -> dict[str, Any]:
    """The values of an earlier run."""
    values: dict[str, Any] = {name: getattr(run, name) for name in _OF_THE_MODEL if name != "seed"}
    values |= {"method": run.method}
    values |= kinds.parameter_values("student_learner", run.student_learner, run.student_parameters)
    for level, level_of_run in run.rehearsed.get("levels", {}).items():
        values |= {f"{level}-{name}": value for name, value in level_of_run.items()}
    return {**initial_for(run.study), **values, **METHOD_FIELDS[run.method].initial_like(run)}
