"""Anchor table: what iPATE reaches on known data, from numbers that other benchmarks have kept.

    python -m benchmarks.anchor

Writes docs/benchmarks.md. Measures nothing: every row names the command that measured it, with its seeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
TEXT = Path(__file__).with_name("anchor.md")
PROMISES: tuple[float | list[float], ...] = (0.1, 0.25, 1.0, [1.0, 2.0, 3.0])
HEADINGS = ("data", "what", "ours", "ε = 0.1", "0.25", "1", "1, 2, 3", "without noise", "published", "measured by")
Json = dict[str, Any]


@dataclass(frozen=True)
class Best:
    """A published number: value, ε, and where it is printed."""

    value: float
    epsilon: str
    source: str


@dataclass(frozen=True)
class Line:
    """A row of the table; numbers by promise, None where nothing was measured.

    measured: the command, and its seeds.
    """

    data: str
    what: str
    ours: str
    numbers: Sequence[float | None]
    without: float | None
    best: Best | None
    measured: str


SCATTER = "Tramèr and Boneh 2021 (arXiv 2011.11660), Table 1"
DIGITS = Best(98.7, "2.93", SCATTER)
FASHION = Best(89.7, "2.7", SCATTER)


def lines() -> Iterator[Line]:
    """All rows."""
    students, steps = _kept("students"), _kept("sgd")
    splits = "`benchmarks.students splits`, five splits, seed 1 + split"
    draws = "`benchmarks.sgd {}`, seeds 0 to 4"
    truth = _mean([row["students"]["consistency"]["test"] for row in _rows(students["splits"], "truth")])
    voted = [_student(students["splits"], "neighbours", promise) for promise in PROMISES]
    yield Line("MNIST", "right, %", "votes of all holders → student", voted, truth, DIGITS, splits)
    by_steps = [_of(steps["mnist"], promise, "accuracy") for promise in PROMISES]
    yield Line("MNIST", "right, %", "private steps, linear model", by_steps, None, DIGITS, draws.format("mnist"))
    if "fashion" in steps:
        found = [_of(steps["fashion"], promise, "accuracy") for promise in PROMISES]
        yield Line(
            "Fashion-MNIST", "right, %", "private steps, linear model", found, None, FASHION, draws.format("fashion")
        )
    pate = Best(83.7, "1.9", "PATE 2018, Table 1")
    for data, name, key, what, best in (
        ("Adult", "adult", "accuracy", "right, %", pate),
        ("Adult", "adult", "auc", "area", None),
        ("Diabetes", "diabetes", "auc", "area", None),
        ("SUPPORT2", "support2", "auc", "area", None),
        ("cardio", "cardio", "accuracy", "right, %", None),
    ):
        found = [_of(steps[name], promise, key) for promise in PROMISES]
        scores = [row["linear"]["test" if key == "accuracy" else "auc"] for row in _without(students["compared"], name)]
        scaled = _mean(scores, 100 if key == "accuracy" else 1)
        yield Line(data, what, "private steps, linear model", found, scaled, best, draws.format(name))


def document() -> str:
    """docs/benchmarks.md."""
    rows = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    for line in lines():
        numbers = [_shown(one) for one in (*line.numbers, line.without)]
        best = f"{line.best.value:g} at ε = {line.best.epsilon}: {line.best.source}" if line.best else "–"
        rows.append(f"| {line.data} | {line.what} | {line.ours} | {' | '.join(numbers)} | {best} | {line.measured} |")
    return TEXT.read_text().replace("{table}", "\n".join(rows))


def _kept(name: str) -> Json:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def _rows(rows: Sequence[Json], method: str) -> list[Json]:
    return [row for row in rows if row["method"] == method]


def _student(rows: Sequence[Json], method: str, promise: Any) -> float | None:
    found = [row for row in _rows(rows, method) if row["epsilon"] == promise]
    return _mean([row["students"]["consistency"]["test"] for row in found])


def _without(rows: Sequence[Json], name: str) -> list[Json]:
    return [row for row in _rows(rows, "no promise") if row["name"] == name]


def _of(rows: Sequence[Json], promise: Any, key: str) -> float | None:
    """Of rows of `benchmarks.sgd`, which are means over draws."""
    return _mean([row[key] for row in rows if row["epsilon"] == promise], 100 if key == "accuracy" else 1)


def _mean(values: Sequence[float], scale: float = 100) -> float | None:
    return scale * fmean(values) if values else None


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if value <= 1 else f"{value:.1f}"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
