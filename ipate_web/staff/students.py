"""Pages of runs' student models: their versions, publication, threshold and stage."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import F
from django.db.models.functions import Lower
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop
from django.views.decorators.http import require_safe

from common.artifacts import model_fetch
from common.requests import SignedInRequest
from common.templatetags.components import component_render
from consent.models import Study
from ipate_web.lists import Column, Filter, Listing, Reader, piece
from ipate_web.run_words import learner_label
from ipate_web.staff.fields import (
    ParameterGroup,
    ReasonForm,
    WithdrawalForm,
    chosen_parameters,
    kind_add,
    parameter_groups,
    parameter_values,
    unused_parameters,
)
from ipate_web.staff.pages import attachment, faults_in, faults_show, file_name, render_page, study_form, study_page
from training.models import Run, StudentModel
from training.selectors import run_versions, runs_visible_to
from training.services.downloads import ModelFile, download_record, file_native, file_onnx, model_downloaders
from training.services.publication import (
    NEXT,
    model_stage_set,
    model_threshold_set,
    publication_doubts,
    registered_models,
)
from training.services.students import recipe_check, student_ask, student_publish, student_withdraw

_Stage = StudentModel.Stage


def _title(model: StudentModel, reader: Reader) -> SafeString:
    address = reverse("staff:model", args=[reader.study.slug, model.run_id])
    made = {"number": model.version, "date": date_format(timezone.localtime(model.created_at), "SHORT_DATE_FORMAT")}
    version = _("version %(number)s, %(date)s") % made
    return format_html('<a href="{}">{}</a><br><span class="soft small">{}</span>', address, model.run.title, version)


def _stage(model: StudentModel, _reader: Reader) -> SafeString:
    return component_render(
        "badge", text=model.get_stage_display(), kind="good" if model.stage == _Stage.PRODUCTION else ""
    )


def _measures(model: StudentModel, _reader: Reader) -> SafeString:
    evaluation = model.card.get("evaluation") or {}
    return component_render("measures_short", evaluation=evaluation, accuracy=model.accuracy, brief=True)


MODELS = Listing(
    columns=(
        Column(
            "title",
            gettext_lazy("Run"),
            _title,
            orders={"title": (gettext_lazy("title"), Lower("run__title").asc())},
            is_head=True,
        ),
        Column("stage", gettext_lazy("Stage"), _stage),
        Column(
            "learner",
            gettext_lazy("Learner"),
            piece("model_learner"),
            text=lambda model, _reader: learner_label(model.learner),
            is_minor=True,
        ),
        Column(
            "accuracy",
            gettext_lazy("Test data"),
            _measures,
            orders={"-accuracy": (gettext_lazy("most accurate first"), F("accuracy").desc(nulls_last=True))},
            kind="number",
        ),
        Column("actions", gettext_lazy("What to do"), piece("model_actions"), is_minor=True, is_silent=True),
    ),
    filters=(Filter("stage", "stage", gettext_lazy("Stage"), choices=_Stage.choices),),
    ties=("-created_at", "pk"),
    size=20,
)


class StudentForm(forms.Form):
    """Form for a student and its parameters, to learn from the public points of ``run``."""

    def __init__(self, *args: Any, run: Run, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.run = run
        kind_add(self, "student_learner", gettext_lazy("Student"))

    @property
    def student_groups(self) -> list[ParameterGroup]:
        return parameter_groups(self, "student_learner")

    def clean(self) -> dict[str, Any]:
        for name in unused_parameters(self, "student_learner"):
            self.errors.pop(name, None)
        if not self.errors:
            try:
                recipe_check(self.run, **self.recipe())
            except ValidationError as error:
                self.add_error("student_learner", [text for texts in error.message_dict.values() for text in texts])
        return self.cleaned_data

    def recipe(self) -> dict[str, Any]:
        """Return the choices of the form, for ``student_ask``."""
        return {
            "student_learner": self.cleaned_data["student_learner"],
            "student_parameters": chosen_parameters(self, "student_learner"),
        }


def initial_student(run: Run) -> dict[str, Any]:
    """Return the student that the run's proposal requested."""
    return parameter_values("student_learner", run.student_learner, run.student_parameters)


