"""A study's release register for auditors, readable even after tampering."""

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.template.defaultfilters import floatformat
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_safe

from accounting.exports import FORMATS, export_name
from accounting.group_budgets import largest_cap
from accounting.models import Release
from accounting.shares import Share, decimal_sum, shares
from accounting.verification import Check
from common.append_only import chained_models
from common.requests import SignedInRequest
from common.templatetags.moments import moment
from consent.models import Checkpoint, Study
from consent.permissions import chain_report, sees_people
from ipate_web.lists import Column, Filter, Listing, Reader, newest_or_oldest
from ipate_web.staff.charts import cost_chart
from ipate_web.staff.pages import attachment, file_name, render_page, streamed_attachment, study_page
from ipate_web.staff.report import bounds_note, report_pdf
from ipate_web.watching import alarms
from training.comparison import fairness_of
from training.models import Run
from training.selectors import run_cost_history, run_groups, run_totals, without_model
from training.watch import watch_of

#: Number of rows at the end of each chain that the page recomputes. ``ipate verify_ledger`` checks all rows.
ROWS_CHECKED = 1000
#: Exceptions raised while reading values that the site would never have written.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

Found = TypeVar("Found")


class RegisterReader(Reader):
    """Reader of a register, with the largest cap of any account."""

    @cached_property
    def cap(self) -> float:
        """Largest cap of the study's accounts."""
        return largest_cap(self.study)


def _kind(release: Release, _reader: Reader) -> str:
    what = release.content.get("what") or release.content.get("source")
    words = _(what) if what else _steps(release.content.get("steps"))
    return f"{release.get_kind_display()}: {words}" if words else str(release.get_kind_display())


def _run(release: Any, reader: Reader) -> SafeString | str:
    if release.title:
        address = reverse("staff:run", args=[reader.study.slug, release.run])
        return format_html('<a href="{}">{}</a>', address, release.title)
    return format_html("<code>{}</code>", release.run) if release.run else "–"


def _number(name: str) -> Callable[[Release, Reader], object]:
    """Return a function that renders the number ``name`` of a release's content as a cell."""
    return lambda release, _reader: "–" if (value := release.content.get(name)) is None else value


def _charge(release: Release, reader: Any) -> str:
    if not release.charge:
        return "0"
    mark = "*" if release.charge > reader.cap else ""
    return f"{floatformat(min(release.charge, reader.cap), 5)}{mark}"


def actor(release: Release, _reader: Reader) -> object:
    """Return the account that an entry of the register refers to, even after its deletion."""
    if release.recorded_by:
        return release.recorded_by
    number = release.recorded_by_id
    return _("deleted account %(number)s") % {"number": number} if number else "–"


def _runs(_releases: QuerySet[Release], reader: Reader) -> list[tuple[str, str]]:
    runs = Run.objects.filter(study=reader.study, rehearsal=False)
    return [(str(pk), title) for pk, title in runs.values_list("pk", "title")]


REGISTER = Listing(
    columns=(
        Column(
            "number",
            gettext_lazy("No."),
            lambda release, _reader: release.sequence,
            orders=newest_or_oldest("number", "sequence"),
            kind="number",
        ),
        Column(
            "written",
            gettext_lazy("Recorded on"),
            lambda release, _reader: moment(release.recorded_at),
            is_minor=True,
        ),
        Column("kind", gettext_lazy("Kind"), _kind),
        Column(
            "run",
            gettext_lazy("Run"),
            _run,
            kind="title",
            values={
                "title": Subquery(
                    Run.objects.filter(pk=OuterRef("run"), study=OuterRef("study"), rehearsal=False).values("title")
                )
            },
        ),
        Column(
            "batch",
            gettext_lazy("Batch"),
            lambda release, _reader: "–" if release.batch is None else release.batch,
            kind="number",
            is_minor=True,
        ),
        Column("queries", gettext_lazy("Queries"), _number("queries"), kind="number", is_minor=True),
        Column("labels", gettext_lazy("Labels"), _number("labels"), kind="number", is_minor=True),
        Column(
            "charge",
            gettext_lazy("Maximum charge (μ²)"),
            _charge,
            text=lambda release, reader: round(min(release.charge, reader.cap), 5),  # type: ignore[attr-defined]
            kind="number",
        ),
        Column("by", gettext_lazy("By"), actor, is_minor=True),
    ),
    filters=(
        Filter("run", "run", gettext_lazy("Run"), options=_runs),
        Filter("kind", "kind", gettext_lazy("Kind"), choices=Release.Kind.choices),
        Filter("since", "recorded_at__date__gte", gettext_lazy("From"), kind="day"),
        Filter("until", "recorded_at__date__lte", gettext_lazy("Until"), kind="day"),
    ),
    default="-number",
    ties=(),
)


