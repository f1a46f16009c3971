"""A batch put to the vote: its counts, and that every group pays by its own weight for what it took part in."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.privacy import gnmax_rdp, threshold_rdp
from common.noise import SimulationNoise
from learning.mechanisms import pate

ORDERS = np.array([1.5, 4.0, 16.0])
AGGREGATOR = pate.ConfidentGNMax(sigma=8.0, sigma_threshold=15.0, threshold=20.0)
repeatable = settings(derandomize=True, deadline=None, max_examples=60)
seeds = st.integers(0, 2**32 - 1)
GROUPS = [
    pate.PrivacyGroup("LOW", 3.0, 400),
    pate.PrivacyGroup("HIGH", 1.0, 250),
    pate.PrivacyGroup("AVERAGE", 2.0, 350),
]


def planned(variant: str = "weighting"):
    return pate.make_plan(GROUPS, variant=variant, teachers=50, aggregator=AGGREGATOR, delta=1e-6)


def predictions(teachers: int, queries: int = 12, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(4).choice(classes, (teachers, queries), p=[0.7, 0.2, 0.1])


@pytest.mark.parametrize("method", ["data_independent", "data_dependent", "exact"])
def test_each_group_is_charged_by_its_own_weight(method) -> None:
    """A group with a larger ε and a smaller weight: whoever sorts the two apart charges the wrong groups."""
    plan = planned()
    weights = (1.6, 0.3, 1.075)
    plan = replace(plan, groups=tuple(replace(g, weight=w) for g, w in zip(plan.groups, weights, strict=True)))
    matrix = predictions(50)
    vote = pate.hold_vote(plan, matrix, 3, SimulationNoise(0), method=method, orders=ORDERS)
    counts = pate.count_votes(matrix, 3, np.repeat(weights, [g.teachers for g in plan.groups]))
    np.testing.assert_allclose(vote.votes, counts)
    start = 0
    for group, weight, cost in zip(plan.groups, weights, vote.costs, strict=True):
        own = pate.group_votes(matrix, 3, (np.arange(50) >= start) & (np.arange(50) < start + group.teachers))
        start += group.teachers
        how = {"sensitivity": weight, "orders": ORDERS, "method": method, "group_votes": own}
        np.testing.assert_allclose(cost.label, gnmax_rdp(counts, 8.0, **how))
        np.testing.assert_allclose(cost.check, threshold_rdp(counts, 20.0, 15.0, **how))
    assert (vote.costs[0].label > vote.costs[2].label).all()
    assert (vote.costs[2].label > vote.costs[1].label).all()


def test_a_group_whose_teachers_are_all_retired_pays_nothing_and_nobody_answers_nothing() -> None:
    plan, matrix = planned(), predictions(50)
    matrix[plan.members(0)] = pate.NO_VOTE
    vote = pate.hold_vote(plan, matrix, 3, SimulationNoise(0), method="data_dependent", orders=ORDERS)
    np.testing.assert_array_equal(vote.costs[0].label, 0.0)
    np.testing.assert_array_equal(vote.costs[0].check, 0.0)
    assert (vote.costs[1].label > 0).all()
    np.testing.assert_array_equal(vote.votes.sum(axis=1), plan.teacher_weights()[~plan.members(0)].sum())
    nobody = np.full((50, 4), pate.NO_VOTE)
    vote = pate.hold_vote(plan, nobody, 3, SimulationNoise(0), method="data_independent", orders=ORDERS)
    assert (vote.release.labels == pate.REJECTED).all()
    assert all((cost.check == 0).all() and (cost.label == 0).all() for cost in vote.costs)


def test_upsampling_prices_the_number_of_duplicates_spread_over_teachers() -> None:
    plan = planned("upsampling")
    matrix = predictions(plan.teachers)
    vote = pate.hold_vote(plan, matrix, 3, SimulationNoise(0), method="exact", orders=ORDERS)
    counts = pate.count_votes(matrix, 3)
    for factor, cost in zip((1, 2, 3), vote.costs, strict=True):
        how = {"sensitivity": factor, "teachers_per_holder": factor, "orders": ORDERS, "method": "exact"}
        np.testing.assert_allclose(cost.label, gnmax_rdp(counts, plan.aggregator.sigma, group_votes=counts, **how))


@repeatable
@given(seed=seeds)
def test_counts_are_those_of_a_plain_loop_and_a_teacher_moves_them_by_its_weight(seed: int) -> None:
    rng = np.random.default_rng(seed)
    teachers, queries, classes = rng.integers(1, 8, 3)
    predictions = rng.integers(pate.NO_VOTE, classes, (teachers, queries))
    weights = rng.random(teachers) * 3
    expected = np.zeros((queries, classes))
    for teacher in range(teachers):
        for query in range(queries):
            if predictions[teacher, query] != pate.NO_VOTE:
                expected[query, predictions[teacher, query]] += weights[teacher]
    np.testing.assert_allclose(pate.count_votes(predictions, classes, weights), expected)
    predictions = rng.integers(0, 5, (13, 20))
    weights, one = np.repeat([0.5, 1.0, 1.75], [6, 3, 4]), rng.integers(13)
    changed = predictions.copy()
    changed[one] = (changed[one] + rng.integers(1, 5, 20)) % 5
    moved = pate.count_votes(changed, 5, weights) - pate.count_votes(predictions, 5, weights)
    np.testing.assert_allclose([moved.max(axis=1), -moved.min(axis=1)], weights[one])
    assert ((np.abs(moved) > 1e-9).sum(axis=1) == 2).all()


def test_the_groups_own_counts_are_unweighted_and_add_up() -> None:
    predictions = np.random.default_rng(1).integers(pate.NO_VOTE, 3, (9, 50))
    members = np.arange(9) < 4
    both = pate.group_votes(predictions, 3, members) + pate.group_votes(predictions, 3, ~members)
    np.testing.assert_array_equal(both, pate.count_votes(predictions, 3))
    np.testing.assert_array_equal(pate.count_votes(np.zeros((0, 4), int), 3), np.zeros((4, 3)))
    assert pate.count_votes(np.zeros((4, 0), int), 3).shape == (0, 3)
    with pytest.raises(ValueError, match="members"):
        pate.group_votes([[0], [1]], 2, [0, 1])


def test_bad_predictions_and_weights_are_refused() -> None:
    bad = [(([[0.5]], 2), "integers"), (([0, 1], 2), "shape"), (([[0]], 0), "at least 1")]
    bad += [((predictions, 2), "classes") for predictions in ([[0, 2]], [[-2]])]
    bad += [(([[0]], 2, weights), "weights") for weights in ([1.0, 1.0], [-1.0], [np.nan])]
    for arguments, message in bad:
        with pytest.raises(ValueError, match=message):
            pate.count_votes(*arguments)
    with pytest.raises(ValueError, match="50 teachers"):
        pate.hold_vote(planned(), predictions(49), 3, SimulationNoise(0), method="data_independent")
