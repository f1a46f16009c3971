"""The ledger of a study, as an auditor reads it: also after somebody has tampered with it."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from accounting.exports import FORMATS, export_name
from accounting.models import LedgerEntry, RunAccount
from accounting.privacy import epsilon_from_rdp
from accounting.reports import run_report
from accounting.selectors import account_consumption
from accounting.verification import Check
from consent.models import Level, Study
from consent.permissions import study_permissions
from ipate_web.append_only import chained_models
from ipate_web.requests import SignedInRequest
from training.models import Run
from training.selectors import labels_released
from training.views.pages import paginate, render_page, study_page

#: How many rows at the end of each chain its page computes anew; ``manage.py verify_ledger`` looks at all.
ROWS_CHECKED = 1000

Found = TypeVar("Found")


@require_safe
@study_page("accounting.view_ledger")
def ledger(request: SignedInRequest, study: Study) -> HttpResponse:
    """All entries, or those of one run or one level; costs for those who may see them."""
    can = study_permissions(request.user, study)
    titles = {run.pk: run.title for run in Run.objects.filter(study=study, account__isnull=False, simulation=False)}
    chosen_run = _run_id(request.GET.get("run", ""), titles)
    level = request.GET.get("level", "")
    entries: QuerySet[LedgerEntry] = LedgerEntry.objects.filter(study=study).select_related("group__account")
    if chosen_run:
        entries = entries.filter(run=chosen_run)
    if level in Level.values:
        entries = entries.filter(group__level=level)
    page = paginate(request, entries.order_by("-sequence"))
    sees_costs = "accounting.view_private_costs" in can
    context: dict[str, Any] = {
        "page": page,
        "rows": _readable(lambda: [_row(entry, titles, sees_costs) for entry in page]),
        "titles": titles,
        "chosen_run": chosen_run,
        "levels": Level.choices,
        "level": level,
        "released": labels_released(study),
        "entries": LedgerEntry.objects.filter(study=study).count(),
        "consumption": [],
    }
    account = chosen_run and RunAccount.objects.filter(study=study, run=chosen_run).first()
    if account and sees_costs:
        context["consumption"] = _readable(partial(account_consumption, account))
    return render_page(request, study, "accounting/ledger.html", context)


def _readable(find: Callable[[], Found]) -> Found | None:
    """What ``find()`` gives; None where it meets a value that the site never wrote."""
    try:
        return find()
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _run_id(text: str, known: dict[UUID, str]) -> UUID | None:
    """The run that the filter names, if the study has it."""
    return next((pk for pk in known if str(pk) == text), None)


def _row(entry: LedgerEntry, titles: dict[UUID, str], sees_costs: bool) -> dict[str, Any]:
    row = {
        "entry": entry,
        "title": titles.get(entry.run),
        "published": _readable(partial(_epsilon, entry.published_rdp, entry)),
    }
    return row | {"cost": _readable(partial(_epsilon, entry.rdp, entry))} if sees_costs else row


def _epsilon(curve: list[float], entry: LedgerEntry) -> float:
    """What one entry costs by itself. Entries compose as curves; their ε do not add up."""
    conversion: Any = entry.group.account.conversion
    return float(epsilon_from_rdp(curve, entry.delta, np.asarray(entry.orders), conversion=conversion)[0])


def _capitalized(name: str) -> str:
    """``name`` as the first word of a line, but for ε, whose capital looks like an E."""
    return name if name.startswith("ε") else capfirst(name)


@require_safe
@study_page("accounting.view_ledger")
def ledger_check(request: SignedInRequest, study: Study) -> HttpResponse:
    """Are the chains of the study whole, as far as can be said at once? A part of the ledger's page, or a page."""
    chains = []
    for model in chained_models():
        name, rows = str(model._meta.verbose_name), model.head(study.pk).sequence
        check = Check(name, partial(model.chain_faults, study.pk, after=max(0, rows - ROWS_CHECKED)))
        chains.append((_capitalized(name), rows, check.faults()))
    context = {"study": study, "chains": chains, "checked": ROWS_CHECKED}
    if request.headers.get("HX-Request"):
        return render(request, "accounting/chains.html", context)
    return render_page(request, study, "accounting/ledger_check.html", context)


@require_safe
@study_page("accounting.view_private_costs")
def ledger_export(request: SignedInRequest, study: Study, kind: str) -> StreamingHttpResponse:
    """The whole ledger as a file, with every cost as a curve."""
    if kind not in FORMATS:
        raise Http404
    media_type, pieces = FORMATS[kind]
    response = StreamingHttpResponse(pieces(study), content_type=media_type)
    response["Content-Disposition"] = f'attachment; filename="{export_name(study, kind)}"'
    return response


@require_safe
@study_page("accounting.view_private_costs")
def ledger_report(request: SignedInRequest, study: Study, pk: UUID) -> HttpResponseBase:
    """What one run has cost, to be printed; a simulation leaves nothing to report."""
    run = get_object_or_404(Run.objects.select_related("account"), study=study, pk=pk, simulation=False)
    if run.account is None:
        raise Http404
    report = _readable(partial(run_report, run.account))
    if report is None:
        messages.error(request, _("There is no report: some of what this run has cost cannot be read any more."))
        return redirect(reverse("training:ledger", args=[study.slug], query={"run": run.pk}))
    return render_page(request, study, "accounting/report.html", {"run": run, "report": report})
