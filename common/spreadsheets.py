"""CSV that spreadsheets open as text: every table that the project writes goes through `CsvWriter`."""

import csv
from collections.abc import Iterable
from typing import Any


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would calculate what a cell says; numbers, their ranges and single signs are none.

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
    """Return a cell that no spreadsheet takes for a formula.

    >>> harmless("=1+1"), harmless(3)
    ("'=1+1", '3')
    """
    text = str(cell)
    return f"'{text}" if is_formula(text) else text


class CsvWriter:
    r"""Writer of CSV without a cell that a spreadsheet takes for a formula.

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
