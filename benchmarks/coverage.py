"""Simulated coverage of every interval shown on pages, in the API and in files.

    python -m benchmarks.coverage [DRAWS]

prints the table of docs/evaluation.md, by default with 1,000 draws, which are always the same. An interval that should
hold 95 times in 100 must hold between 93 and 97 times. If it should hold at least that often, its description says so.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import django
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from learning import class_shares, measures
from learning.forecasts import MODEL, judged_forecast
from learning.mechanisms.counts.table_plan import Counts, forecast_table, plan_counts
from learning.mechanisms.counts.tables import CountTable, LevelPart, summaries
from learning.mechanisms.protocol import PlannedLevel
from learning.outcomes.numbers import Numbers
from learning.outcomes.times import concordance, kaplan_meier
from training.measures import accuracy_interval, published_accuracy

DRAWS = 1000
#: μ² of ε = 1, 2 and 3 at δ = 1e-5, and the number of people with each.
CAPS, PEOPLE = np.array([0.0718, 0.2513, 0.5165]), np.array([400, 500, 300])
POINTS = 300

Held = NDArray[np.bool_]
Simulation = Callable[[np.random.Generator, int], Held]


@dataclass(frozen=True)
class Interval:
    """An interval shown to users, by its name; ``at_least`` if it should hold at least 95 times in 100."""

    name: str
    holds: Simulation
    at_least: bool = False
    is_slow: bool = False

    def coverage(self, draws: int = DRAWS) -> float:
        """Return the share of the given number of draws in which the interval holds; the same each time."""
        seed = np.frombuffer(self.name.encode(), np.uint8)
        return float(self.holds(np.random.default_rng(seed), draws).mean())

    def is_true(self, coverage: float) -> bool:
        """Return whether the interval holds as often as stated."""
        return coverage >= 0.93 and (self.at_least or coverage <= 0.97)


# --- Counts -----------------------------------------------------------------------------------------------------------


def _table(sums: NDArray[np.float64], heads: NDArray[np.float64], head_sigma: float, weighing: str) -> CountTable:
    levels = [PlannedLevel(f"L{place}", cap, count) for place, (cap, count) in enumerate(zip(CAPS, heads, strict=True))]
    chosen = Counts(column="c", weighing=weighing)
    plan = plan_counts(levels, cells=len(sums), share=0.5, counts=chosen, head_count_sigma=head_sigma)
    edges = tuple(np.linspace(0.0, 1.0, len(sums) + 1).tolist())
    parts = tuple(LevelPart(level.name, level.holders, float(plan.weights(level.cap))) for level in levels)
    values = (tuple(map(str, range(len(sums)))),)
    return CountTable(("c",), values, tuple(sums), plan.sigma, plan.scale, (edges,), parts, plan.scale_error)


def _counted(
    rng: np.random.Generator, weighing: str, head_sigmas: Sequence[float], spread: str
) -> tuple[CountTable, NDArray[np.float64], NDArray[np.float64]]:
    """Return a table of eight cells, the number of people in each, and their values between 0 and 1, ordered by cell.

    Each of ``head_sigmas`` is the noise of one site's head counts.
    """
    level = np.repeat(np.arange(3), PEOPLE)
    numbers = np.sort(rng.beta(2, 3, len(level)))
    if spread == "lot":
        rng.shuffle(level)  # otherwise the strictest level has the smallest values
    noise = sum((np.rint(sigma * rng.standard_normal(3)) for sigma in head_sigmas), np.zeros(3))
    heads, head_sigma = np.maximum(PEOPLE + noise, 1.0), math.hypot(*head_sigmas)
    plan = plan_counts(
        [PlannedLevel("", cap, 1.0) for cap in CAPS], cells=8, share=0.5, counts=Counts(column="c", weighing=weighing)
    )
    cell = np.minimum((numbers * 8).astype(np.int64), 7)
    exact = np.bincount(cell, plan.weights(CAPS)[level], 8)
    table = _table(exact + plan.sigma * rng.standard_normal(8), heads, head_sigma, weighing)
    return table, np.bincount(cell, minlength=8).astype(np.float64), numbers


def _count(weighing: str, head_sigmas: Sequence[float], spread: str, ends: str) -> Simulation:
    def holds(rng: np.random.Generator, draws: int) -> Held:
        held = []
        for _ in range(max(1, draws // 8)):
            table, counts, _numbers = _counted(rng, weighing, head_sigmas, spread)
            low, high = ends.split(" to ")
            held += [getattr(cell, low) <= n <= getattr(cell, high) for cell, n in zip(table, counts, strict=True)]
        return np.array(held)

    return holds


def _summary(which: str) -> Simulation:
    def holds(rng: np.random.Generator, draws: int) -> Held:
        held = []
        for _ in range(draws):
            table, _counts, numbers = _counted(rng, "promise", [20.0], "lot")
            (found,) = summaries(table)
            estimate, true = (
                (found.mean, numbers.mean()) if which == "mean" else (found.quantiles[1], np.median(numbers))
            )
            held.append(estimate is None or estimate.low <= true <= estimate.high)
        return np.array(held)

    return holds


def _distance(rng: np.random.Generator, draws: int) -> Held:
    plan = plan_counts([PlannedLevel("", CAPS[1], 900.0)], cells=20, share=0.5, counts=Counts(column="c"))
    forecast = forecast_table(plan)
    found = np.abs(rng.normal(scale=plan.sigma, size=(draws, 20))).sum(axis=1) / 2 / plan.weight
    return (forecast.low <= found) & (found <= forecast.high)


def _answers(rng: np.random.Generator, draws: int) -> Held:
    from training.services.drawings import understanding_of

    held, sigma = [], 20.0
    for _ in range(draws):
        counts = {"question": "", "right": 300 + sigma * rng.standard_normal(), "wrong": 100 + sigma * rng.normal()}
        found = understanding_of(counts, sigma)
        held.append(found.low is None or found.high is None or found.low <= 75 <= found.high)
    return np.array(held)


def _voted(rng: np.random.Generator, draws: int) -> Held:
    held, queries = [], 200
    for _ in range(draws):
        votes = rng.multinomial(50, [0.2, 0.3, 0.5], queries).astype(np.float64)
        true = votes.sum(axis=0) / votes.sum()
        rows = class_shares.voted_shares(votes + 20.0 * rng.standard_normal(votes.shape), 20.0)
        held += [rows is None or rows[0].low <= true[0] <= rows[0].high]
    return np.array(held)


# --- Measures of a model on test points -------------------------------------------------------------------------------


def _points(
    rng: np.random.Generator, points: int = POINTS, slope: float = 0.7
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a model's overconfident probabilities of the second of two classes, and the truth."""
    said = rng.normal(-0.5, 1.5, points)
    truth = (rng.random(points) < expit(slope * said)).astype(np.int64)
    second = expit(said)
    return np.stack([1 - second, second], axis=1), truth


