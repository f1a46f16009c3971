"""A batch put to the vote: every group pays by its own weight, and only for what it took part in."""

from dataclasses import replace

import numpy as np
import pytest

from accounting.privacy import gnmax_rdp, threshold_rdp
from learning.mechanisms.pate import (
    NO_VOTE,
    REJECTED,
    ConfidentGNMax,
    Group,
    SimulationNoise,
    count_votes,
    group_votes,
    hold_vote,
    make_plan,
)

ORDERS = np.array([1.5, 4.0, 16.0])
AGGREGATOR = ConfidentGNMax(sigma=8.0, sigma_threshold=15.0, threshold=20.0)
GROUPS = [Group("LOW", 3.0, 400), Group("HIGH", 1.0, 250), Group("AVERAGE", 2.0, 350)]


def planned(variant: str = "weighting"):
    return make_plan(GROUPS, variant=variant, teachers=50, aggregator=AGGREGATOR, delta=1e-6)


def predictions(teachers: int, queries: int = 12, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(4).choice(classes, (teachers, queries), p=[0.7, 0.2, 0.1])


@pytest.mark.parametrize("method", ["data_independent", "data_dependent", "exact"])
def test_each_group_is_charged_by_its_own_weight(method) -> None:
    """A group with a larger ε and a smaller weight: whoever sorts the two apart charges the wrong groups."""
    plan = planned()
    weights = (1.6, 0.3, 1.075)
    plan = replace(plan, groups=tuple(replace(g, weight=w) for g, w in zip(plan.groups, weights, strict=True)))
    matrix = predictions(50)
    vote = hold_vote(plan, matrix, 3, SimulationNoise(0), method=method, orders=ORDERS)
    counts = count_votes(matrix, 3, np.repeat(weights, [g.teachers for g in plan.groups]))
    np.testing.assert_allclose(vote.votes, counts)
    start = 0
    for group, weight, cost in zip(plan.groups, weights, vote.costs, strict=True):
        own = group_votes(matrix, 3, (np.arange(50) >= start) & (np.arange(50) < start + group.teachers))
        start += group.teachers
        how = {"sensitivity": weight, "orders": ORDERS, "method": method, "group_votes": own}
        np.testing.assert_allclose(cost.label, gnmax_rdp(counts, 8.0, **how))
        np.testing.assert_allclose(cost.check, threshold_rdp(counts, 20.0, 15.0, **how))
    assert (vote.costs[0].label > vote.costs[2].label).all()
    assert (vote.costs[2].label > vote.costs[1].label).all()


def test_the_larger_budget_pays_more() -> None:
    costs = hold_vote(planned(), predictions(50), 3, SimulationNoise(0), method="data_independent", orders=ORDERS).costs
    ratios = [cost.label[0, 0] / costs[0].label[0, 0] for cost in costs]
    np.testing.assert_allclose(ratios, [1.0, 4.0, 9.0], rtol=1e-4)  # weights are rounded to the grid of the noise


def test_a_group_whose_teachers_are_all_retired_pays_nothing() -> None:
    plan, matrix = planned(), predictions(50)
    matrix[plan.members(0)] = NO_VOTE
    vote = hold_vote(plan, matrix, 3, SimulationNoise(0), method="data_dependent", orders=ORDERS)
    np.testing.assert_array_equal(vote.costs[0].label, 0.0)
    np.testing.assert_array_equal(vote.costs[0].check, 0.0)
    assert (vote.costs[1].label > 0).all()
    np.testing.assert_array_equal(vote.votes.sum(axis=1), plan.teacher_weights()[~plan.members(0)].sum())


def test_without_any_teacher_nothing_is_answered_and_nothing_is_owed() -> None:
    plan = planned()
    vote = hold_vote(plan, np.full((50, 4), NO_VOTE), 3, SimulationNoise(0), method="data_independent", orders=ORDERS)
    assert (vote.release.labels == REJECTED).all()
    assert all((cost.check == 0).all() and (cost.label == 0).all() for cost in vote.costs)


def test_upsampling_prices_the_number_of_duplicates_spread_over_teachers() -> None:
    plan = planned("upsampling")
    matrix = predictions(plan.teachers)
    vote = hold_vote(plan, matrix, 3, SimulationNoise(0), method="exact", orders=ORDERS)
    counts = count_votes(matrix, 3)
    for factor, cost in zip((1, 2, 3), vote.costs, strict=True):
        how = {"sensitivity": factor, "teachers_per_holder": factor, "orders": ORDERS, "method": "exact"}
        np.testing.assert_allclose(cost.label, gnmax_rdp(counts, plan.aggregator.sigma, group_votes=counts, **how))


def test_predictions_of_other_teachers_are_refused() -> None:
    with pytest.raises(ValueError, match="50 teachers"):
        hold_vote(planned(), predictions(49), 3, SimulationNoise(0), method="data_independent")
