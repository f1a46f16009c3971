"""The release register and the shares of a study as files, for auditors. Who was charged is in neither."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from django.utils import timezone

from accounting.models import Release, ShareRecord
from common.pieces import csv_pieces, json_pieces
from consent.models import Study

_RELEASE = ("sequence", "recorded_at", "kind", "run", "batch", "charge", "content", "recorded_by", "hash")
_SHARE = ("sequence", "recorded_at", "kind", "subject", "purpose", "share", "limit", "recorded_by", "hash")


def export_name(study: Study, kind: str) -> str:
    """The name of the file: study, date, ending."""
    return f"{study.slug}-register-{timezone.localdate():%Y-%m-%d}.{kind}"


def _rows(model: Any, columns: tuple[str, ...], study: Study) -> Iterator[dict[str, Any]]:
    for row in model.chain(study.pk).iterator(chunk_size=1000):
        values = {name: getattr(row, f"{name}_id" if name == "recorded_by" else name) for name in columns}
        yield values | {"recorded_at": row.recorded_at.isoformat()}


def export_json(study: Study) -> Iterator[str]:
    """The register and the shares as one JSON document."""
    head = {"study": study.slug, "delta": study.delta, "rehearsal": study.rehearsal}
    lists = {"releases": _rows(Release, _RELEASE, study), "shares": _rows(ShareRecord, _SHARE, study)}
    return json_pieces(head, lists)


def export_csv(study: Study) -> Iterator[str]:
    """The register as a table; what left is one column of JSON."""
    rows = _rows(Release, _RELEASE, study)
    return csv_pieces(_RELEASE, (row | {"content": json.dumps(row["content"], ensure_ascii=False)} for row in rows))


FORMATS: dict[str, Callable[[Study], Iterator[str]]] = {"csv": export_csv, "json": export_json}
"""What writes the file piece by piece, by its ending."""
