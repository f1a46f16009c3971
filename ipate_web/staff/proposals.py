"""Pages for proposing, changing, approving and cancelling runs."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import NON_FIELD_ERRORS, PermissionDenied, ValidationError
from django.forms.boundfield import BoundField
from django.forms.models import fields_for_model
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounting.shares import share_free, suggested_share
from common.requests import SignedInRequest
from common.slots import NoSlotError, slot
from consent.models import Level, Study
from consent.permissions import members_with_permission
from ipate_web.run_words import translated
from ipate_web.staff.charts import plan_charts
from ipate_web.staff.comparison import change_rows
from ipate_web.staff.fields import (
    ParameterGroup,
    chosen_parameters,
    kind_add,
    number,
    parameter_groups,
    parameter_values,
    unused_parameters,
)
from ipate_web.staff.methods import METHOD_FIELDS, MethodFields, StudyForm, values_words
from ipate_web.staff.pages import faults_in, faults_show, number_sent, render_page, study_form
from learning.learners import learner_parameters
from learning.mechanisms.protocol import PlanError
from learning.students import student_create
from training.engine.budgets import DEFAULTS
from training.methods import METHODS, MethodOutcome
from training.models import Dataset, Run
from training.outlook import outlook
from training.selectors import runs_visible_to
from training.services import approvals, runs
from training.services import runs as run_commands
from training.services.forecasts import forecast
from training.services.runs import run_check, suggestion_for

_DATASETS = {
    "private_dataset": gettext_lazy("Private dataset"),
    "public_dataset": gettext_lazy("Public dataset"),
    "test_dataset": gettext_lazy("Test dataset"),
    "labelled_dataset": gettext_lazy("Labelled public rows"),
}
_OF_THE_MODEL = ("title", "purpose", *_DATASETS, "wanted_labels", "seed")
_FOR_A_MODEL = ("public_dataset", "test_dataset", "labelled_dataset", "wanted_labels")
"""Fields that apply only to methods whose runs train a model."""
_LEVELS = [(level, name) for name in ("share", "epsilon") for level in Level]


class ShareForm(forms.Form):
    """Form for a share in per cent. It is reserved until the run ends; then the part known to be unused becomes free.

    A rehearsal needs no share, so its form has no field.
    """

    per_cent = forms.FloatField(
        label=gettext_lazy("Share of every holder's cap, in percent"),
        min_value=0.1,
        max_value=100,
        widget=forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"}),
        help_text=gettext_lazy(
            "All shares together can be at most 100 %. When the run ends, anything that it did not use becomes "
            "available again."
        ),
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.study = study
        if study.rehearsal:
            del self.fields["per_cent"]
            return
        per_cent = round(100 * suggested_share(study), 1)
        self.fields["per_cent"].initial = int(per_cent) if per_cent.is_integer() else per_cent

    def clean_per_cent(self) -> float:
        value, free = self.cleaned_data["per_cent"], 100 * share_free(self.study)
        if value > free + 1e-6:
            raise forms.ValidationError(
                gettext_lazy("Only %(free).4g %% is available. The rest is used or reserved for other runs.")
                % {"free": free}
            )
        return value

    def share(self) -> float:
        """Return the share, a number above 0 and at most 1."""
        return min(self.cleaned_data.get("per_cent", 100) / 100, 1.0)


class RunForm(StudyForm):
    """Form for proposing a run by ``acting_user``; in a rehearsal, also for the levels and the counting of costs."""

    def __init__(self, *args: Any, study: Study, acting_user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.study = study
        self.acting_user = acting_user
        self.fields["method"] = forms.ChoiceField(
            label=gettext_lazy("Method"),
            choices=[(name, capfirst(str(Run.Method(name).label))) for name in METHOD_FIELDS],
            help_text=_suggested(study),
        )
        self.fields |= fields_for_model(Run, fields=_OF_THE_MODEL)
        for kind in Dataset.Kind.values:
            datasets = study.datasets.filter(kind=kind, removed_at=None)
            self.fields[f"{kind}_dataset"].queryset = datasets  # type: ignore[attr-defined]
        labelled = study.datasets.filter(kind=Dataset.Kind.PUBLIC, removed_at=None).exclude(seen_classes=[])
        self.fields["labelled_dataset"].queryset = labelled  # type: ignore[attr-defined]
        self.fields["labelled_dataset"].help_text = gettext_lazy(
            "The student also learns from the labels of these rows, which come from people who need no privacy or "
            "from open data. Runs do not query these rows."
        )
        for name, label in _DATASETS.items():
            self.fields[name].label = label
        self.fields["public_dataset"].help_text = gettext_lazy(
            "Without a public dataset, gradient steps on a table with classes first use a tenth of the run's share "
            "to count people. Rows drawn from the counts then replace the public points."
        )
        self.fields["purpose"].widget.attrs["rows"] = 3
        if study.rehearsal:
            self._add_levels()
        else:
            del self.fields["seed"]
        self.methods: list[MethodFields] = [fields(self) for fields in METHOD_FIELDS.values()]
        self.fields["wanted_labels"].help_text = gettext_lazy(
            "Maximum number of labels. Leave empty for as many as possible."
        )
        kind_add(self, "student_learner", gettext_lazy("Student"))

    def _add_levels(self) -> None:
        texts = {"share": gettext_lazy("share of people"), "epsilon": "ε"}
        for level, name in _LEVELS:
            self.fields[_level_field(level, name)] = number(
                label=f"{capfirst(str(level.label))}: {texts[name]}",
                initial=DEFAULTS["levels"][level.value][name],
                min_value=0,
            )

    # --- For the template ---------------------------------------------------------------------------------------------

    @property
    def learning(self) -> list[str]:
        """Return the names of the methods whose runs train a model."""
        return [name for name in METHOD_FIELDS if METHODS[name].outcome == MethodOutcome.MODEL]

    @property
    def student_groups(self) -> list[ParameterGroup]:
        return parameter_groups(self, "student_learner")

    @property
    def student_has_errors(self) -> bool:
        return any(self[name].errors for name in self.fields if name.startswith("student_learner"))

    @property
    def student_chosen(self) -> str:
        """Return the chosen student as one line."""
        return values_words([self["student_learner"]])

    @property
    def _rest(self) -> list[BoundField]:
        names = ("purpose", "seed", "labelled_dataset", "wanted_labels")
        return [*(self[name] for name in names if name in self.fields), *self.rehearsed_levels]

    @property
    def rest_has_errors(self) -> bool:
        return any(field.errors for field in self._rest)

    @property
    def rest_chosen(self) -> str:
        """Return purpose and limits as one line."""
        return values_words(self._rest) or _("all public points, no purpose stated")

    @property
    def rehearsed_levels(self) -> list[BoundField]:
        """Return the share and ε of each level; none outside rehearsal studies."""
        return [self[_level_field(level, name)] for level, name in _LEVELS] if self.study.rehearsal else []

    # --- Submitted values ---------------------------------------------------------------------------------------------

    def clean(self) -> dict[str, Any]:
        chosen = self._chosen()
        uncounted = unused_parameters(self, "student_learner")
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
        """Return the fields of the run, for ``run_propose``."""
        method = self._chosen()
        assert method is not None, "the form is valid"
        names = [name for name in _OF_THE_MODEL if name in self.fields]
        values: dict[str, Any] = {"method": method.name}
        if method.name not in self.learning:
            names = [name for name in names if name not in _FOR_A_MODEL]
        elif self.cleaned_data["public_dataset"]:
            values["student_learner"] = self.cleaned_data["student_learner"]
            values["student_parameters"] = chosen_parameters(self, "student_learner")
        values |= {name: self.cleaned_data[name] for name in names}
        if self.study.rehearsal:
            levels: dict[str, dict[str, float]] = {level.value: {} for level in Level}
            for level, name in _LEVELS:
                levels[level.value][name] = self.cleaned_data[_level_field(level, name)]
            values["rehearsed"] = {"levels": levels, **method.rehearsed()}
        return values | method.run_fields()

    def proposal(self) -> Run:
        """Return the proposed run, unsaved."""
        return Run(study=self.study, rehearsal=self.study.rehearsal, created_by=self.acting_user, **self.run_fields())

    def _show(self, error: ValidationError) -> None:
        """Show errors in the run next to the fields where they can be corrected."""
        method = self._chosen()
        for name, texts in error.message_dict.items():
            field = "student_learner" if name == "student_parameters" else name
            if field not in self.fields and method is not None:
                field = method.place(name) or NON_FIELD_ERRORS
            self.add_error(None if field == NON_FIELD_ERRORS else field, texts)


def _level_field(level: Level, name: str) -> str:
    return f"{level.value}-{name}"


def _suggested(study: Study) -> str:
    """Return a sentence with the method that the form suggests, and the reason."""
    suggested = suggestion_for(study)
    method = capfirst(str(Run.Method(suggested.method).label))
    message = gettext_lazy("Suggested for this study: %(method)s. %(reason)s")
    return message % {"method": method, "reason": translated(suggested.because)}


def initial_for(study: Study) -> dict[str, Any]:
    """Return sensible values for a first run, for every method."""
    datasets = {
        f"{kind}_dataset": study.datasets.filter(kind=kind, removed_at=None).order_by("-imported_at").first()
        for kind in Dataset.Kind.values
    }
    suggested = suggestion_for(study)
    parameters = learner_parameters(student_create(suggested.student))
    values: dict[str, Any] = {**datasets, "method": suggested.method}
    values |= parameter_values("student_learner", suggested.student, parameters)
    for method in METHOD_FIELDS.values():
        values |= method.initial(study)
    return values


def initial_like(run: Run) -> dict[str, Any]:
    """Return the values of an earlier run."""
    values: dict[str, Any] = {name: getattr(run, name) for name in _OF_THE_MODEL if name != "seed"}
    values |= {"method": run.method}
    values |= parameter_values("student_learner", run.student_learner, run.student_parameters)
    for level, level_of_run in run.rehearsed.get("levels", {}).items():
        values |= {f"{level}-{name}": value for name, value in level_of_run.items()}
    return {**initial_for(run.study), **values, **METHOD_FIELDS[run.method].initial_like(run)}


def plan_or_reason(run: Run, user: Any, share: float | None = None) -> dict[str, Any]:
    """Return the ``plan`` of ``run`` with ``outlook``, ``plan_notes``, checks and ``alternatives``, or ``plan_error``.

    Return ``plan_waits`` if another plan of ``user``, or too many plans in all, are being computed.
    """
    try:
        with slot(user.pk):
            plan = forecast(run, share)
    except NoSlotError:
        return {"plan_error": None, "plan_waits": True}
    except PlanError as error:
        return {"plan_error": error.args[0], "plan_waits": False}
    expected = outlook(run, plan.to_json())
    assert expected is not None, "there is a plan"
    return {
        "plan": plan.plan,
        "plan_error": None,
        "plan_waits": False,
        "outlook": expected,
        "plan_notes": [note for note in plan.notes if note not in expected.doubts],
        "plan_charts": plan_charts(plan.plan),
        "alternatives": plan.alternatives,
    }


def second_person(run: Run, can: frozenset[str], user: Any) -> dict[str, Any]:
    """Return ``is_own`` and ``is_orphan``, reasons why ``user`` may not approve, and the ``approvers`` who may.

    ``can`` contains the user's permissions in the run's study.
    """
    if run.status != Run.Status.DRAFT or "training.approve_run" not in can:
        return {}
    approvers = members_with_permission(run.study, "training.approve_run").exclude(pk=user.pk)
    return {
        "is_own": run.created_by_id == user.pk,
        "is_orphan": run.created_by_id is None,
        "approvers": ", ".join(str(approver) for approver in approvers),
    }


@study_form("training.propose_run")
def run_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Fill in a proposal, check the plan, and save it as a draft."""
    form = RunForm(
        request.POST or None,
        initial=None if request.method == "POST" else _initial(request, study),
        study=study,
        acting_user=request.user,
    )
    if _is_confirmed(request, form):
        with faults_in(form):
            run = run_commands.run_propose(study=study, acting_user=request.user, **form.run_fields())
            messages.success(request, _("Draft saved. The run starts when an operator approves it."))
            return redirect("staff:run", study.slug, run.pk)
    return _form_or_plan(request, study, form)


