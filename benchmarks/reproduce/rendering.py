"""Tables as text, for the terminal and for docs/reproduction.md, from the stored results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.reproduce.registry import TABLES, Table
from benchmarks.reproduce.results import RESULTS, Row, kept, measured
from benchmarks.reproduce.tables.holders import measured_elsewhere
from benchmarks.reproduce.verdicts import VARIANTS, WHY, Tally, judged, tallied, unmeasured

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reproduction.md"
REMARKS = Path(__file__).with_name("remarks.md")
HEADINGS = ("setting", "quantity", "published", "here", "difference", "verdict")
WEAKER = ("teachers as printed", "difference", "verdict")
"""Additional columns of tables with votes of a second ensemble."""
BESIDE = ("accounts", "every holder votes")
Json = dict[str, Any]


def number(value: float | None, spread: float | None = None) -> str:
    """Return a number with about four digits, or an empty text for None.

    >>> number(2.51598, 0.38464), number(1333.0), number(None), number(0.00123), number(97.4)
    ('2.516 ± 0.385', '1,333', '', '0.0012', '97.4')
    """
    if value is None:
        return ""
    shown = _digits(value)
    return f"{shown} ± {_digits(spread)}" if spread else shown


def difference(row: Row) -> str:
    """Return the measured number minus the published one, with its sign.

    >>> difference(Row("labels", 1333.0, 255.0)), difference(Row("ε", 2.04, 2.0486)), difference(Row("ε", None, 1.0))
    ('-1,078', '+0.0086', '')
    """
    if row.difference is None:
        return ""
    return f"{row.difference:+,.0f}" if abs(row.difference) >= 100 else f"{row.difference:+.2g}"


def headings_of(cases: Sequence[Json]) -> tuple[str, ...]:
    """Return the columns of a table."""
    return (*HEADINGS, *(WEAKER if has_weaker(cases) else ()), *BESIDE)


def has_weaker(cases: Sequence[Json]) -> bool:
    """Return whether there are also votes of a second ensemble for the table."""
    return any(fields.get("weaker") is not None for case in cases for fields in case["rows"])


def lines_of(table: str, cases: Sequence[Json], others: dict[str, dict[str, float]]) -> list[list[str]]:
    """Return a table's cells; each case's first row shows its setting. others: every holder's vote, by promises."""
    return [
        [case["setting"] if position == 0 else "", *_cells(table, case, Row(**fields), has_weaker(cases), others)]
        for case in cases
        for position, fields in enumerate(case["rows"])
    ]


def _cells(table: str, case: Json, row: Row, weaker: bool, others: dict[str, dict[str, float]]) -> list[str]:
    cells = [row.quantity, number(row.published, row.spread)]
    for one in (row, row.by_weaker) if weaker else (row,):
        cells += [number(one.here, one.here_spread), difference(one), judged(table, case, one)]
    return [*cells, number(row.accounts), number(others.get(case["promises"], {}).get(row.holders or ""))]


def every_holder(folder: Path = RESULTS) -> dict[str, dict[str, float]]:
    """Return the numbers of every holder's vote, by promises."""
    found = kept("every-holder", folder)
    return measured_elsewhere() | {
        case["setting"]: {row["quantity"]: row["here"] for row in case["rows"]} for case in found
    }


