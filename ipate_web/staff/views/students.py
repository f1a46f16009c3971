"""Pages of the versions of a run's student: compare, train another, publish another, take one away."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_safe

from common.artifacts import model_fetch
from common.requests import SignedInRequest
from consent.models import Study
from ipate_web.staff.forms.endings import PublicationForm, WithdrawalForm
from ipate_web.staff.forms.students import StudentForm, initial_student
from ipate_web.staff.views.pages import attachment, faults_show, file_name, render_page, study_form, study_page
from training.models import Run, StudentModel
from training.selectors import run_versions, runs_visible_to
from training.services.downloads import download_record, model_takers
from training.services.exports import ModelFile, file_native, file_onnx
from training.services.publication import publication_doubts
from training.services.students import student_publish, student_withdraw
from training.services.trainings import student_ask


def _run_or_404(request: SignedInRequest, study: Study, pk: str) -> Run:
    runs = runs_visible_to(request.user).select_related("public_dataset", "test_dataset", "student")
    return get_object_or_404(runs, study=study, pk=pk)


def _version_or_404(request: SignedInRequest, study: Study, pk: str, version: int) -> tuple[Run, StudentModel]:
    """A run with one version of its student."""
    run = _run_or_404(request, study, pk)
    return run, get_object_or_404(run.students.all(), version=version)


@require_safe
@study_page("training.view_run")
def run_students(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """The versions of a run's student, as the run's page asks for them while one is trained; then it is loaded anew."""
    row = _run_or_404(request, study, pk)
    can = request.can
    context: dict[str, Any] = {"study": study, "can": can, "run": row, "versions": run_versions(row)}
    response = render(request, "staff/runs/versions.html", context)
    if not context["versions"].busy:
        response["HX-Refresh"] = "true"  # what the page says above them has changed, too
    return response


@study_form("training.propose_run")
def run_student_new(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Choose a student and its parameters; a worker trains it from what the run has released."""
    row = _run_or_404(request, study, pk)
    if not row.students.exists():
        messages.info(request, _("Only the student of a finished run can be trained anew."))
        return redirect("staff:run", study.slug, row.pk)
    is_sent = request.method == "POST"
    form = StudentForm(request.POST if is_sent else None, initial=initial_student(row), run=row)
    if form.is_valid():
        with faults_show(request):
            student_ask(run=row, acting_user=request.user, **form.recipe())
            messages.success(request, _("Another version is trained as soon as a worker is free."))
        return redirect("staff:run", study.slug, row.pk)
    context: dict[str, Any] = {"run": row, "form": form}
    return render_page(request, study, "staff/runs/student_new.html", context)


@study_form("training.approve_run")
def run_student_publish(request: SignedInRequest, study: Study, pk: str, version: int) -> HttpResponse:
    """Explain what it means that another version is published, and publish it."""
    row, chosen = _version_or_404(request, study, pk, version)
    if chosen.is_withdrawn:
        messages.error(request, _("This version was withdrawn. Publish another one."))
        return redirect("staff:run", study.slug, row.pk)
    doubts = publication_doubts(chosen.card.get("evaluation"))
    form = PublicationForm(request.POST if request.method == "POST" else None, doubtful=bool(doubts))
    if form.is_valid():
        student_publish(run=row, version=chosen.version, acting_user=request.user, **form.cleaned_data)
        messages.success(request, _("Version %(number)d is published.") % {"number": chosen.version})
        return redirect("staff:run", study.slug, row.pk)
    context: dict[str, Any] = {"run": row, "chosen": chosen, "doubts": doubts, "form": form}
    return render_page(request, study, "staff/runs/student_publish.html", context)


@study_form("training.withdraw_model")
def run_student_withdraw(request: SignedInRequest, study: Study, pk: str, version: int) -> HttpResponse:
    """Explain what it means to withdraw a version, and withdraw it."""
    row, chosen = _version_or_404(request, study, pk, version)
    if chosen.is_withdrawn:
        messages.info(request, _("This version was withdrawn already."))
        return redirect("staff:run", study.slug, row.pk)
    form = WithdrawalForm(request.POST or None)
    if form.is_valid():
        student_withdraw(run=row, version=chosen.version, acting_user=request.user, **form.cleaned_data)
        messages.success(request, _("Version %(number)d is withdrawn.") % {"number": chosen.version})
        return redirect("staff:run", study.slug, row.pk)
    context: dict[str, Any] = {"run": row, "chosen": chosen, "form": form, "takers": len(model_takers(chosen))}
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
    """A file of a version, on record; none of one that was withdrawn."""
    if chosen.is_withdrawn:
        return render_page(request, study, "staff/runs/withdrawn.html", {"run": run, "chosen": chosen}, status=410)
    file = file_of(chosen)
    if request.method != "HEAD":
        download_record(run=run, what=gettext_noop("model"), digest=file.digest, acting_user=request.user)
    name = f"{file_name(run)}-v{chosen.version}.{file.format}"
    return attachment(model_fetch(file.artifact), name, "application/octet-stream")
