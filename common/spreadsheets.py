"""Tables and lists that the project exports: CSV that is safe in spreadsheets, and long files in pieces."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet would evaluate a cell. Numbers, ranges of numbers and single signs are not formulas.

    >>> is_formula("=1+1"), is_formula("@SUM(A1)"), is_formula("-1.5"), is_formula("+"), is_formula("<=50K")
    (True, True, False, False, False)
    """
    if len(text) < 2 or not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return False
    try:
        for part in text.split(" – "):
            float(part)
    except ValueError:
        return True
    return False


def harmless(cell: object) -> str:
    """Return a cell in a form that no spreadsheet evaluates as a formula.

    >>> harmless("=1+1"), harmless(3)
    ("'=1+1", '3')
    """
    text = str(cell)
    return f"'{text}" if is_formula(text) else text


class CsvWriter:
    r"""CSV writer that escapes cells that a spreadsheet would evaluate as formulas.

    >>> import sys
    >>> CsvWriter(sys.stdout, lineterminator="\n").writerow(["=1+1", "-5 – 3", None, 0.5])
    '=1+1,-5 – 3,,0.5
    """

    def __init__(self, file: Any, *, lineterminator: str = "\r\n") -> None:
        self._writer = csv.writer(file, lineterminator=lineterminator)

    def writerow(self, cells: Iterable[object]) -> None:
        self._writer.writerow(["" if cell is None else cell if _is_number(cell) else harmless(cell) for cell in cells])

    def writerows(self, rows: Iterable[Iterable[object]]) -> None:
        for cells in rows:
            self.writerow(cells)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float)


def csv_pieces(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    r"""Yield a CSV table with a header, piece by piece.

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
    r"""Yield a JSON object piece by piece: its leading fields, then the lists by name.

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
