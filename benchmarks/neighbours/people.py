"""Prospects of a study: the student by number of holders and ε, compared with the same student on true labels."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.neighbours.figure import Line, figure
from benchmarks.neighbours.results import measured
from benchmarks.neighbours.study import Student, data_load, hold, test_accuracy
from learning.forecasts import few_people
from learning.learners import learner_create
from learning.mechanisms.neighbours.rounds import MOST_FIRST

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "neighbours-people.svg"
HOLDERS = (300, 1_000, 3_000, 10_000, 60_000)
EPSILONS = (1.0, 0.25, 8.0, 3.0, 0.1)  # in the order of measurement
SEEDS = (1,)
STUDENT: Student = ("logistic_regression", {})


def people(quick: bool) -> list[dict[str, Any]]:
    """Measure MNIST by number of holders and ε: all points in the planned rounds, and 600 points in one round."""
    counts = HOLDERS[:3] if quick else HOLDERS
    cells = [{"holders": n, "epsilon": epsilon, "seed": seed} for seed in SEEDS for epsilon in EPSILONS for n in counts]
    rows = measured("people", cells, _cell, quick)
    if not quick:
        FIGURE.write_text(drawn(rows))
    return rows


def _cell(holders: int, epsilon: float, seed: int) -> dict[str, Any]:
    data = data_load("mnist").first(holders)
    row: dict[str, Any] = {"on_true_labels": test_accuracy(data, _on_true_labels(), coordinates=True)}
    for name, rounds, wanted in (("all", None, None), ("few", 1, MOST_FIRST)):
        outcome = hold(
            data, epsilon, rounds=rounds, wanted=wanted, student=STUDENT, labelled=True, coordinates=True, seed=seed
        )
        row[name] = {
            "asked": [len(one.queries) for one in outcome.held],
            "forecast": outcome.plan.rounds[0].forecast.labels.value,
            "right": outcome.right,
            "student": test_accuracy(data, outcome.student, coordinates=True),
            "warnings": len(few_people([outcome.plan.rounds[0].forecast.labels], data.classes)),
        }
    return row


@cache
def _on_true_labels() -> Any:
    data = data_load("mnist")
    return learner_create(*STUDENT).fit(data.public / np.float32(127), data.truth, classes=data.classes, seed=1)


def reached(row: dict[str, Any]) -> float:
    """Return the accuracy with all points, or with few points if the plan for all warns that people are too few."""
    chosen = row["few"] if row["all"]["warnings"] else row["all"]
    return float(chosen["student"])


def drawn(rows: list[dict[str, Any]]) -> str:
    """Return a chart with a line for every ε (mean over the seeds) and one for the student trained on true labels."""
    lines = []
    for epsilon in sorted({row["epsilon"] for row in rows}, reverse=True):
        held = {n: [reached(row) for row in rows if (row["holders"], row["epsilon"]) == (n, epsilon)] for n in HOLDERS}
        lines.append(Line(f"ε = {epsilon:g}", {n: float(np.mean(some)) for n, some in held.items() if some}))
    return figure(
        lines,
        target=rows[0]["on_true_labels"],
        title="Accuracy of the student over the number of holders (MNIST, 9,000 public points)",
        across="holders who take part",
        up="right on test points",
        target_label=f"the same student on true labels: {100 * rows[0]['on_true_labels']:.1f} %",
    )
