"""Tables that runs have published: shown on the run's page, taken away, withdrawn."""

from itertools import islice
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_safe

from common.artifacts import model_fetch
from common.requests import SignedInRequest
from consent.models import Study
from ipate_web.staff.forms.endings import WithdrawalForm
from ipate_web.staff.run_charts import table_chart
from ipate_web.staff.views.pages import attachment, file_name, render_page, study_form, study_page
from learning.mechanisms.counts.tables import CountTable, summaries
from training.models import Run, RunResult
from training.services.downloads import download_record, takers
from training.services.results import result_withdraw

CELLS_SHOWN = 200
"""Cells of a table that a page shows; its file has all."""


def result_context(result: RunResult) -> dict[str, Any]:
    """Table of a run with its chart, as its page shows them."""
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
    """Download the table as CSV, on record; none that was withdrawn."""
    result = _result_or_404(study, pk)
    if result.is_withdrawn:
        return render_page(request, study, "staff/runs/result_withdrawn.html", {"run": result.run}, status=410)
    if request.method != "HEAD":
        what = gettext_noop("table")
        download_record(run=result.run, what=what, digest=result.digest, acting_user=request.user)
    return attachment(model_fetch(result.artifact), f"{file_name(result.run)}-table.csv", "text/csv; charset=utf-8")


@study_form("training.withdraw_model")
def run_result_withdraw(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Explain what it means that the table is withdrawn, ask why, and withdraw it."""
    result = _result_or_404(study, pk)
    if result.is_withdrawn:
        messages.info(request, _("This table was withdrawn already."))
        return redirect("staff:run", study.slug, result.run.pk)
    form = WithdrawalForm(request.POST or None)
    if form.is_valid():
        result_withdraw(run=result.run, acting_user=request.user, **form.cleaned_data)
        messages.success(request, _("The table is withdrawn."))
        return redirect("staff:run", study.slug, result.run.pk)
    context: dict[str, Any] = {"run": result.run, "form": form, "takers": len(takers(result.run, [result.digest]))}
    return render_page(request, study, "staff/runs/result_withdraw.html", context)
