"""The release register of a study, as an auditor reads it: also after somebody has tampered with it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from accounting.exports import FORMATS, export_name
from accounting.group_budgets import largest_cap
from accounting.models import Release
from accounting.shares import Share, decimal_sum, shares
from accounting.verification import Check
from common.append_only import chained_models
from common.requests import SignedInRequest
from consent.disclosure import chain_report, sees_people
from consent.models import Study
from ipate_web.staff.charts import cost_chart
from ipate_web.staff.pages import attachment, file_name, paginate, render_page, streamed_attachment, study_page
from ipate_web.staff.report import bounds_note, report_pdf
from training.comparison import fairness_of
from training.models import Run
from training.selectors import run_cost_history, run_groups, run_totals
from training.services.publication import without_model

#: How many rows at the end of each chain its page computes anew; ``ipate verify_ledger`` looks at all.
ROWS_CHECKED = 1000
#: What may be raised by values that the site never wrote.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

Found = TypeVar("Found")


@dataclass(frozen=True)
class RegisterRow:
    """One release as the page shows it; None where it has no such number."""

    release: Release
    title: str
    what: str
    queries: int | None
    labels: int | None


@require_safe
@study_page("accounting.view_ledger")
def ledger(request: SignedInRequest, study: Study) -> HttpResponse:
    """All releases, or those of one run or one kind, and the shares of every cap."""
    titles = {run.pk: run.title for run in Run.objects.filter(study=study, rehearsal=False)}
    chosen_run = _run_id(request.GET.get("run", ""), titles)
    kind = request.GET.get("kind", "")
    releases: QuerySet[Release] = Release.objects.filter(study=study).select_related("recorded_by")
    if chosen_run:
        releases = releases.filter(run=chosen_run)
    if kind in Release.Kind.values:
        releases = releases.filter(kind=kind)
    page = paginate(request, releases.order_by("-sequence"))
    granted, cap = _readable(partial(_shares, study, titles)), largest_cap(study)
    context: dict[str, Any] = {
        "page": page,
        "rows": _readable(lambda: [_row(release, titles) for release in page]),
        "cap": cap,
        "bounds_note": _readable(lambda: bounds_note(page, cap)),
        "titles": titles,
        "chosen_run": chosen_run,
        "kinds": Release.Kind.choices,
        "kind": kind,
        "runs": run_totals(study),
        "entries": Release.objects.filter(study=study).count(),
        "shares": granted,
        "share_committed": decimal_sum(*(share.committed for share, _title in granted or [])),
    }
    return render_page(request, study, "staff/ledger/ledger.html", context)


def _row(release: Release, titles: dict[UUID, str]) -> RegisterRow:
    content = release.content
    what = content.get("what") or content.get("source")
    return RegisterRow(
        release,
        title=titles.get(release.run, "") if release.run else "",
        what=_(what) if what else _steps(content.get("steps")),
        queries=content.get("queries"),
        labels=content.get("labels"),
    )


def _steps(number: object) -> str:
    """Number of gradient steps that a release holds, in words; nothing where it holds none."""
    if not isinstance(number, int):
        return ""
    if number == 0:
        return _("the charge for all of the run's steps")
    return ngettext("%(number)d step", "%(number)d steps", number) % {"number": number}


def _shares(study: Study, titles: dict[UUID, str]) -> list[tuple[Share, str]]:
    """The shares of a study with the titles of their runs; raises one of ``UNREADABLE`` where one is no number."""
    rows = list(shares(study).values())
    if not all(math.isfinite(number or 0) for share in rows for number in (share.granted, share.limit, share.used)):
        raise ValueError
    return [(share, titles.get(share.subject, "")) for share in rows]


def _readable(find: Callable[[], Found]) -> Found | None:
    """Result of ``find()``; None if a stored value cannot be read."""
    try:
        return find()
    except UNREADABLE:
        return None


def _run_id(text: str, known: dict[UUID, str]) -> UUID | None:
    """Id of the run in the filter, if the study has it."""
    return next((pk for pk in known if str(pk) == text), None)


@require_safe
@study_page("accounting.view_ledger")
def ledger_check(request: SignedInRequest, study: Study) -> HttpResponse:
    """Are the chains of the study whole, as far as can be said at once? A part of the register's page, or a page."""
    sees_all = sees_people(request.user, study)
    chains = []
    for model in chained_models():
        after = max(0, model.head(study.pk).sequence - ROWS_CHECKED)
        check = Check(str(model._meta.verbose_name), partial(model.chain_faults, study.pk, after=after))
        chains.append(chain_report(model, study.pk, check.faults, sees_people=sees_all))
    whole = sum(chain.is_whole and not chain.faults for chain in chains)
    context = {"study": study, "chains": chains, "whole": whole, "checked": ROWS_CHECKED}
    if request.headers.get("HX-Request"):
        return render(request, "staff/ledger/chains.html", context)
    return render_page(request, study, "staff/ledger/check.html", context)


@require_safe
@study_page("accounting.view_ledger")
def ledger_export(request: SignedInRequest, study: Study, kind: str) -> StreamingHttpResponse:
    """The whole register as a file."""
    return streamed_attachment(study, FORMATS.get(kind), export_name(study, kind))


@require_safe
@study_page("accounting.view_ledger")
def ledger_report(request: SignedInRequest, study: Study, pk: UUID) -> HttpResponseBase:
    """Report of what one run has released and cost, to be printed; a rehearsal leaves nothing to report."""
    run = _reported(study, pk)
    rows, cap = _entries(run), largest_cap(study)
    context: dict[str, Any] = {
        "run": run,
        "now": timezone.now(),
        "rows": rows,
        "cap": cap,
        "bounds_note": _readable(lambda: bounds_note([release for release, _digest in rows or []], cap)),
        "without_model": without_model(run),
        "fairness": _readable(partial(fairness_of, run, run.student)),
        **(_readable(partial(_charges, run)) or {}),
    }
    return render_page(request, study, "staff/ledger/report.html", context)


@require_safe
@study_page("accounting.view_ledger")
def ledger_report_pdf(request: SignedInRequest, study: Study, pk: UUID) -> HttpResponseBase:
    """The same report as a PDF, to be kept."""
    run = _reported(study, pk)
    content = report_pdf(
        run,
        groups=_readable(partial(run_groups, run)),
        rows=_entries(run),
        cap=largest_cap(study),
        fairness=_readable(partial(fairness_of, run, run.student)),
    )
    return attachment(content, f"{file_name(run)}-report.pdf", "application/pdf")


def _reported(study: Study, pk: UUID) -> Run:
    return get_object_or_404(Run.objects.select_related("study", "student"), study=study, pk=pk, rehearsal=False)


def _entries(run: Run) -> list[tuple[Release, str]] | None:
    """Releases of a run with the digests of what left; None where they cannot be read any more."""
    releases = Release.objects.filter(study=run.study, run=run.pk).order_by("sequence")
    return _readable(lambda: [(release, release.content.get("digest", "")) for release in releases])


def _charges(run: Run) -> dict[str, Any]:
    """Context of the component ``charges_of_run``; nothing of a run that was never approved."""
    groups, history = run_groups(run), run_cost_history(run)
    return {"groups": groups, "costs": cost_chart(history, groups), "history": history}
