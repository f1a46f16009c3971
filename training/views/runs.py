"""Runs: the list, one of them live, the labels and the student that it released."""

from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from consent.models import Study
from consent.permissions import study_permissions
from ipate_web.requests import SignedInRequest
from training.artifacts import model_fetch
from training.models import Run, StudentModel
from training.selectors import (
    CostHistory,
    run_cost_history,
    run_groups,
    run_is_unattended,
    run_progress,
    runs_visible_to,
)
from training.templatetags.run_words import group_label
from training.views.pages import paginate, render_page, study_page


def _run_or_404(request: SignedInRequest, study: Study, pk: str) -> Run:
    runs = runs_visible_to(request.user).select_related(
        "account", "private_dataset", "public_dataset", "test_dataset", "created_by", "approved_by", "student"
    )
    return get_object_or_404(runs, study=study, pk=pk)


@require_safe
@study_page("training.view_run")
def runs(request: SignedInRequest, study: Study) -> HttpResponse:
    """All runs, or those of one status."""
    rows = runs_visible_to(request.user).filter(study=study).select_related("created_by")
    status = request.GET.get("status", "")
    if status in Run.Status.values:
        rows = rows.filter(status=status)
    context = {"page": paginate(request, rows, 20), "statuses": Run.Status.choices, "status": status}
    return render_page(request, study, "training/runs.html", context)


@require_safe
@study_page("training.view_run")
def run(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Everything about a run that its reader may know."""
    found = _run_or_404(request, study, pk)
    can = study_permissions(request.user, study)
    return render_page(request, study, "training/run.html", _live_context(found, can))


@require_safe
@study_page("training.view_run")
def run_live(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """The part of a run's page that changes while it runs; once it has ended, htmx is told to load the page anew."""
    found = _run_or_404(request, study, pk)
    can = study_permissions(request.user, study)
    context = {"study": study, "can": can, "swapped": True, **_live_context(found, can)}
    response = render(request, "training/run_live.html", context)
    if found.has_ended:
        response["HX-Refresh"] = "true"
    return response


def _live_context(run: Run, can: frozenset[str]) -> dict[str, Any]:
    """Progress, and the secrets where they may be seen."""
    context: dict[str, Any] = {
        "run": run,
        "timeline": _timeline(run),
        "progress": run_progress(run),
        "unattended": run_is_unattended(run),
        "sees_results": _sees_results(run, can),
    }
    if "accounting.view_private_costs" in can:
        history = run_cost_history(run)
        context |= {"groups": run_groups(run), "costs": _chart_of_costs(history), "history": _rows_of_costs(history)}
    student = getattr(run, "student", None)
    if student is not None and _sees_results(run, can):
        context |= {"student": student, "classes": _chart_of_classes(student)}
    return context


def _sees_results(run: Run, can: frozenset[str]) -> bool:
    """What a simulation finds out is a secret; it was paid for by nobody's budget."""
    return not run.simulation or "accounting.view_private_costs" in can


def _chart_of_costs(history: CostHistory) -> dict[str, Any] | None:
    """Each group's ε over the labels released so far, with its budget."""
    if not history.labels:
        return None
    series = [
        {
            "name": group_label(name),
            "start": history.starts[name],
            "budget": history.budgets[name],
            "points": [{"x": x, "y": y} for x, y in zip(history.labels, values, strict=True)],
        }
        for name, values in history.epsilons.items()
    ]
    return {"x": _("labels released"), "y": "ε", "series": series}


def _rows_of_costs(history: CostHistory) -> list[tuple[int, int, list[float]]]:
    """The chart's numbers: queries, labels, ε of each group, after each batch."""
    epsilons = map(list, zip(*history.epsilons.values(), strict=True))
    return list(zip(history.queries, history.labels, epsilons, strict=True))


def _chart_of_classes(student: StudentModel) -> dict[str, Any] | None:
    """Recall and precision of the student, class by class."""
    evaluation = student.card.get("evaluation")
    if not evaluation:
        return None
    return {
        "labels": [row["class"] for row in evaluation["classes"]],
        "series": [
            {"name": name, "values": [row[key] for row in evaluation["classes"]]}
            for key, name in (("recall", _("recall")), ("precision", _("precision")))
        ],
    }


def _timeline(run: Run) -> list[tuple[str, datetime, str]]:
    """What happened, when, and by whom, as far as it has."""
    events = [
        (_("Proposed"), run.created_at, str(run.created_by or "")),
        (_("Approved, consents counted"), run.approved_at, str(run.approved_by or "")),
        (_("Teachers begun"), run.started_at, ""),
        (_("Vote begun"), run.voting_at, ""),
        (run.get_status_display().capitalize(), run.ended_at, ""),
    ]
    return [(text, moment, who) for text, moment, who in events if moment]


@require_safe
@study_page("training.use_student")
def run_labels(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Every public point that was put to the vote, with its label, or rejected."""
    found = _run_or_404(request, study, pk)
    if not _sees_results(found, study_permissions(request.user, study)):
        raise PermissionDenied
    queries = found.queries.order_by("row").select_related("batch")
    shown = request.GET.get("show", "")
    if shown in ("answered", "rejected"):
        queries = queries.filter(label__isnull=shown == "rejected")
    page = paginate(request, queries, 100)
    classes = found.public_dataset.classes
    rows = [(query, None if query.label is None else classes[query.label]) for query in page]
    context = {"run": found, "page": page, "rows": rows, "shown": shown}
    return render_page(request, study, "training/run_labels.html", context)


@require_safe
@study_page("training.use_student")
def run_model(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """The student as a file."""
    found = _run_or_404(request, study, pk)
    if not _sees_results(found, study_permissions(request.user, study)):
        raise PermissionDenied
    student = getattr(found, "student", None)
    if student is None:
        raise Http404
    suffix = "safetensors" if found.student_learner == "cnn" else "skops"
    name = f"{study.slug}-{slugify(found.title) or found.pk}.{suffix}"
    response = HttpResponse(model_fetch(student.artifact), content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
