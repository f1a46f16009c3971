"""Means and quantiles from tables of counts: against a grid of tests, by coverage, and where noise leaves nothing."""

from itertools import pairwise

import numpy as np
import pytest

from learning.mechanisms.counts.planner import WITHIN_95
from learning.mechanisms.counts.summaries import QUANTILES, Summary, mean, quantiles, summaries
from learning.mechanisms.counts.table import CountTable

EDGES = np.linspace(20, 120, 11)


def table(sums: np.ndarray, *, groups: tuple[str, ...] = (), missing: bool = False, sigma: float = 1.0) -> CountTable:
    bins = [f"{low:g} – {high:g}" for low, high in pairwise(EDGES.tolist())]
    ages = (*bins, *(["not known"] if missing else []))
    of_ages = ("age", ages, tuple(EDGES.tolist()))
    columns, values, edges = zip(*([("sex", groups, ()), of_ages] if groups else [of_ages]), strict=True)
    return CountTable(columns, values, tuple(sums.ravel().tolist()), sigma, 1.0, edges, ())


def test_without_noise_they_are_those_of_the_people() -> None:
    sums = np.array([0, 0, 10, 20, 40, 20, 10, 0, 0, 0])
    (summary,) = summaries(table(sums, sigma=1e-9))
    assert (summary.column, summary.group) == ("age", "")
    assert summary.mean is not None and summary.mean.value == pytest.approx(65)
    assert (summary.mean.low, summary.mean.high) == pytest.approx((60, 70)), "half a bin on both sides"
    assert summary.quantiles[1].value == pytest.approx(65)
    assert [(each.low, each.high) for each in summary.quantiles] == [(50, 60), (60, 70), (70, 80)]


def test_each_group_has_its_own_and_who_is_not_known_has_none() -> None:
    young, old = np.zeros(11), np.zeros(11)
    young[1], young[10], old[8] = 50, 1e6, 30
    summary = summaries(table(np.array([young, old]), groups=("f", "m"), missing=True, sigma=1e-9))
    means = [(each.group, each.mean.value) for each in summary if each.mean]
    assert means == [("f", pytest.approx(35)), ("m", pytest.approx(105))]


def test_a_table_without_numbers_has_none() -> None:
    assert summaries(CountTable(("sex",), (("f", "m"),), (1.0, 2.0), 1.0, 1.0, ((),), ())) == []


def test_the_interval_of_a_mean_is_what_the_tests_leave() -> None:
    rng = np.random.default_rng(0)
    middles, half = (EDGES[:-1] + EDGES[1:]) / 2, 5.0
    for sigma in (1.0, 3.0, 8.0):
        sums = rng.integers(0, 40, 10) + sigma * rng.standard_normal(10)
        summary = mean(EDGES, sums, sigma)
        assert summary is not None
        grid = np.linspace(-100, 300, 400_001)
        left = grid[
            np.abs(sums @ middles - grid * sums.sum())
            <= WITHIN_95 * sigma * np.sqrt(((middles[:, None] - grid) ** 2).sum(axis=0))
        ]
        ends = np.clip([left[0] - half, left[-1] + half], 20, 120)
        assert (summary.low, summary.high) == pytest.approx(tuple(ends), abs=2e-3)
        assert summary.low <= summary.value <= summary.high


def test_a_count_of_nobody_has_no_mean() -> None:
    assert mean(EDGES, np.full(10, 0.1), 5.0) is None
    assert mean(EDGES, np.full(10, -40.0), 1.0) is None
    for message in quantiles(EDGES, np.full(10, -0.1), 5.0):
        assert (message.low, message.high) == (20, 120) and 20 <= message.value <= 120


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("sigma", [2.0, 15.0, 60.0])
def test_intervals_hold_95_times_in_100_or_more(sigma: float) -> None:
    """People whose numbers are anywhere in their bins, so that no middle is the truth."""
    rng, draws = np.random.default_rng(1), 4000
    people = np.clip(20 + 100 * rng.beta(2, 4, 600), 20, 119.9)
    counts = np.histogram(people, EDGES)[0]
    true = [people.mean(), *(np.sort(people)[int(share * 600)] for share in QUANTILES)]
    held = np.zeros(4)
    for _draw in range(draws):
        noisy = counts + sigma * rng.standard_normal(10)
        summary: Summary = summaries(table(noisy, sigma=sigma))[0]
        intervals = [summary.mean, *summary.quantiles]
        held += [each is None or each.low <= value <= each.high for each, value in zip(intervals, true, strict=True)]
    assert (held / draws > 0.95 - 4 * np.sqrt(0.95 * 0.05 / draws)).all(), held / draws
