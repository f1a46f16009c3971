"""Pages of runs: list, live status, released labels and tables, and the queue."""

from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from common.artifacts import model_fetch
from common.requests import SignedInRequest
from consent.models import Study
from consent.models.recorded import actor_name
from ipate_web.lists import Reader
from ipate_web.run_list import COMPARE, RUNS
from ipate_web.run_words import leads_to_table
from ipate_web.staff.charts import cost_chart, curve_chart, evaluation_charts, lead_chart, table_chart
from ipate_web.staff.comparison import change_rows
from ipate_web.staff.fields import WithdrawalForm
from ipate_web.staff.pages import Section, attachment, file_name, paginate, render_page, study_form, study_page
from ipate_web.staff.proposals import second_person
from learning.mechanisms.counts.tables import CountTable, summaries
from training.alliances.selectors import joint_document
from training.comparison import MOST, measured_results, outcomes_of
from training.methods import method_of
from training.models import Run, RunResult
from training.outlook import outlook
from training.queue import queue_for, queue_watchable, run_wait
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
from training.services.downloads import LABEL_FORMATS, download_record, downloaders
from training.services.publication import publication_doubts, result_withdraw

T = TypeVar("T")
TABS = ("result", "cost", "releases", "timeline", "card")
"""Tabs of a run's page."""
CELLS_SHOWN = 200
"""Number of cells of a table that a page shows; the table's file contains all cells."""


def _run_or_404(study: Study, pk: str, *related: str) -> Run:
    """Return a run of the study; the views' decorators admit only users who may see its runs."""
    runs = study.runs.select_related("public_dataset", "created_by", "approved_by", *related).prefetch_related("rounds")
    found = get_object_or_404(runs, pk=pk)
    found.study = study
    return found


def _voted_or_404(study: Study, pk: str) -> Run:
    """Return a run whose method releases labels. Other methods have no answered or rejected queries."""
    found = _run_or_404(study, pk)
    if not method_of(found).releases_labels:
        raise Http404
    return found