def _page_of_own_draft(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Decorator for views of a draft that only its proposer may open.

    These views redirect to the run if it is no longer a draft.
    """

    @study_form("training.propose_run")
    @wraps(view)
    def wrapped(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
        run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
        if run.created_by_id != request.user.pk:
            raise PermissionDenied
        if run.status != Run.Status.DRAFT:
            messages.info(request, _("This run is no longer a draft."))
            return redirect("staff:run", study.slug, run.pk)
        return view(request, study, run)

    return wrapped


@_page_of_own_draft
def run_edit(request: SignedInRequest, study: Study, run: Run) -> HttpResponse:
    """Change the user's own draft: fill in, check the plan, save."""
    form = RunForm(
        request.POST or None,
        initial=None if request.method == "POST" else initial_like(run) | {"seed": run.seed},
        study=study,
        acting_user=request.user,
    )
    if _is_confirmed(request, form):
        with faults_show(request):
            edited = runs.run_edit(run=run, acting_user=request.user, **form.run_fields())
            changed = edited.revision != run.revision
            messages.success(request, _("The draft has been changed.") if changed else _("Nothing was changed."))
        return redirect("staff:run", study.slug, run.pk)
    return _form_or_plan(request, study, form, edited=run)


@_page_of_own_draft
def run_withdraw(request: SignedInRequest, study: Study, run: Run) -> HttpResponse:
    """Ask for confirmation, and withdraw the user's own draft."""
    if request.method == "POST":
        with faults_show(request):
            runs.run_withdraw(run=run, acting_user=request.user)
            messages.success(request, _("The run has been withdrawn."))
        return redirect("staff:run", study.slug, run.pk)
    return render_page(request, study, "staff/runs/withdraw.html", {"run": run})


def _is_confirmed(request: SignedInRequest, form: RunForm) -> bool:
    return "confirmed" in request.POST and "change" not in request.POST and form.is_valid()


def _form_or_plan(request: SignedInRequest, study: Study, form: RunForm, edited: Run | None = None) -> HttpResponse:
    """Show the plan for the completed form; show the form if it is missing, invalid or being changed."""
    if form.is_valid() and "change" not in request.POST:
        run = form.proposal()
        context: dict[str, Any] = {"form": form, "run": run, "edited": edited, **plan_or_reason(run, request.user)}
        return render_page(request, study, "staff/runs/check.html", context)
    missing = [
        kind.label
        for kind in (Dataset.Kind.PRIVATE, Dataset.Kind.PUBLIC)
        if not study.datasets.filter(kind=kind, removed_at=None).exists()
    ]  # without these datasets, nothing can be proposed
    context = {"form": form, "missing": missing, "edited": edited}
    return render_page(request, study, "staff/runs/new.html", context)


def _initial(request: SignedInRequest, study: Study) -> dict[str, Any]:
    """Return initial values: from the run in the URL, or else the study's defaults."""
    like = request.GET.get("like")
    if not like:
        return initial_for(study)
    try:
        return initial_like(get_object_or_404(runs_visible_to(request.user), study=study, pk=like))
    except ValidationError:  # not an id
        return initial_for(study)


@study_form("training.approve_run")
def run_approve(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Show the plan of a run, the share of every cap that it may use, and the button to start it."""
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
    if run.status != Run.Status.DRAFT:
        messages.info(request, _("This run is no longer a draft."))
        return redirect("staff:run", study.slug, run.pk)
    form = ShareForm(request.POST if request.method == "POST" else None, study=study)
    share = form.share() if form.is_valid() else suggested_share(study)
    if form.is_valid() and "look" not in request.POST:
        revision = number_sent(request.POST, "revision")
        if revision is None and "revision" in request.POST:
            revision = -1  # not a number, so it cannot be the proposal's revision
        try:
            approved = approvals.run_approve(run=run, acting_user=request.user, share=share, revision=revision)
        except PlanError as error:
            messages.error(request, translated(error.args[0]))
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
        else:
            if approved.status == Run.Status.PLANNING:
                messages.success(
                    request, _("Run approved. It will be queued as soon as a worker has calculated its plan.")
                )
        return redirect("staff:run", study.slug, run.pk)
    context = {
        "form": form,
        "run": run,
        "share_free": share_free(study),
        "changes": change_rows(run),
        **plan_or_reason(run, request.user, share),
        **second_person(run, request.can, request.user),
    }
    return render_page(request, study, "staff/runs/approve.html", context)


@study_form("training.approve_run")
def run_approval_undo(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Turn a run whose plan is still being computed back into a draft."""
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
    if request.method == "POST":
        with faults_show(request):
            approvals.approval_undo(run=run, acting_user=request.user)
            messages.success(request, _("The approval has been withdrawn. The run is a draft again."))
    return redirect("staff:run", study.slug, run.pk)


@study_form("training.cancel_run")
def run_cancel(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Explain the effects of cancelling a run, and cancel it."""
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
    if run.has_ended:
        messages.info(request, _("This run has already ended."))
        return redirect("staff:run", study.slug, run.pk)
    if request.method == "POST":
        run = run_commands.run_cancel(run=run, acting_user=request.user)
        if run.status == Run.Status.CANCELLED:
            messages.success(request, _("The run has been cancelled."))
        return redirect("staff:run", study.slug, run.pk)
    return render_page(request, study, "staff/runs/cancel.html", {"run": run})
