"""Pages of the models that a study has published, and of their stages."""

from collections.abc import Callable
from functools import wraps

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.models import Study
from ipate_web.staff.forms.thresholds import ThresholdForm
from ipate_web.staff.views.pages import faults_in, faults_show, paginate, render_page, study_form, study_page
from training.models import Run, StudentModel
from training.selectors import runs_visible_to
from training.services.stages import NEXT, model_stage_set, registered_models
from training.services.thresholds import model_threshold_set

_Stage = StudentModel.Stage


@require_safe
@study_page("training.view_run")
def models(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the published models, all or those of one stage."""
    rows = registered_models(StudentModel.objects.filter(run__study=study)).select_related("run__study")
    stage = request.GET.get("stage", "")
    if stage in _Stage.values:
        rows = rows.filter(stage=stage)
    context = {"page": paginate(request, rows, 20), "stages": _stages(_Stage.values), "stage": stage}
    return render_page(request, study, "staff/models/models.html", context)


def _page_of_published(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Decorator of views of the published model of a run, for those who approve runs; back to a run without one."""

    @study_form("training.approve_run")
    @wraps(view)
    def wrapped(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
        run = get_object_or_404(runs_visible_to(request.user).select_related("student"), study=study, pk=pk)
        if run.student is None or run.student.is_withdrawn:
            messages.info(request, _("The run has no published model: there is none yet, or it was withdrawn."))
            return redirect("staff:run", study.slug, run.pk)
        return view(request, study, run, run.student)

    return wrapped


@_page_of_published
def model_stage(request: SignedInRequest, study: Study, run: Run, student: StudentModel) -> HttpResponse:
    """Explain what the stages mean, and put a published model into another one."""
    if request.method == "POST":
        with faults_show(request):
            model = model_stage_set(run=run, stage=request.POST.get("stage", ""), acting_user=request.user)
            values = {"title": run.title, "stage": model.get_stage_display()}
            messages.success(request, _("The model of “%(title)s” is %(stage)s now.") % values)
        return redirect("staff:models", study.slug)
    context = {"run": run, "model": student, "next": _stages(NEXT[student.stage])}
    return render_page(request, study, "staff/models/stage.html", context)


@_page_of_published
def model_threshold(request: SignedInRequest, study: Study, run: Run, student: StudentModel) -> HttpResponse:
    """Explain what a threshold does, and choose that of a published model."""
    threshold = student.card.get("threshold") or {}
    initial = {"class_name": threshold.get("class", ""), **threshold.get("by", {})}
    form = ThresholdForm(request.POST if request.method == "POST" else None, initial=initial, run=run)
    if form.is_valid():
        with faults_in(form):
            model_threshold_set(run=run, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("The model says classes by its new threshold now."))
            return redirect("staff:run", study.slug, run.pk)
    context = {"run": run, "form": form}
    return render_page(request, study, "staff/models/threshold.html", context)


def _stages(names: list[str] | tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, capfirst(str(_Stage(name).label))) for name in names]
