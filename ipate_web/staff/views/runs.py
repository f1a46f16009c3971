"""Pages of runs: list, live status, released labels, student."""

import csv
import io
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.models import Study
from consent.permissions import study_permissions
from ipate_web.staff.run_charts import class_chart, cost_chart, curve_chart, lead_chart
from ipate_web.staff.views.pages import attachment, file_name, paginate, render_page, study_page
from ipate_web.staff.views.proposals import second_person
from training.models import Run
from training.selectors import (
    run_cost_history,
    run_curves,
    run_groups,
    run_is_unattended,
    run_leads,
    run_progress,
    run_rounds,
    run_versions,
    runs_visible_to,
)
from training.services.downloads import download_record, labels_table


def _run_or_404(request: SignedInRequest, study: Study, pk: str) -> Run:
    runs = runs_visible_to(request.user).select_related(
        "private_dataset", "public_dataset", "test_dataset", "created_by", "approved_by", "student"
    )
    return get_object_or_404(runs, study=study, pk=pk)


@require_safe
@study_page("training.view_run")
def runs(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the runs, filtered by status."""
    rows = runs_visible_to(request.user).filter(study=study).select_related("created_by")
    status = request.GET.get("status", "")
    if status in Run.Status.values:
        rows = rows.filter(status=status)
    context = {"page": paginate(request, rows, 20), "statuses": Run.Status.choices, "status": status}
    return render_page(request, study, "staff/runs/runs.html", context)


@require_safe
@study_page("training.view_run")
def run(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Show everything about a run that the user may see."""
    found = _run_or_404(request, study, pk)
    can = study_permissions(request.user, study)
    context = _live_context(found, can) | second_person(found, request.user)
    return render_page(request, study, "staff/runs/run.html", context)


@require_safe
@study_page("training.view_run")
def run_live(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Live part of a run's page; once the run has ended, htmx reloads the page."""
    found = _run_or_404(request, study, pk)
    can = study_permissions(request.user, study)
    context = {"study": study, "can": can, "swapped": True, **_live_context(found, can)}
    context |= second_person(found, request.user)
    response = render(request, "staff/runs/live.html", context)
    if found.has_ended:
        response["HX-Refresh"] = "true"
    return response


def _live_context(run: Run, can: frozenset[str]) -> dict[str, Any]:
    """Progress, charges and results: all of it public."""
    groups, history = run_groups(run), run_cost_history(run)
    context: dict[str, Any] = {
        "run": run,
        "timeline": _timeline(run),
        "progress": run_progress(run),
        "rounds": run_rounds(run),
        "leads": lead_chart(run_leads(run)),
        "unattended": run_is_unattended(run),
        "groups": groups,
        "costs": cost_chart(history, groups),
        "history": history,
        "curves": curve_chart(run_curves(run)),
    }
    if run.student is not None:
        context |= {"student": run.student, "classes": class_chart(run.student), "versions": run_versions(run)}
    return context


#: The stages of all methods: what is said when one has begun, and the field of a run that says when.
_BEGUN: dict[str, tuple[str, str]] = {
    Run.Status.TRAINING: (gettext_noop("Teachers begun"), "started_at"),
    Run.Status.VOTING: (gettext_noop("Vote begun"), "voting_at"),
    Run.Status.ASKING: (gettext_noop("Asking begun"), "voting_at"),
    Run.Status.LEARNING: (gettext_noop("Learning begun"), "voting_at"),
}


def _timeline(run: Run) -> list[tuple[str, datetime, str]]:
    """Events of a run so far, as (text, time, user)."""
    events = [
        (_("Proposed"), run.created_at, str(run.created_by or "")),
        (
            _("Approved") if run.rehearsal else _("Approved, consents counted"),
            run.approved_at,
            str(run.approved_by or ""),
        ),
        *((_(_BEGUN[stage][0]), getattr(run, _BEGUN[stage][1]), "") for stage, _share in run_progress(run).stages),
        (run.get_status_display().capitalize(), run.ended_at, ""),
    ]
    return [(text, moment, who) for text, moment, who in events if moment]


@require_safe
@study_page("training.use_student")
def run_labels(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """List every queried public point with its label, or as rejected."""
    found = _run_or_404(request, study, pk)
    if request.method != "HEAD":
        download_record(run=found, what=gettext_noop("labels"), acting_user=request.user)
    queries = found.queries.order_by("row").select_related("batch")
    shown = request.GET.get("show", "")
    if shown in ("answered", "rejected"):
        queries = queries.filter(label__isnull=shown == "rejected")
    page = paginate(request, queries, 100)
    classes = found.classes
    rows = [(query, None if query.label is None else classes[query.label]) for query in page]
    counted = classes if any(query.counts for query in page) else []
    context = {"run": found, "page": page, "rows": rows, "shown": shown, "counted": counted}
    return render_page(request, study, "staff/runs/labels.html", context)


@require_safe
@study_page("training.use_student")
def run_labels_file(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Download all released labels with their noisy counts as a table."""
    found = _run_or_404(request, study, pk)
    if request.method != "HEAD":
        download_record(run=found, what="labels", acting_user=request.user)
    text = io.StringIO()
    csv.writer(text).writerows(labels_table(found))
    return attachment(text.getvalue(), f"{file_name(found)}-labels.csv", "text/csv; charset=utf-8")
