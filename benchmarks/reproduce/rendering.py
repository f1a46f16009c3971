"""Tables as text: for the terminal, and docs/reproduction.md from the results that are kept."""

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
"""Further columns of tables for which a second ensemble votes."""
BESIDE = ("accounts", "every holder votes")
Json = dict[str, Any]


def number(value: float | None, spread: float | None = None) -> str:
    """Four digits or so; an empty text for None.

    >>> number(2.51598, 0.38464), number(1333.0), number(None), number(0.00123), number(97.4)
    ('2.516 ± 0.385', '1,333', '', '0.0012', '97.4')
    """
    if value is None:
        return ""
    shown = _digits(value)
    return f"{shown} ± {_digits(spread)}" if spread else shown


def difference(row: Row) -> str:
    """The measured number less the published one, with its sign.

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
    """Whether a second ensemble votes for the table, too."""
    return any(fields.get("weaker") is not None for case in cases for fields in case["rows"])


def lines_of(table: str, cases: Sequence[Json], others: dict[str, dict[str, float]]) -> list[list[str]]:
    """Return a table's cells, a case's setting in its first row; others: every holder's vote, by promises."""
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
    """Numbers of every holder's vote, by promises."""
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
    """docs/reproduction.md."""
    about, remarks = remarks_read()
    parts = [about, _met(folder)]
    parts.append("\n".join(f"- [{name}](#{name.replace('.', '')}): {table.title}" for name, table in TABLES.items()))
    parts += [_section(table, _cases(table, folder), every_holder(folder), remarks) for table in TABLES.values()]
    return "\n\n".join(parts) + "\n"


def _met(folder: Path) -> str:
    """How many printed cells of each table are met, to which side all of them differ, and why not all are met."""
    rows = [
        "| table | printed cells | met | above | below | lower / higher | mean difference | why |",
        "|---|---|---|---|---|---|---|---|",
    ]
    tallies = []
    for table in TABLES.values():
        cases = _cases(table, folder)
        found = tallied(table.name, cases)
        if not found.total:
            continue
        tallies.append(found)
        link = f"[{table.name}](#{table.name.replace('.', '')})"
        rows.append(_tally_row(link, found, WHY.get(table.name, "")))
        ensembles = [("", False), (", teachers as printed", True)] if has_weaker(cases) else [("", False)]
        for named, weaker in ensembles:
            if weaker:
                rows.append(_tally_row(f"{table.name}{named}", tallied(table.name, cases, weaker=True)))
            variants = [(one, tallied(table.name, cases, variant=one, weaker=weaker)) for one in VARIANTS]
            rows += [_tally_row(f"– {one}", of) for one, of in variants if 0 < of.total < found.total - 2]
    totals = [str(sum(getattr(one, name) for one in tallies)) for name in ("total", "met", "above", "below")]
    sides = " / ".join(str(sum(getattr(one, name) for one in tallies)) for name in ("lower", "higher"))
    rows.append(f"| **all that are measured** | {' | '.join(totals)} | {sides} | | |")
    rows += [f"| {name} | {cells} | not measured | | | | | {why} |" for name, cells, why in unmeasured()]
    return "## Met or not\n\n" + "\n".join(rows)


def _tally_row(name: str, tally: Tally, why: str = "") -> str:
    counts = (str(tally.total), *(str(one or "") for one in (tally.met, tally.above, tally.below)))
    means = [] if tally.share is None else [f"{100 * tally.share:+.2g} %"]
    means += [] if tally.points is None else [f"{tally.points:+.1f} points"]
    return f"| {name} | {' | '.join(counts)} | {tally.lower} / {tally.higher} | {', '.join(means)} | {why} |"


def remarks_read() -> tuple[str, dict[str, str]]:
    """The text about all tables, and one for each table that has any, from remarks.md."""
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
    if cases:
        headings = headings_of(cases)
        rows = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
        rows += ["| " + " | ".join(line) + " |" for line in lines_of(table.name, cases, others)]
        parts.append("\n".join(rows))
    if remark := remarks.get(table.name):
        parts.append(remark)
    if missing or not planned:
        parts.append(f"Not measured yet: {'; '.join(missing) if missing else 'all of it'}.")
    if cases and not table.derived:
        parts.append(_how(cases))
    return "\n\n".join(parts)


def _how(cases: Sequence[Json]) -> str:
    environments = []
    for case in cases:
        said = ", ".join(f"{key} {value}" for key, value in case["environment"].items())
        if said not in environments:
            environments.append(said)
    seconds = sum(case["processor_seconds"] for case in cases)
    return f"{seconds:,.0f} processor seconds beside what the cache held. {'; '.join(environments)}."


def _digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 1 if abs(value) >= 10 else 3 if abs(value) >= 0.01 else 4
    if abs(value) >= 10 and round(value, 1) != round(value, 2):
        decimals = 2
    return f"{value:.{decimals}f}"