def text_of(table: str, cases: Sequence[Json], folder: Path = RESULTS) -> str:
    """Return a table for the terminal."""
    lines = [list(headings_of(cases)), *lines_of(table, cases, every_holder(folder))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def document(folder: Path = RESULTS) -> str:
    """Return docs/reproduction.md: overview, reading guide, and a section per table with its numbers folded."""
    about, remarks = remarks_read()
    parts = [about, _overview(folder), "## How to read the tables", remarks["method"], _by_variant(folder)]
    parts += [_section(table, _cases(table, folder), every_holder(folder), remarks) for table in TABLES.values()]
    return "\n\n".join(parts) + "\n"


def _overview(folder: Path) -> str:
    """Return a table of the printed cells that are met for each table, with the reasons for all others."""
    rows = ["| table | printed | met | above | below | why |", "|---|---|---|---|---|---|"]
    found = [(table, tallied(table.name, _cases(table, folder))) for table in TABLES.values()]
    for table, tally in found:
        link = f"[{table.name}](#{table.name.replace('.', '')})"
        if tally.total:
            counts = (str(tally.total), *(str(one or "") for one in (tally.met, tally.above, tally.below)))
            rows.append(f"| {link}: {table.title} | {' | '.join(counts)} | {WHY.get(table.name, '')} |")
    totals = [str(sum(getattr(tally, name) for _, tally in found)) for name in ("total", "met", "above", "below")]
    rows.append(f"| **all measured** | {' | '.join(totals)} | |")
    others = ", ".join(f"[{t.name}](#{t.name.replace('.', '')})" for t, tally in found if not tally.total)
    missing = ["| table | printed | why |", "|---|---|---|"]
    missing += [f"| {name} | {cells or ''} | {why} |" for name, cells, why in unmeasured()]
    return "\n\n".join(
        [
            "## Overview",
            "\n".join(rows),
            f"Without printed numbers to compare: {others}.",
            _folded("Tables we did not measure, and why", "\n".join(missing)),
        ]
    )


def _by_variant(folder: Path) -> str:
    """Return the number of met cells and the mean difference for each table, by ensemble and variant."""
    rows = [
        "| table | printed | met | above | below | lower / higher | mean difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for table in TABLES.values():
        cases = _cases(table, folder)
        found = tallied(table.name, cases)
        for named, weaker in (("", False), (", teachers as printed", True)):
            if not found.total or (weaker and not has_weaker(cases)):
                continue
            rows.append(_tally_row(f"{table.name}{named}", tallied(table.name, cases, weaker=weaker)))
            variants = [(one, tallied(table.name, cases, variant=one, weaker=weaker)) for one in VARIANTS]
            rows += [_tally_row(f"– {one}", of) for one, of in variants if 0 < of.total < found.total - 2]
    return _folded("Met cells by ensemble and variant", "\n".join(rows))


def _folded(title: str, text: str) -> str:
    return f'<details markdown="1"><summary>{title}</summary>\n\n{text}\n\n</details>'


def _tally_row(name: str, tally: Tally) -> str:
    counts = (str(tally.total), *(str(one or "") for one in (tally.met, tally.above, tally.below)))
    means = [] if tally.share is None else [f"{100 * tally.share:+.2g} %"]
    means += [] if tally.points is None else [f"{tally.points:+.1f} points"]
    return f"| {name} | {' | '.join(counts)} | {tally.lower} / {tally.higher} | {', '.join(means)} |"


def remarks_read() -> tuple[str, dict[str, str]]:
    """Return the text about all tables, and texts about single tables, from remarks.md."""
    about, *sections = REMARKS.read_text().split("\n## ")
    named = (section.split("\n", 1) for section in sections)
    return about.strip(), {name: text.strip() for name, text in named}


def _cases(table: Table, folder: Path) -> list[Json]:
    if table.derived:
        return [measured(case) for case in table.cases(False)]
    return kept(table.name, folder)


def _section(table: Table, cases: Sequence[Json], others: dict[str, dict[str, float]], remarks: dict[str, str]) -> str:
    parts = [f"## {table.name}", f"{table.title}. {table.source}."]
    planned = [case.setting for case in table.cases(False)]
    missing = [setting for setting in planned if setting not in {case["setting"] for case in cases}]
    if remark := remarks.get(table.name):
        parts.append(remark)
    if missing or not planned:
        parts.append(f"Not measured yet: {'; '.join(missing) if missing else 'all of it'}.")
    if cases:
        headings = headings_of(cases)
        rows = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
        rows += ["| " + " | ".join(line) + " |" for line in lines_of(table.name, cases, others)]
        how = "" if table.derived else f"\n\n{_how(cases)}"
        parts.append(_folded(f"{len(rows) - 2} numbers", "\n".join(rows) + how))
    return "\n\n".join(parts)


def _how(cases: Sequence[Json]) -> str:
    environments = []
    for case in cases:
        said = ", ".join(f"{key} {value}" for key, value in case["environment"].items())
        if said not in environments:
            environments.append(said)
    seconds = sum(case["processor_seconds"] for case in cases)
    return f"{seconds:,.0f} processor seconds, not counting cached votes. {'; '.join(environments)}."


def _digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 1 if abs(value) >= 10 else 3 if abs(value) >= 0.01 else 4
    if abs(value) >= 10 and round(value, 1) != round(value, 2):
        decimals = 2
    return f"{value:.{decimals}f}"
