"""The release register and the shares of a study as files, for auditors. Who was charged is in neither."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.utils import timezone

from accounting.models import Release, ShareRecord
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
    yield json.dumps(head)[:-1]
    for name, model, columns in (("releases", Release, _RELEASE), ("shares", ShareRecord, _SHARE)):
        yield f', "{name}": ['
        for place, row in enumerate(_rows(model, columns, study)):
            yield (", " if place else "") + json.dumps(row, default=str, ensure_ascii=False)
        yield "]"
    yield "}\n"


def export_csv(study: Study) -> Iterator[str]:
    """The register as a table; what left is one column of JSON."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _RELEASE)
    writer.writeheader()
    for row in _rows(Release, _RELEASE, study):
        writer.writerow(row | {"content": json.dumps(row["content"], ensure_ascii=False)})
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


#: Ending → media type, and what writes the file piece by piece.
FORMATS: dict[str, tuple[str, Callable[[Study], Iterable[str]]]] = {
    "csv": ("text/csv; charset=utf-8", export_csv),
    "json": ("application/json", export_json),
}