def _of_points(
    measure: Callable[[NDArray[np.float64], NDArray[np.int64]], measures.Estimate], slope: float = 0.7
) -> Simulation:
    """Return a simulation whose truth is the measure on so many points that it hardly varies."""

    def holds(rng: np.random.Generator, draws: int) -> Held:
        true, held = measure(*_points(rng, 100_000, slope)).value or 0.0, []
        for _ in range(draws):
            found = measure(*_points(rng, POINTS, slope)).interval
            held.append(found is not None and found[0] <= true <= found[1])
        return np.array(held)

    return holds


def _error(probabilities: NDArray[np.float64], truth: NDArray[np.int64]) -> measures.Estimate:
    return measures.calibration(probabilities, truth)[0]


def _accuracy(rng: np.random.Generator, draws: int) -> Held:
    held = []
    for right in rng.binomial(POINTS, 0.87, draws).tolist():
        low, high = accuracy_interval(published_accuracy(right, POINTS), POINTS) or (0.0, 0.0)
        held.append(low <= 0.87 <= high)
    return np.array(held)


def _forecast(rng: np.random.Generator, draws: int) -> Held:
    """Return whether each forecast interval contains the share right of a model trained on other people."""
    held = []
    for _ in range(draws):
        true = 0.8 + rng.normal(scale=0.25 / np.sqrt(600))
        right = rng.binomial(300, 0.8 + rng.normal(scale=0.25 / np.sqrt(600))) / 300
        found = judged_forecast(MODEL, right, right, judged=300, surrogates=600, rests_on=None)  # type: ignore[arg-type]
        held.append(found.low <= true <= found.high)
    return np.array(held)


# --- Numbers and times ------------------------------------------------------------------------------------------------

_RANGE = Numbers(0.0, 100.0)