@require_safe
@study_page("accounting.view_ledger")
def ledger(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """Show all releases, or those of one run or kind, and the shares of every cap."""
    titles = dict(Run.objects.filter(study=study, rehearsal=False).values_list("pk", "title"))
    reader = RegisterReader(study, request.can)
    releases = Release.objects.filter(study=study)
    found = REGISTER.page(request, releases.select_related("recorded_by"), reader)
    if (file := found.file(f"{study.slug}-releases")) and (read := _readable(file.getvalue)) is not None:
        file.streaming_content = [read]
        return file
    granted = _readable(partial(_shares, study, titles))
    context: dict[str, Any] = {
        "list": found,
        "rows": _readable(lambda: found.rows),
        "bounds_note": _readable(lambda: bounds_note(found.page, reader.cap)),
        "chosen_run": found.chosen.get("run"),
        "runs": run_totals(study),
        "entries": releases.count(),
        "shares": granted,
        "share_committed": decimal_sum(*(share.committed for share, _title in granted or [])),
    }
    return render_page(request, study, "staff/ledger/ledger.html", context)


def _steps(number: object) -> str:
    """Return the number of gradient steps in a release, in words; empty if it has none."""
    if not isinstance(number, int):
        return ""
    if number == 0:
        return _("the charge for all of the run's steps")
    return ngettext("%(number)d step", "%(number)d steps", number) % {"number": number}


def _shares(study: Study, titles: dict[UUID, str]) -> list[tuple[Share, str]]:
    """Return a study's shares with the titles of their runs. Raises one of ``UNREADABLE`` if any is not a number."""
    rows = list(shares(study).values())
    if not all(math.isfinite(number or 0) for share in rows for number in (share.granted, share.limit, share.used)):
        raise ValueError
    return [(share, titles.get(share.subject, "")) for share in rows]


def _readable(find: Callable[[], Found]) -> Found | None:
    """Return the result of ``find()``, or None if a stored value cannot be read."""
    try:
        return find()
    except UNREADABLE:
        return None


@require_safe
@study_page("accounting.view_ledger")
def ledger_check(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the state of everything that auditors rely on. For htmx, show only whether the chains are intact.

    Only the last rows of each chain are checked.
    """
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
    context |= {
        "state": watch_of(study, sees_all=sees_all),
        "of_chains": _("of %(number)d") % {"number": len(chains)},
        "checkpoint": Checkpoint.objects.last(),
        # Findings about the study itself appear with its state on all of its pages.
        "alarms": [alarm for part, alarm in alarms().items() if part != "verification"],
        "now": timezone.now(),
    }
    return render_page(request, study, "staff/ledger/check.html", context)


@require_safe
@study_page("accounting.view_ledger")
def ledger_export(request: SignedInRequest, study: Study, kind: str) -> StreamingHttpResponse:
    """Download the whole register as a file."""
    return streamed_attachment(study, FORMATS.get(kind), export_name(study, kind))


@require_safe
@study_page("accounting.view_ledger")
def ledger_report(request: SignedInRequest, study: Study, pk: UUID) -> HttpResponseBase:
    """Show a printable report of one run's releases and costs. There is none for a rehearsal."""
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
    """Return the same report as a PDF."""
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
    """Return a run's releases with the digests of their content; None if these can no longer be read."""
    releases = Release.objects.filter(study=run.study, run=run.pk).order_by("sequence")
    return _readable(lambda: [(release, release.content.get("digest", "")) for release in releases])


def _charges(run: Run) -> dict[str, Any]:
    """Return the context of the component ``charges_of_run``; empty for a run that was never approved."""
    groups, history = run_groups(run), run_cost_history(run)
    return {"groups": groups, "costs": cost_chart(history, groups), "history": history}
