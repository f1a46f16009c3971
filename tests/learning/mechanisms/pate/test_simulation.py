"""Whole votes: nobody overspends, and the groups run out at the same time."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.privacy import gaussian_rdp
from learning.mechanisms import pate
from learning.mechanisms.pate.simulation import SimulatedVote

repeatable = settings(derandomize=True, deadline=None, max_examples=12)
# few orders make the test fast, and give a valid ε that more orders would lower
pytestmark = pytest.mark.filterwarnings("ignore:the best order lies at an end")

DELTA = 1e-6
CONFIDENT = pate.ConfidentGNMax(sigma=12.0, sigma_threshold=9.0, threshold=12.0)
AGGREGATORS = [pate.GNMax(sigma=12.0), CONFIDENT, pate.LNMax(gamma=0.05)]
ORDERS = np.array([1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0])


def teachers_that_mostly_agree(teachers: int, queries: int, seed: int = 0, classes: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, queries)
    return np.where(rng.random((teachers, queries)) < 0.8, truth, rng.integers(0, classes, (teachers, queries)))


def vote_of(plan: pate.Plan, groups: list[pate.PrivacyGroup], queries: int, seed: int, **options: Any) -> SimulatedVote:
    teachers = teachers_that_mostly_agree(plan.teachers, queries, seed)
    return pate.simulate_vote(plan, groups, teachers, 3, delta=DELTA, seed=seed, orders=ORDERS, **options)


def classic_epsilon(curve: np.ndarray) -> float:
    return float((curve + math.log(1 / DELTA) / (ORDERS - 1)).min())


group_lists = st.lists(
    st.tuples(st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0]), st.integers(1, 300)), min_size=1, max_size=5
).map(lambda rows: [pate.PrivacyGroup(f"G{i}", epsilon, 20 + holders) for i, (epsilon, holders) in enumerate(rows)])


@pytest.mark.parametrize("variant", pate.VARIANTS)
@pytest.mark.parametrize("method", ["data_independent", "data_dependent", "exact"])
@repeatable
@given(
    groups=group_lists,
    scheme=st.sampled_from(["proportional", "calibrated", "gdp"]),
    aggregator=st.sampled_from(AGGREGATORS),
    seed=st.integers(0, 1000),
)
def test_no_group_ever_overspends(variant, method, groups, scheme, aggregator, seed) -> None:
    plan = pate.make_plan(
        groups, variant=variant, teachers=20, aggregator=aggregator, delta=DELTA, weight_scheme=scheme, precision=2
    )
    vote = vote_of(plan, groups, 25, seed, method=method)
    assert (vote.epsilons <= [group.epsilon for group in groups]).all()
    assert vote.exhausted.any() == (len(vote.labels) < 25)


@pytest.mark.parametrize("variant", pate.VARIANTS)
@repeatable
@given(groups=group_lists, seed=st.integers(0, 1000))
def test_holder_by_holder_the_sum_of_gaussian_votes_stays_within_the_budget(variant, groups, seed) -> None:
    """As an independent account, each teacher's own votes are Gaussian mechanisms with the classic conversion."""
    aggregator = pate.ConfidentGNMax(sigma=12.0, sigma_threshold=20.0, threshold=14.0)
    plan = pate.make_plan(groups, variant=variant, teachers=20, aggregator=aggregator, delta=DELTA, precision=2)
    vote = vote_of(plan, groups, 200, seed, method="data_independent", conversion="classic")
    released = len(vote.labels)
    present = pate.draw_participation(plan, 200, np.random.default_rng(seed))[:, :released]
    check = gaussian_rdp(plan.aggregator.sigma_threshold, orders=ORDERS)
    label = gaussian_rdp(plan.aggregator.sigma, math.sqrt(2), orders=ORDERS)
    for group, reported in zip(groups, vote.epsilons, strict=True):
        planned = plan.groups[plan.index_of(group.name)]
        own = present[plan.members(plan.index_of(group.name))]
        votes, answers = own.sum(axis=1), own @ vote.answered
        curves = planned.sensitivity**2 * (votes[:, None] * check + answers[:, None] * label)
        worst = max(0.0, *(classic_epsilon(curve) for curve in curves)) if released else 0.0
        assert worst <= reported + 1e-9
        assert reported <= group.epsilon
