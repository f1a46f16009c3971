"""Shares of the classes among the people, by votes and by the first gradient step, and their intervals."""

import math

import numpy as np
import pytest

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.class_shares import Share, differing, first_step_shares, voted_shares
from learning.mechanisms.levels import Level
from learning.mechanisms.steps.calibration import descent_shares
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import release_sums, step_contributions
from learning.mechanisms.steps.planner import plan_steps
from learning.mechanisms.steps.records import owned_records

WEIGHED = 0.02
SHARES = np.array([0.7, 0.2, 0.1])


def votes(seed: int, sigma: float) -> np.ndarray:
    """Of 50 queries with about 300 voters each."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(300, SHARES, 50) + rng.normal(0, sigma, (50, 3))


def test_the_ends_of_votes_are_as_far_from_them_as_their_noise_allows() -> None:
    counts, sigma = votes(0, 40.0), 40.0
    found = voted_shares(counts, sigma)
    assert found is not None
    total = counts.sum()
    for share, votes_for in zip(found, counts.sum(axis=0), strict=True):
        assert share.value == pytest.approx(votes_for / total)
        for end, sign in ((share.low + WEIGHED, 1), (share.high - WEIGHED, -1)):
            deviation = sigma * math.sqrt(50 * (1 - 2 * end + 3 * end**2))  # of the class less the end of all three
            assert votes_for - end * total == pytest.approx(sign * 1.959964 * deviation)


def test_votes_that_noise_outweighs_tell_no_shares() -> None:
    assert voted_shares(votes(0, 1e5), 1e5) is None
    assert voted_shares(np.full((3, 2), -1.0), 0.1) is None
    shares = voted_shares(np.array([[0.0, 10.0]]), 1e-9)
    assert shares is not None and shares[1].value == shares[1].high == 1.0 and shares[1].low == pytest.approx(0.98)


@pytest.mark.statistical
def test_intervals_hold_the_shares_of_the_people() -> None:
    """Without what is added for people who count less, nineteen times in twenty; never by so much as that."""
    inside = []
    for seed in range(400):
        found = voted_shares(votes(seed, 100.0), 100.0)
        assert found is not None
        inside.append(found[0].low + WEIGHED <= SHARES[0] <= found[0].high - WEIGHED)
    assert 0.9 < np.mean(inside) < 0.985


def released(
    shares: list[float], people: int, cap: float, *, counted: float = 1.0, sigma: float | None = None
) -> list[Share]:
    """What the first step of so many people tells, of whom a plan had counted a part."""
    rng, classes = np.random.default_rng(3), len(shares)
    points = np.clip(np.rint(rng.normal(0, 30, (people, 6))), -127, 127).astype(np.int8)
    everyone = np.arange(people)
    records = owned_records(points, rng.choice(classes, people, p=shares), everyone, everyone)
    plan = plan_steps(
        [Level("ALL", cap, people * counted)], dimensions=6, n_classes=classes, share=1.0, steps=Steps(sigma=sigma)
    )
    begin = Descent.begin(plan, points[:500], classes)
    sums, _charged = step_contributions(
        records,
        begin.weights,
        clip_norm=begin.clip_norm,
        accounts=IndividualAccounts(np.full(people, cap)),
        sigma=plan.sigma,
    )
    found = descent_shares(begin, release_sums(sums, plan.sigma, SimulationNoise(5)))
    return found or []


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.93, 0.07], [0.1, 0.2, 0.7]])
def test_the_first_step_counts_classes(shares: list[float]) -> None:
    found = released(shares, 5000, 100.0)
    assert [each.value for each in found] == pytest.approx(shares, abs=0.02)
    assert all(each.low <= share <= each.high for each, share in zip(found, shares, strict=True))
    assert sum(each.value for each in found) == pytest.approx(1.0, abs=1e-9)
    weak = released(shares, 5000, 0.02)
    assert all(w.high - w.low > s.high - s.low for w, s in zip(weak, found, strict=True))


def test_class_shares_are_unknown_after_silence_before_the_first_step() -> None:
    assert released([0.9, 0.1], 500, 0.9, sigma=1.0) == []
    assert released([0.9, 0.1], 500, 1.1, sigma=1.0) != []


def test_people_who_came_or_went_are_allowed_for() -> None:
    found = released([0.9, 0.1], 5000, 100.0, counted=1.05)
    assert found[0].low <= 0.9 <= found[0].high and found[0].value < 0.89


def test_the_interval_of_the_first_step_is_of_centred_noise() -> None:
    """Four classes, as likely, nothing clipped: noise alone. Centring leaves 3/4 of the variance of each number."""
    found = first_step_shares(np.zeros(4), noise=0.03, lengths=np.ones(9), clip_norm=2.0)
    half = 1.959964 * 0.03 * math.sqrt(0.75)
    assert [(each.value, each.low, each.high) for each in found] == [
        pytest.approx((0.25, 0.25 - half - WEIGHED, 0.25 + half + WEIGHED))
    ] * 4


def test_shares_differ_where_both_intervals_lie_apart() -> None:
    people = Share(0.6, 0.55, 0.65)
    assert differing(people, 0.4, 400) and differing(people, 0.8, 400)
    assert not differing(people, 0.4, 20), "twenty points tell 0.22 to 0.61"
    assert not differing(people, 0.52, 400)
