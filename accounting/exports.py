"""Exports of the release register, the shares and the budgets of groups. None contains individual charges."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.utils import timezone

from accounting.group_budgets import GroupBudget
from accounting.models import Release, ShareRecord
from common.spreadsheets import csv_pieces, json_pieces
from consent.models import Study

_RELEASE = ("sequence", "recorded_at", "kind", "run", "batch", "charge", "content", "recorded_by", "hash")
_BUDGET = ("level", "policy", "epsilon", "part", "run", "title", "share", "share_epsilon", "at")
_SHARE = ("sequence", "recorded_at", "kind", "subject", "purpose", "share", "limit", "recorded_by", "hash")


def export_name(study: Study, kind: str) -> str:
    """Return a file name with the study, the date and the extension."""
    return f"{study.slug}-register-{timezone.localdate():%Y-%m-%d}.{kind}"


def _rows(model: Any, columns: tuple[str, ...], study: Study) -> Iterator[dict[str, Any]]:
    for row in model.chain(study.pk).iterator(chunk_size=1000):
        values = {name: getattr(row, f"{name}_id" if name == "recorded_by" else name) for name in columns}
        yield values | {"recorded_at": row.recorded_at.isoformat()}


def export_json(study: Study) -> Iterator[str]:
    """Yield the register and the shares as one JSON document."""
    head = {"study": study.slug, "delta": study.delta, "rehearsal": study.rehearsal}
    lists = {"releases": _rows(Release, _RELEASE, study), "shares": _rows(ShareRecord, _SHARE, study)}
    return json_pieces(head, lists)


def export_csv(study: Study) -> Iterator[str]:
    """Yield the register as CSV, with the content of each release as JSON in one column."""
    rows = _rows(Release, _RELEASE, study)
    return csv_pieces(_RELEASE, (row | {"content": json.dumps(row["content"], ensure_ascii=False)} for row in rows))


def budgets_csv(budgets: Iterable[GroupBudget]) -> Iterator[str]:
    """Yield budgets of groups as CSV, with one row for each use and each total (used, reserved, left)."""
    return csv_pieces(_BUDGET, (row for budget in budgets for row in _budget_rows(budget)))


def _budget_rows(budget: GroupBudget) -> Iterator[dict[str, Any]]:
    group = {"level": budget.level, "policy": budget.policy, "epsilon": budget.epsilon}
    for use in budget.uses:
        # A spreadsheet must not evaluate any cell as a formula.
        title = f"'{use.title}" if use.title.lstrip()[:1] in ("=", "+", "-", "@") else use.title
        row = {"run": use.run, "title": title, "share": use.share, "share_epsilon": use.epsilon}
        yield {**group, "part": "use", **row, "at": use.at.isoformat()}
    for part in ("used", "reserved", "left"):
        shares = {"share": getattr(budget, f"share_{part}"), "share_epsilon": getattr(budget, f"epsilon_{part}")}
        yield {**group, "part": part, **shares}


FORMATS: dict[str, Callable[[Study], Iterator[str]]] = {"csv": export_csv, "json": export_json}
"""Functions that generate a file piece by piece, by file extension."""