@require_safe
@study_page("training.view_run")
def runs(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List the runs, with search, filters and sorting."""
    found = RUNS.page(request, study.runs.all(), Reader(study, request.can))
    if file := found.file(f"{study.slug}-runs"):
        return file
    if can_compare := len(found.page) > 1:
        found.columns = [COMPARE, *found.columns]
    context = {"list": found, "form": found.form, "most": MOST, "can_compare": can_compare}
    return render_page(request, study, "staff/runs/runs.html", context)


@require_safe
@study_page("training.view_run")
def run(request: SignedInRequest, study: Study, pk: str, tab: str = "result") -> HttpResponseBase:
    """Show a tab of a run's page, or the first tab if the requested tab does not exist yet."""
    if tab not in TABS:
        raise Http404
    found = _run_or_404(study, pk, "private_dataset", "test_dataset", "student__assessment")
    context = _live_context(found, tab) | second_person(found, request.can, request.user)
    if tab != "result" and not context["tab"]:
        return redirect("staff:run", study.slug, found.pk)
    came = measured_results(found)
    context["forecasts"] = [each.to_json() for each in outcomes_of(found, came)]
    context |= {"shares": came.get("shares"), "outlook": outlook(found)}
    context |= {"is_proposer": found.created_by_id == request.user.pk, "changes": change_rows(found)}
    return render_page(request, study, "staff/runs/run.html", context)


@require_safe
@study_page("training.view_run")
def run_live(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Return the live part of a run's page. Once the run has ended or is a draft again, htmx reloads the page."""
    found = _run_or_404(study, pk)
    tab = request.GET.get("tab", "")
    context = {"study": study, "can": request.can, **_live_context(found, tab if tab in TABS else "result")}
    context |= second_person(found, request.can, request.user)
    response = render(request, "staff/runs/live.html", context)
    if found.has_ended or found.status == Run.Status.DRAFT:
        response["HX-Refresh"] = "true"
    return response


def _on_demand(compute: Callable[[], T]) -> T:
    """Return a lazy result of ``compute``, which is called at its first use."""
    return cast(T, SimpleLazyObject(compute))


def _tabs(run: Run, context: dict[str, Any], chosen: str) -> list[Section]:
    """Return the tabs of a run's page that have content. A draft has none."""
    method = method_of(run)
    shown: dict[str, str] = {}
    if run.status != Run.Status.DRAFT:
        shown["result"] = _("Result")
        if (run.spending_began_at and context["groups"]) or run.outcome:
            shown["cost"] = _("Cost")
        if context["curves"] or (context["rounds"] and not leads_to_table(run)) or method.releases_labels:
            shown["releases"] = _("Labels") if method.releases_labels else _("Steps")
        shown |= {"timeline": _("Timeline"), "card": _("Card") if context["has_card"] else _("Plan")}
    page = reverse("staff:run", args=[run.study.slug, run.pk])
    return [
        Section(page if name == "result" else f"{page}{name}/", text, name == chosen) for name, text in shown.items()
    ]


def _live_context(run: Run, tab: str) -> dict[str, Any]:
    """Return progress, charges and results, all of them public. Values that templates cache are computed on demand."""
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
        context |= {**evaluation_charts(run.student), "versions": run_versions(run)}
    elif (first := run.students.first()) is not None:
        context |= {"doubts": publication_doubts(first.card.get("evaluation")), "versions": run_versions(run)}
    context["has_card"] = result is not None or run.student is not None
    context["run_tabs"] = _tabs(run, context, tab)
    context["tab"] = tab if any(each.current for each in context["run_tabs"]) else ""
    return context


def _timeline(run: Run) -> list[tuple[str, datetime, str]]:
    """Return the events of a run so far, as (text, time, user)."""
    events = [
        (_("Proposed"), run.created_at, str(run.created_by or "")),
        *((_("Changed"), change.changed_at, actor_name(change, "changed_by")) for change in run_edits(run)),
        (_("Approved"), run.approved_at, str(run.approved_by or "")),
        (_("Planned") if run.rehearsal else _("Planned, with consents as of this time"), run.snapshot_at, ""),
        (_("Preparation started"), run.started_at, ""),
        (_("Asking started"), run.spending_began_at, ""),
        (run.get_status_display().capitalize(), run.ended_at, ""),
    ]
    return [(text, moment, who) for text, moment, who in events if moment]


@require_safe
@study_page("training.use_student")
def run_labels(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """List every queried public point with its label, or marked as rejected."""
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


def result_context(result: RunResult) -> dict[str, Any]:
    """Return the context of a run's table and its chart, for the run's page."""
    if result.is_rows:
        return {"result": result, "drawn": result.content}
    table = CountTable.from_json(result.content)
    return {
        "result": result,
        "table": table,
        "cells": list(islice(table, CELLS_SHOWN)),
        "unclear": sum(not cell.is_distinct for cell in table),
        "table_chart": table_chart(table),
        "summaries": summaries(table)[:CELLS_SHOWN],
    }


def _result_or_404(study: Study, pk: str) -> RunResult:
    run = get_object_or_404(Run.objects.filter(study=study), pk=pk)
    run.study = study
    result = RunResult.objects.filter(run=run).first()
    if result is None:
        raise Http404
    result.run = run
    return result


@require_safe
@study_page("training.use_student")
def run_result_file(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Download the table as CSV, which is logged. Withdrawn tables are not available."""
    result = _result_or_404(study, pk)
    if result.is_withdrawn:
        return render_page(request, study, "staff/runs/result_withdrawn.html", {"run": result.run}, status=410)
    if request.method != "HEAD":
        what = gettext_noop("table")
        download_record(run=result.run, what=what, digest=result.digest, acting_user=request.user)
    return attachment(model_fetch(result.artifact), f"{file_name(result.run)}-table.csv", "text/csv; charset=utf-8")


@study_form("training.withdraw_model")
def run_result_withdraw(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Explain the effects of withdrawing the table, ask for a reason, and withdraw it."""
    result = _result_or_404(study, pk)
    if result.is_withdrawn:
        messages.info(request, _("This table has already been withdrawn."))
        return redirect("staff:run", study.slug, result.run.pk)
    form = WithdrawalForm(request.POST or None)
    if form.is_valid():
        result_withdraw(run=result.run, acting_user=request.user, **form.cleaned_data)
        messages.success(request, _("Table withdrawn."))
        return redirect("staff:run", study.slug, result.run.pk)
    context: dict[str, Any] = {
        "run": result.run,
        "form": form,
        "downloaders": len(downloaders(result.run, [result.digest])),
    }
    return render_page(request, study, "staff/runs/result_withdraw.html", context)


@never_cache
@login_required
@require_safe
def queue(request: SignedInRequest) -> HttpResponse:
    """Show the runs that are in progress or waiting, and the workers."""
    return _rendered(request, "staff/queue/queue.html")


@never_cache
@login_required
@require_safe
def queue_live(request: SignedInRequest) -> HttpResponse:
    """Return the live part of the page."""
    return _rendered(request, "staff/queue/home.html" if "short" in request.GET else "staff/queue/live.html")


def _rendered(request: SignedInRequest, template: str) -> HttpResponse:
    if not queue_watchable(request.user):
        raise PermissionDenied
    return render(request, template, {"queue": queue_for(request.user)})