class PublicationForm(ReasonForm):
    """Form for publishing a version. It asks for a reason if the version would not be published automatically."""

    def __init__(self, *args: Any, doubtful: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = gettext_lazy("The model card shows this.")
        if not doubtful:
            del self.fields["reason"]


class ThresholdForm(forms.Form):
    """Form for a threshold's class, with costs or a target sensitivity. Without a class, there is no threshold."""

    class_name = forms.ChoiceField(label=gettext_lazy("Class"), required=False)
    missed = forms.FloatField(
        label=gettext_lazy("Cost of a missed case"),
        required=False,
        min_value=0,
        help_text=gettext_lazy("Use the same unit for both costs."),
    )
    false_alarm = forms.FloatField(label=gettext_lazy("Cost of a false alarm"), required=False, min_value=0)
    sensitivity = forms.FloatField(
        label=gettext_lazy("Or: target sensitivity"),
        required=False,
        min_value=0.01,
        max_value=1,
        help_text=gettext_lazy("Share of the class's records to find, such as 0.9."),
    )

    def __init__(self, *args: Any, run: Run, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        none = ("", gettext_lazy("none: use the most likely class"))
        self.fields["class_name"].choices = [none, *((name, name) for name in run.classes)]  # type: ignore[attr-defined]


def _run_or_404(request: SignedInRequest, study: Study, pk: str) -> Run:
    runs = runs_visible_to(request.user).select_related("public_dataset", "test_dataset", "student")
    return get_object_or_404(runs, study=study, pk=pk)


def _version_or_404(request: SignedInRequest, study: Study, pk: str, version: int) -> tuple[Run, StudentModel]:
    """Return a run and one version of its student."""
    run = _run_or_404(request, study, pk)
    return run, get_object_or_404(run.students.all(), version=version)


@require_safe
@study_page("training.view_run")
def run_students(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Show the versions of a run's student; the run's page polls this during training, then reloads."""
    row = _run_or_404(request, study, pk)
    can = request.can
    context: dict[str, Any] = {"study": study, "can": can, "run": row, "versions": run_versions(row)}
    response = render(request, "staff/runs/versions.html", context)
    if not context["versions"].busy:
        response["HX-Refresh"] = "true"  # the text above them has also changed
    return response


@study_form("training.propose_run")
def run_student_new(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Choose a student and its parameters, which a worker then trains from the run's releases."""
    row = _run_or_404(request, study, pk)
    if not row.students.exists():
        messages.info(request, _("You can train a student again only after its run has finished."))
        return redirect("staff:run", study.slug, row.pk)
    is_sent = request.method == "POST"
    form = StudentForm(request.POST if is_sent else None, initial=initial_student(row), run=row)
    if form.is_valid():
        with faults_show(request):
            student_ask(run=row, acting_user=request.user, **form.recipe())
            messages.success(request, _("Another version will be trained when a worker is free."))
        return redirect("staff:run", study.slug, row.pk)
    context: dict[str, Any] = {"run": row, "form": form}
    return render_page(request, study, "staff/runs/student_new.html", context)


@study_form("training.approve_run")
def run_student_publish(request: SignedInRequest, study: Study, pk: str, version: int) -> HttpResponse:
    """Explain the effects of publishing another version, and publish it."""
    row, chosen = _version_or_404(request, study, pk, version)
    if chosen.is_withdrawn:
        messages.error(request, _("This version was withdrawn. Publish a different one."))
        return redirect("staff:run", study.slug, row.pk)
    doubts = publication_doubts(chosen.card.get("evaluation"))
    form = PublicationForm(request.POST if request.method == "POST" else None, doubtful=bool(doubts))
    if form.is_valid():
        student_publish(run=row, version=chosen.version, acting_user=request.user, **form.cleaned_data)
        messages.success(request, _("Version %(number)d published.") % {"number": chosen.version})
        return redirect("staff:run", study.slug, row.pk)
    context: dict[str, Any] = {"run": row, "chosen": chosen, "doubts": doubts, "form": form}
    return render_page(request, study, "staff/runs/student_publish.html", context)


@study_form("training.withdraw_model")
def run_student_withdraw(request: SignedInRequest, study: Study, pk: str, version: int) -> HttpResponse:
    """Explain the effects of withdrawing a version, and withdraw it."""
    row, chosen = _version_or_404(request, study, pk, version)
    if chosen.is_withdrawn:
        messages.info(request, _("This version has already been withdrawn."))
        return redirect("staff:run", study.slug, row.pk)
    form = WithdrawalForm(request.POST or None)
    if form.is_valid():
        student_withdraw(run=row, version=chosen.version, acting_user=request.user, **form.cleaned_data)
        messages.success(request, _("Version %(number)d withdrawn.") % {"number": chosen.version})
        return redirect("staff:run", study.slug, row.pk)
    context: dict[str, Any] = {
        "run": row,
        "chosen": chosen,
        "form": form,
        "downloaders": len(model_downloaders(chosen)),
    }
    return render_page(request, study, "staff/runs/student_withdraw.html", context)


@require_safe
@study_page("training.use_student")
def run_student_model(request: SignedInRequest, study: Study, pk: str, version: int) -> HttpResponse:
    """Download one version of the student."""
    return _taken(request, study, *_version_or_404(request, study, pk, version), file_native)


@require_safe
@study_page("training.use_student")
def run_student_onnx(request: SignedInRequest, study: Study, pk: str, version: int) -> HttpResponse:
    """Download one version of the student as ONNX."""
    return _taken(request, study, *_version_or_404(request, study, pk, version), file_onnx)


def _taken(
    request: SignedInRequest, study: Study, run: Run, chosen: StudentModel, file_of: Callable[[StudentModel], ModelFile]
) -> HttpResponse:
    """Return a file of a version and record the download; withdrawn versions are not available."""
    if chosen.is_withdrawn:
        return render_page(request, study, "staff/runs/withdrawn.html", {"run": run, "chosen": chosen}, status=410)
    file = file_of(chosen)
    if request.method != "HEAD":
        download_record(run=run, what=gettext_noop("model"), digest=file.digest, acting_user=request.user)
    name = f"{file_name(run)}-v{chosen.version}.{file.format}"
    return attachment(model_fetch(file.artifact), name, "application/octet-stream")


@require_safe
@study_page("training.view_run")
def models(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List the published models."""
    rows = registered_models(StudentModel.objects.filter(run__study=study)).select_related("run__study")
    found = MODELS.page(request, rows, Reader(study, request.can))
    if file := found.file(f"{study.slug}-models"):
        return file
    context = {"list": found, "form": found.form}
    return render_page(request, study, "staff/models/models.html", context)


def _page_of_published(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Decorator for views of a run's published model, for users who approve runs. Redirects if there is no model."""

    @study_form("training.approve_run")
    @wraps(view)
    def wrapped(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
        run = get_object_or_404(runs_visible_to(request.user).select_related("student"), study=study, pk=pk)
        if run.student is None or run.student.is_withdrawn:
            messages.info(request, _("The run has no published model yet, or its model was withdrawn."))
            return redirect("staff:run", study.slug, run.pk)
        return view(request, study, run, run.student)

    return wrapped


@_page_of_published
def model_stage(request: SignedInRequest, study: Study, run: Run, student: StudentModel) -> HttpResponse:
    """Explain the stages, and change the stage of a published model."""
    if request.method == "POST":
        with faults_show(request):
            model = model_stage_set(run=run, stage=request.POST.get("stage", ""), acting_user=request.user)
            values = {"title": run.title, "stage": model.get_stage_display()}
            messages.success(request, _("The stage of the model from “%(title)s” is now: %(stage)s.") % values)
        return redirect("staff:models", study.slug)
    context = {"run": run, "model": student, "next": _stages(NEXT[student.stage])}
    return render_page(request, study, "staff/models/stage.html", context)


@_page_of_published
def model_threshold(request: SignedInRequest, study: Study, run: Run, student: StudentModel) -> HttpResponse:
    """Explain thresholds, and choose the threshold of a published model."""
    threshold = student.card.get("threshold") or {}
    initial = {"class_name": threshold.get("class", ""), **threshold.get("by", {})}
    form = ThresholdForm(request.POST if request.method == "POST" else None, initial=initial, run=run)
    if form.is_valid():
        with faults_in(form):
            model_threshold_set(run=run, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("The model now uses its new threshold."))
            return redirect("staff:run", study.slug, run.pk)
    context = {"run": run, "form": form}
    return render_page(request, study, "staff/models/threshold.html", context)


def _stages(names: list[str] | tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, capfirst(str(_Stage(name).label))) for name in names]
