"""Rows of any number as files, written piece by piece."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from common.spreadsheets import CsvWriter


def csv_pieces(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    r"""A table with a header.

    >>> "".join(csv_pieces(("day", "kind"), [{"day": "2026-01-01", "kind": "given"}]))
    'day,kind\r\n2026-01-01,given\r\n'
    """
    buffer = io.StringIO()
    writer = CsvWriter(buffer)
    writer.writerow(columns)
    for row in rows:
        writer.writerow(row.get(column, "") for column in columns)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def json_pieces(head: Mapping[str, Any], lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[str]:
    r"""A JSON object: what heads it, then the lists by name.

    >>> "".join(json_pieces({"study": "ward"}, {"releases": [{"sequence": 1}, {"sequence": 2}]}))
    '{"study": "ward", "releases": [{"sequence": 1}, {"sequence": 2}]}\n'
    """
    yield json.dumps(head)[:-1]
    for name, rows in lists.items():
        yield f', "{name}": ['
        for place, row in enumerate(rows):
            yield (", " if place else "") + json.dumps(row, default=str, ensure_ascii=False)
        yield "]"
    yield "}\n"
