"""Pages of runs: list, live status, released labels, student."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, cast

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.models import Study
from consent.models.actors import actor_name
from ipate_web.staff.comparison import change_rows
from ipate_web.staff.forms.run_filter import RunFilterForm
from ipate_web.staff.run_charts import (
    calibration_chart,
    class_chart,
    cost_chart,
    curve_chart,
    lead_chart,
    survival_chart,
)
from ipate_web.staff.views.pages import attachment, file_name, paginate, render_page, study_page
from ipate_web.staff.views.proposals import second_person
from ipate_web.staff.views.results import result_context
from training.alliances.selectors import joint_document
from training.comparison import MOST
from training.fairness import fairness_of
from training.forecast_outcomes import came_of, outcomes_of
from training.methods import method_of
from training.models import Run, RunResult
from training.queue import run_wait
from training.run_lists import runs_filter, runs_in_table
from training.selectors import (
    run_cost_history,
    run_curves,
    run_edits,
    run_groups,
    run_is_unattended,
    run_leads,
    run_progress,
    run_rounds,
    run_versions,
)
from training.services.downloads import download_record
from training.services.label_files import LABEL_FORMATS
from training.services.publication import publication_doubts

T = TypeVar("T")


def _run_or_404(study: Study, pk: str, *related: str) -> Run:
    """A run of the study; the decorators of the views let only those through who may see its runs."""
    runs = study.runs.select_related("public_dataset", "created_by", "approved_by", *related).prefetch_related("rounds")
    found = get_object_or_404(runs, pk=pk)
    found.study = study
    return found


def _voted_or_404(study: Study, pk: str) -> Run:
    """A run of the study whose method releases labels: others have queries that are neither answered nor rejected."""
    found = _run_or_404(study, pk)
    if not method_of(found).releases_labels:
        raise Http404
    return found


@require_safe
@study_page("training.view_run")
def runs(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the runs: searched, filtered, sorted."""
    found = study.runs.all()
    form = RunFilterForm(request.GET, runs=found)
    page = paginate(request, runs_in_table(runs_filter(found, **form.chosen())), 20)
    context = {"page": page, "form": form, "most": MOST, "can_compare": len(page) > 1}
    return render_page(request, study, "staff/runs/runs.html", context)


@require_safe
@study_page("training.view_run")
def run(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Show everything about a run that the user may see."""
    found = _run_or_404(study, pk, "private_dataset", "test_dataset", "student__assessment")
    context = _live_context(found) | second_person(found, request.can, request.user)
    came = came_of(found)
    context["forecasts"] = [each.to_json() for each in outcomes_of(found, came)]
    context["shares"] = came.get("shares")
    context |= {"is_proposer": found.created_by_id == request.user.pk, "changes": change_rows(found)}
    return render_page(request, study, "staff/runs/run.html", context)


@require_safe
@study_page("training.view_run")
def run_live(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Live part of a run's page; once the run has ended, htmx reloads the page."""
    found = _run_or_404(study, pk)
    context = {"study": study, "can": request.can, "swapped": True, **_live_context(found)}
    context |= second_person(found, request.can, request.user)
    response = render(request, "staff/runs/live.html", context)
    if found.has_ended:
        response["HX-Refresh"] = "true"
    return response


def _on_demand(compute: Callable[[], T]) -> T:
    """Result of ``compute``, which is called when something of it is first asked for."""
    return cast(T, SimpleLazyObject(compute))


def _live_context(run: Run) -> dict[str, Any]:
    """Progress, charges and results: all of it public. What templates keep is computed on demand."""
    groups, history, progress = run_groups(run), _on_demand(lambda: run_cost_history(run)), run_progress(run)
    context: dict[str, Any] = {
        "run": run,
        "timeline": _timeline(run),
        "progress": progress,
        "rounds": run_rounds(run),
        "leads": _on_demand(lambda: lead_chart(run_leads(run))),
        "unattended": run_is_unattended(run),
        "wait": run_wait(run),
        "groups": groups,
        "costs": _on_demand(lambda: cost_chart(history, groups)),
        "history": history,
        "curves": curve_chart(run_curves(run)),
        "joint": joint_document(run),
    }
    result = RunResult.objects.filter(run=run).first() if run.has_ended else None
    if result is not None:
        context |= result_context(result)
    if run.student is not None:
        student = run.student
        context |= {
            "student": student,
            "classes": _on_demand(lambda: class_chart(student)),
            "calibration": _on_demand(lambda: calibration_chart(student)),
            "survival": _on_demand(lambda: survival_chart(student)),
            "fairness": _on_demand(lambda: fairness_of(run, student)),
            "versions": run_versions(run),
        }
    elif (first := run.students.first()) is not None:
        context |= {"doubts": publication_doubts(first.card.get("evaluation")), "versions": run_versions(run)}
    return context


def _timeline(run: Run) -> list[tuple[str, datetime, str]]:
    """Events of a run so far, as (text, time, user)."""
    events = [
        (_("Proposed"), run.created_at, str(run.created_by or "")),
        *((_("Changed"), change.changed_at, actor_name(change, "changed_by")) for change in run_edits(run)),
        (
            _("Approved") if run.rehearsal else _("Approved, consents counted"),
            run.approved_at,
            str(run.approved_by or ""),
        ),
        (_("Preparation begun"), run.started_at, ""),
        (_("Asking begun"), run.spending_began_at, ""),
        (run.get_status_display().capitalize(), run.ended_at, ""),
    ]
    return [(text, moment, who) for text, moment, who in events if moment]


@require_safe
@study_page("training.use_student")
def run_labels(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """List every queried public point with its label, or as rejected."""
    found = _voted_or_404(study, pk)
    if request.method != "HEAD":
        download_record(run=found, what=gettext_noop("labels"), acting_user=request.user)
    queries = found.queries.order_by("row").select_related("batch")
    shown = request.GET.get("show", "")
    answers = {"answered": _("answered"), "rejected": _("rejected")}
    if found.reinforced:
        answers["reinforced"] = _("reinforced")
    if shown in answers:
        queries = queries.filter(label__isnull=shown == "rejected", reinforced=shown == "reinforced")
    page = paginate(request, queries, 100)
    classes = found.learns.categories
    rows = [(query, None if query.label is None else classes[query.label]) for query in page]
    counted = classes if any(query.counts for query in page) else []
    filtered = {"answers": answers.items(), "shown": shown}
    context = {"run": found, "page": page, "rows": rows, "counted": counted, **filtered}
    return render_page(request, study, "staff/runs/labels.html", context)


@require_safe
@study_page("training.use_student")
def run_labels_file(request: SignedInRequest, study: Study, pk: str, kind: str) -> HttpResponse:
    """Download all released labels with their noisy counts, or with the public points."""
    found = _voted_or_404(study, pk)
    if kind not in LABEL_FORMATS:
        raise Http404
    if request.method != "HEAD":
        download_record(run=found, what="labels", acting_user=request.user)
    chosen = LABEL_FORMATS[kind]
    charset = "; charset=utf-8" if chosen.media_type.startswith("text/") else ""
    return attachment(chosen.content(found), f"{file_name(found)}-labels.{kind}", chosen.media_type + charset)
