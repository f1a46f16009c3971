"""Anchor table: iPATE's results on known data, from numbers stored by other benchmarks.

    python -m benchmarks.anchor

Writes docs/benchmarks.md without measuring anything: every row names the command and seeds that measured it.
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
PROMISES: tuple[float | list[float], ...] = (0.1, 0.25, 1.0, 3.0, [1.0, 2.0, 3.0])
HEADINGS = ("data", "measure", "ours", "ε = 0.1", "0.25", "1", "3", "1, 2, 3", "without noise", "published", "command")
Json = dict[str, Any]


@dataclass(frozen=True)
class Best:
    """A published number, with its value, ε and source."""

    value: float
    epsilon: str
    source: str


@dataclass(frozen=True)
class Line:
    """A row of the table, with numbers by promise; None if not measured.

    measured: the command and its seeds.
    """

    data: str
    what: str
    ours: str
    numbers: Sequence[float | str | None]
    without: float | None
    best: Best | None
    measured: str


SCATTER = "Tramèr and Boneh 2021 (arXiv 2011.11660)"
DIGITS = Best(98.7, "2.93", SCATTER)
FASHION = Best(89.7, "3", SCATTER)
TREES = Best(83.7, "1.9", "PATE 2018, Table 1")
PHOTOGRAPHS = Best(72.3, "1", "Tang et al. 2023 (arXiv 2306.06076)")
PRETRAINED = Best(94.7, "1", "De et al. 2022 (arXiv 2204.13650), learned from ImageNet before")
VOTES = "votes of all holders"
LINEAR = "private steps, linear model"
DRAWS = "`benchmarks.sgd {}`, seeds 0 to 4"


def lines() -> Iterator[Line]:
    """Yield all rows."""
    students, steps = _kept("students"), _kept("sgd")
    splits = "`benchmarks.students splits`, five splits, seed 1 + split"
    truth = _mean([row["students"]["consistency"]["test"] for row in _rows(students["splits"], "truth")])
    voted = [_student(students["splits"], "neighbours", promise) for promise in PROMISES]
    yield Line("MNIST", "accuracy, %", f"{VOTES} → student", voted, truth, DIGITS, splits)
    for data, name, best in (("MNIST", "mnist", DIGITS), ("Fashion-MNIST", "fashion", FASHION)):
        for method, ours in (("neighbours", VOTES), ("sgd", "private steps")):
            rows = [row for row in _rows(students["thorough"], method) if row["name"] == name]
            if rows:
                numbers = [_student(rows, method, promise, runs=5) for promise in PROMISES]
                measured = splits.replace("splits`", "thorough`")
                yield Line(data, "accuracy, %", f"{ours} → thorough student", numbers, None, best, measured)
        yield _line(data, name, "accuracy", best, steps[name], DRAWS.format(name))
    for data, name, key, best in (
        ("Adult", "adult", "accuracy", TREES),
        ("Adult", "adult", "auc", None),
        ("Diabetes", "diabetes", "auc", None),
        ("SUPPORT2", "support2", "auc", None),
        ("cardio", "cardio", "accuracy", None),
    ):
        yield _line(data, name, key, best, steps[name], DRAWS.format(name))
    for data, name, best in (
        ("SMS spam, words", "sms", None),
        ("SMS spam, MiniLM", "sms-encoder", None),
        ("AG News, words", "news", None),
        ("AG News, MiniLM", "news-encoder", None),
        ("CIFAR-10, wavelets", "cifar10", PHOTOGRAPHS),
        ("CIFAR-10, EfficientNet-Lite0, 112 pixels", "cifar10-encoder", PRETRAINED),
    ):
        rows = [row for row in steps["beyond"] if row["data"] == name]
        yield _line(data, name, "accuracy", best, rows, DRAWS.format("beyond"))
    yield from _photographs(_kept("encoders")["cifar10"])


def _line(data: str, name: str, key: str, best: Best | None, rows: Sequence[Json], measured: str) -> Line:
    """Return a row from `benchmarks.sgd`."""
    what = "accuracy, %" if key == "accuracy" else "area"
    numbers = [_of(rows, promise, key) for promise in PROMISES]
    kept = [row for row in _kept("sgd").get("noiseless", []) if row["data"] == name]
    return Line(data, what, LINEAR, numbers, _mean([row[key] for row in kept], _scale(key)), best, measured)


def _photographs(kept: Json) -> Iterator[Line]:
    """Yield CIFAR-10 rows, tested on the last 5,000 training images, as printed by `benchmarks.encoders images`."""
    of = {str(epsilon): place for place, epsilon in enumerate(kept["epsilons"])}
    for name, best in (("patches, 256 components", PHOTOGRAPHS), ("EfficientNet-Lite0, 224 pixels", PRETRAINED)):
        found = kept["held out"]["right, %"][name]
        numbers = [found[place] if (place := of.get(_named(promise))) is not None else None for promise in PROMISES]
        seeds = "seeds 0 and 1" if name.startswith("patches") else "seed 0"
        measured = f"`benchmarks.encoders images`, {seeds}"
        yield Line(f"CIFAR-10, {name}", "accuracy, %", LINEAR, numbers, None, best, measured)


def _named(promise: float | list[float]) -> str:
    return str([int(one) for one in promise]) if isinstance(promise, list) else f"{promise:g}"


def document() -> str:
    """Return docs/benchmarks.md."""
    rows = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    for line in lines():
        numbers = [_shown(one) for one in (*line.numbers, line.without)]
        best = f"{line.best.value:g} at ε = {line.best.epsilon}: {line.best.source}" if line.best else "–"
        rows.append(f"| {line.data} | {line.what} | {line.ours} | {' | '.join(numbers)} | {best} | {line.measured} |")
    parts = {"{table}": "\n".join(rows), "{premise}": "\n".join(premise())}
    text = TEXT.read_text()
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


def premise() -> Iterator[str]:
    """Yield the rows of the table on the benefit of levels: each way of asking, for every method and data set."""
    for method, rows in _kept("premise").items():
        for data in dict.fromkeys(row["data"] for row in rows):
            mine = {row["way"]: row for row in rows if row["data"] == data}
            for key, what in KEYS.items():
                if all(row.get(key) is not None for row in mine.values()):
                    numbers = [_text(key, mine[way][key]) if way in mine else "–" for way in WAYS]
                    yield f"| {method} | {data} | {what} | {' | '.join(numbers)} |"


KEYS = {
    "labels": "labels",
    "teachers": "teachers",
    "right": "accuracy, %",
    "area": "area",
    "distance": "distance",
    "signal": "signal",
}
WAYS = ("levels", "threshold", "smallest", "without strictest")


def _text(key: str, value: float) -> str:
    if key == "right":
        return f"{100 * value:.1f}"
    return f"{value:.3f}" if key in ("area", "distance") else f"{value:,}"


def _kept(name: str) -> Json:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def _rows(rows: Sequence[Json], method: str) -> list[Json]:
    return [row for row in rows if row["method"] == method]


def _student(rows: Sequence[Json], method: str, promise: Any, runs: int = 1) -> float | None:
    """Return the result of the student of images, or None if fewer than ``runs`` runs were measured."""
    found = [row for row in _rows(rows, method) if row["epsilon"] == promise]
    return _mean([row["students"]["consistency"]["test"] for row in found]) if len(found) >= runs else None


def _of(rows: Sequence[Json], promise: Any, key: str) -> float | None:
    """Return a number from rows of `benchmarks.sgd`, which are means over draws."""
    return _mean([row[key] for row in rows if row["epsilon"] == promise], _scale(key))


def _scale(key: str) -> float:
    return 100 if key == "accuracy" else 1


def _mean(values: Sequence[float], scale: float = 100) -> float | None:
    return scale * fmean(values) if values else None


def _shown(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{value:.3f}" if value <= 1 else f"{value:.1f}"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
