"""Partition: each teacher learns only from its own holders, and no holder counts more than planned."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.mechanisms.pate import LEFT_OUT, VARIANTS, GNMax, Group, assign, make_plan

repeatable = settings(derandomize=True, deadline=None, max_examples=60)


def planned(holders: list[int], variant: str, teachers: int):
    groups = [Group(f"G{i}", 1.0 + i, count) for i, count in enumerate(holders)]
    plan = make_plan(groups, variant=variant, teachers=teachers, aggregator=GNMax(sigma=1.0), delta=1e-5)
    return plan, np.repeat([plan.index_of(group.name) for group in groups], holders)


@repeatable
@given(
    holders=st.lists(st.integers(20, 90), min_size=1, max_size=4),
    teachers=st.integers(5, 20),
    variant=st.sampled_from(VARIANTS),
    seed=st.integers(0, 1000),
)
def test_every_holder_goes_where_their_group_belongs_and_teachers_have_equal_parts(
    holders, teachers, variant, seed
) -> None:
    plan, group_of_holder = planned(holders, variant, teachers)
    holder, teacher = assign(plan, group_of_holder, np.random.default_rng(seed))
    pairs = list(zip(holder.tolist(), teacher.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs), "a duplicate went to the same teacher twice"
    teachers_of = defaultdict(list)
    for one, theirs in pairs:
        teachers_of[one].append(theirs)
    weights = plan.teacher_weights()
    for one, index in enumerate(group_of_holder):
        own = teachers_of[one]
        assert len(own) == plan.groups[index].factor
        assert plan.members(index)[own].all()
        # exactly what the accounting takes for the most that a holder can move: both are rounded to the same grid
        assert weights[own].sum() == plan.groups[index].sensitivity
    sizes = np.bincount(teacher, minlength=plan.teachers)
    for index in range(len(plan.groups)):
        own = sizes[plan.members(index)]
        assert own.min() >= 1
        assert own.max() - own.min() <= 1
    if variant != "upsampling":
        assert len(set(holder.tolist())) == len(holder), "the parts are not disjoint"


def test_holders_that_are_left_out_are_learned_from_by_nobody() -> None:
    plan, _ = planned([30, 40], "weighting", 10)
    groups = np.array([LEFT_OUT] * 5 + [0] * 30 + [1] * 40 + [LEFT_OUT] * 5)
    holder, _ = assign(plan, groups, np.random.default_rng(0))
    assert sorted(holder) == list(range(5, 75))


def test_parts_are_drawn_and_duplicates_of_different_holders_meet_different_teachers() -> None:
    """Spread at random, not dealt in a row: no two teachers have nearly the same part. A seed repeats it."""
    plan, groups = planned([20, 400], "upsampling", 10)
    first, again, other = (assign(plan, groups, np.random.default_rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    holder, teacher = first
    learns_from = np.zeros((plan.teachers, len(groups)))
    learns_from[teacher, holder] = 1
    shared = (learns_from @ learns_from.T)[~np.eye(plan.teachers, dtype=bool)]
    expected = 400 * 2 / (plan.teachers * (plan.teachers - 1))
    assert shared.max() < 4 * expected


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0] * 30 + [1] * 39, r"plan is for \[30, 40\]"),
        ([0] * 30 + [2] * 40, "index_of"),
        ([-2] * 30 + [1] * 40, "index_of"),
        ([0.5] * 70, "integers"),
    ],
)
def test_other_holders_than_planned_are_refused(groups, message: str) -> None:
    plan, _ = planned([30, 40], "weighting", 10)
    with pytest.raises(ValueError, match=message):
        assign(plan, groups, np.random.default_rng(0))