def _numbers(rng: np.random.Generator, points: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scores of people, and the codes of their values."""
    scores = np.stack([rng.normal(0.0, 0.15, points), np.full(points, 0.04)], axis=1)
    return scores, _RANGE.drawn(scores, rng)


def _of_numbers(name: str) -> Simulation:
    def measured(rng: np.random.Generator, points: int) -> measures.Estimate:
        scores, codes = _numbers(rng, points)
        found = _RANGE.evaluated(_RANGE.predictions(scores), codes).measures
        return next(each.estimate for each in found if each.name == name)

    def holds(rng: np.random.Generator, draws: int) -> Held:
        scores, codes = _numbers(rng, 400_000)
        said, truth = _RANGE.predictions(scores), _RANGE.numbers(codes)
        true = {
            "r2": 1 - ((truth - said[:, 0]) ** 2).mean() / truth.var(),
            "mean_absolute_error": np.abs(truth - said[:, 0]).mean(),
            "coverage": ((said[:, 1] <= truth) & (truth <= said[:, 2])).mean(),
        }[name]
        ends = [measured(rng, POINTS).interval for _ in range(draws)]
        return np.array([each is not None and each[0] <= true <= each[1] for each in ends])

    return holds


def _predictions(rng: np.random.Generator, draws: int) -> Held:
    """Return whether each interval, adjusted with the released labels of 400 people, contains a new person's value."""
    held = []
    for _ in range(draws):
        scores, codes = _numbers(rng, 401)
        wrong = scores * np.array([1.0, rng.uniform(0.5, 2.0)])  # the model is over- or underconfident
        adjusted = wrong * _RANGE.widened(wrong[:400], codes[:400])
        low, high = _RANGE.predictions(adjusted)[400, 1:]
        held.append(low <= _RANGE.numbers(codes[400:])[0] <= high)
    return np.array(held)


def _lives(rng: np.random.Generator, people: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    risks = rng.normal(size=people)
    times, until = rng.exponential(np.exp(-0.5 * risks)), rng.exponential(2.0, people)
    return risks, np.minimum(times, until), times <= until


def _concordance(rng: np.random.Generator, draws: int) -> Held:
    true = np.mean([concordance(*_lives(rng, 4_000)).value or 0.0 for _ in range(20)])
    ends = [concordance(*_lives(rng, 150)).interval for _ in range(draws)]
    return np.array([each is not None and each[0] <= true <= each[1] for each in ends])


def _survival(rng: np.random.Generator, draws: int) -> Held:
    moment, (_risks, times, events) = np.array([0.7]), _lives(rng, 400_000)
    true, held = kaplan_meier(times, events, moment)[0][0], []
    for _ in range(draws):
        _risks, times, events = _lives(rng, POINTS)
        share, error = kaplan_meier(times, events, moment)
        held.append(abs(share[0] - true) <= measures.NORMAL_95 * error[0])
    return np.array(held)


INTERVALS: Sequence[Interval] = (
    Interval("number of people, all alike", _count("alike", [0.0], "order", "low to high")),
    Interval("number of people by promise, levels by lot", _count("promise", [20.0], "lot", "low to high")),
    Interval(
        "number of people by promise over three sites, levels by lot",
        _count("promise", [20.0, 30.0, 10.0], "lot", "low to high"),
    ),
    Interval(
        "number of people by promise, however levels are spread",
        _count("promise", [20.0], "order", "least to most"),
        at_least=True,
    ),
    Interval("mean of a column of a table", _summary("mean"), at_least=True),
    Interval("median of a column of a table", _summary("median"), at_least=True),
    Interval("distance that noise makes of a table, forecast", _distance),
    Interval("share of right answers to a check question", _answers, at_least=True),
    Interval("share of a class among people", _voted, at_least=True),
    Interval("share of right ones, forecast", _forecast, at_least=True),
    Interval("accuracy, recall, bin of a calibration curve", _accuracy, at_least=True),
    Interval("gain over the most frequent class", _of_points(lambda p, y: measures.gain(p.argmax(axis=1), y))),
    Interval(
        "balanced accuracy",
        _of_points(lambda p, y: measures.balanced_accuracy(p.argmax(axis=1), y)),
        at_least=True,
    ),
    Interval("area under the curve", _of_points(measures.area)),
    Interval("Brier score", _of_points(measures.brier)),
    Interval("log loss", _of_points(lambda p, y: measures.mean_estimate(measures.losses(p, y)))),
    Interval("average precision", _of_points(measures.average_precision), is_slow=True),
    Interval("expected calibration error", _of_points(_error), at_least=True, is_slow=True),
    Interval("the same of a calibrated model", _of_points(_error, slope=1.0), at_least=True, is_slow=True),
    Interval("R²", _of_numbers("r2"), is_slow=True),
    Interval("mean absolute error", _of_numbers("mean_absolute_error"), is_slow=True),
    Interval("share of prediction intervals that hold", _of_numbers("coverage"), is_slow=True),
    Interval("prediction interval of a number", _predictions),
    Interval("concordance of times", _concordance, is_slow=True),
    Interval("share without the event at a time", _survival),
)


def main(draws: int = DRAWS) -> None:
    """Print a line of Markdown for each interval."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    for each in INTERVALS:
        found = each.coverage(draws)
        said = "at least 95" if each.at_least else "95"
        sys.stdout.write(f"| {each.name} | {said} | {100 * found:.1f}{'' if each.is_true(found) else ' **no**'} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
