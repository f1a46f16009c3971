"""Report of a run's releases and costs, as a tagged PDF with the same facts and tables as its page."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import strip_tags
from django.utils.text import capfirst
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from accounting.models import Release
from common.templatetags.components import component_render
from common.templatetags.moments import moment_text
from consent.documents.typeset import tagged_pdf
from consent.wording.facts import study_text
from ipate_web.run_words import group_label, interval, learner_label, measures, percent, right_ones, translated, trimmed
from training.comparison import Fairness
from training.methods import method_of
from training.models import Run
from training.selectors import GroupSpending, without_model

TEMPLATE = Path(__file__).with_name("report.typ")
_DIGEST_LINE = 16

Table = dict[str, Any]


def report_pdf(
    run: Run,
    *,
    groups: Sequence[GroupSpending] | None,
    rows: Sequence[tuple[Release, str]] | None,
    cap: float,
    fairness: Fairness | None,
) -> bytes:
    """Return the report; ``groups`` and ``rows`` are None if the stored values can no longer be read.

    No account was charged more than ``cap``, in μ².
    """
    now = timezone.localtime()
    heading = _("Releases and costs of “%(title)s”") % {"title": run.title}
    context = {
        "title": ": ".join([_("Report"), run.title]),
        "author": run.study.controller,
        "date": {"year": now.year, "month": now.month, "day": now.day},
        "lang": (get_language() or settings.LANGUAGE_CODE).split("-")[0],
        "heading": heading,
        "facts": _facts(run, moment_text(now)),
        "sections": [
            *(*_measures(run), *_shares(run), *_charges(groups)),
            *(*_fairness(run, fairness), *_releases(rows, cap)),
        ],
    }
    return tagged_pdf(TEMPLATE, context)


def _facts(run: Run, made: str) -> list[tuple[str, str]]:
    mechanism = component_render(f"{method_of(run).parts}_vote", run=run)
    facts = [
        (_("Study"), study_text(run.study, "title").text),
        (_("Run"), str(run.pk)),
        (_("Share of every cap"), percent(run.share)),
        (_("Method"), capfirst(run.get_method_display())),
        (_("Mechanism"), " ".join(html.unescape(strip_tags(mechanism)).split())),
        ("δ", str(run.study.delta)),
    ]
    student = run.student
    if student is not None:
        name = {"number": student.version, "learner": learner_label(student.learner)}
        facts.append((_("Student"), _("version %(number)d: %(learner)s") % name))
        if student.accuracy is not None:
            ends = interval((student.card.get("evaluation") or {}).get("interval"))
            facts.append(
                (
                    _("Accuracy on the test data"),
                    f"{right_ones(student.accuracy, student.card.get('evaluation'))} ({ends})",
                )
            )
        facts.append(("SHA-256", student.digest))
    elif why := without_model(run):
        facts.append((_("Student"), translated(why)))
    return [*facts, (_("Report created"), made)]


def _section(heading: str, paragraphs: Sequence[str] = (), tables: Sequence[Table] = ()) -> list[dict[str, Any]]:
    return [{"heading": heading, "paragraphs": list(paragraphs), "tables": list(tables)}]


def _table(caption: str, columns: Sequence[str], widths: Sequence[float], rows: Sequence[Sequence[str]]) -> Table:
    return {"caption": caption, "columns": list(columns), "widths": list(widths), "rows": [list(row) for row in rows]}


def _measures(run: Run) -> list[dict[str, Any]]:
    evaluation = (run.student.card.get("evaluation") if run.student else None) or {}
    if not evaluation.get("majority"):
        return []
    rows = [[each.name, each.value, each.interval or "–", each.compared] for each in measures(evaluation)]
    columns = [_("Measure"), _("Value"), _("95 % interval"), _("For comparison")]
    return _section(
        _("Measures on the test data"), tables=[_table(_("Measures on the test data"), columns, [3, 1, 2, 4], rows)]
    )


def _shares(run: Run) -> list[dict[str, Any]]:
    shares = run.student.card.get("shares") if run.student else None
    if not shares:
        return []
    rows = [
        [
            row["class"],
            percent(row["people"]),
            interval(row["interval"]),
            percent(row["public"]),
            interval(row["public_interval"]) or "–",
        ]
        for row in shares["classes"]
    ]
    columns = [_("Class"), _("People"), _("95 % interval"), _("Public points"), _("95 % interval")]
    tables = [_table(_("Class shares"), columns, [2, 1, 2, 1, 2], rows)]
    return _section(_("Classes among the people"), [strip_tags(translated(shares["said"]))], tables)


def _charges(groups: Sequence[GroupSpending] | None) -> list[dict[str, Any]]:
    if groups is None:
        return _section(_("Charges"), [_("The cost of this run can no longer be read.")])
    if not groups:
        return []
    columns = [_("Group"), _("Promised ε"), _("Cap μ²"), _("Available to this run"), _("Used")]
    rows = [
        [
            group_label(group.name),
            trimmed(group.epsilon),
            number_format(group.cap, 4),
            percent(group.allowed_share),
            percent(group.spent_share),
        ]
        for group in groups
    ]
    return _section(_("Charges"), tables=[_table(_("Charges by group"), columns, [2, 1, 1, 1, 1], rows)])


def _fairness(run: Run, fairness: Fairness | None) -> list[dict[str, Any]]:
    if fairness is None:
        return []
    classes = [
        [each.name, str(each.points), percent(each.recall), interval(each.interval) or "–", percent(each.reference)]
        for each in fairness.classes
    ]
    columns = [_("Class"), _("Test points"), _("Recall"), _("Confidence interval"), _("Learned from true labels")]
    tables = [_table(_("Recall by class, lowest first"), columns, [2, 1, 1, 2, 1], classes)]
    if fairness.levels:
        levels = [
            [group_label(each.level), trimmed(each.epsilon), str(each.holders), percent(each.part), percent(each.used)]
            for each in fairness.levels
        ]
        columns = [_("Level"), "ε", _("Head count"), _("Share of total"), _("Share used")]
        tables.append(_table(_("Public information about levels"), columns, [2, 1, 1, 1, 1], levels))
    return _section(_("Fairness between classes"), [_(fairness.readable), _(fairness.unreadable)], tables)


def bounds_note(releases: Iterable[Release], cap: float) -> str:
    """Return the footnote about releases whose bounds exceed every cap (empty if there are none)."""
    beyond = [each for each in releases if each.charge > cap]
    if not beyond:
        return ""
    bounds = ", ".join(
        _("no. %(number)d: %(bound)s") % {"number": each.sequence, "bound": number_format(each.charge, 5)}
        for each in beyond
    )
    return _(
        "* No account can be charged more than its cap, which is at most %(cap)s. Based only on the noise and the "
        "number of questions, the bound would be higher (%(bounds)s)."
    ) % {"cap": number_format(cap, 5), "bounds": bounds}


def _charge(release: Release, cap: float) -> str:
    if not release.charge:
        return "0"
    return number_format(min(release.charge, cap), 5) + ("*" if release.charge > cap else "")


def _releases(rows: Sequence[tuple[Release, str]] | None, cap: float) -> list[dict[str, Any]]:
    if rows is None:
        return _section(_("Releases"), [_("These entries can no longer be read.")])
    if not rows:
        return _section(_("Releases"), [_("This run has not released anything yet.")])
    columns = [_("No."), _("Recorded on"), _("Kind"), _("Batch"), _("Maximum charge (μ²)"), _("Release checksum")]
    lines = [
        [
            str(release.sequence),
            moment_text(release.recorded_at, seconds=False),
            str(release.get_kind_display()),
            "–" if release.batch is None else str(release.batch),
            _charge(release, cap),
            _in_lines(digest) or "–",
        ]
        for release, digest in rows
    ]
    note = bounds_note((release for release, _digest in rows), cap)
    return _section(
        _("Releases"),
        [note] if note else [],
        tables=[_table(_("Releases with their checksums"), columns, [1, 3, 3, 1, 2, 4], lines)],
    )


def _in_lines(digest: str) -> str:
    """Return a digest as lines that fit into a column."""
    return "\n".join(digest[start : start + _DIGEST_LINE] for start in range(0, len(digest), _DIGEST_LINE))
