"""The plan of a run: what each variant does with the groups, and the plan's notes."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.gaussian_dp import gdp_mu
from common.noise import GRID
from learning.mechanisms.pate import LEFT_OUT, ConfidentGNMax, GNMax, PrivacyGroup, make_plan, teacher_weights
from learning.mechanisms.protocol import PlanError

repeatable = settings(derandomize=True, deadline=None, max_examples=60)
AGGREGATOR = ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0)
LEVELS = [PrivacyGroup("LOW", 3.0, 2040), PrivacyGroup("HIGH", 1.0, 2580), PrivacyGroup("AVERAGE", 2.0, 1380)]
APART = [PrivacyGroup("A", 0.1, 500), PrivacyGroup("B", 9.7, 1)]

group_lists = st.lists(st.tuples(st.integers(1, 80), st.integers(0, 400)), min_size=1, max_size=7).map(
    lambda rows: [PrivacyGroup(f"G{i}", tenths / 10, holders) for i, (tenths, holders) in enumerate(rows)]
)


def plan_of(groups=LEVELS, variant="weighting", teachers=250, aggregator=AGGREGATOR, delta=1e-6, **options):
    return make_plan(groups, variant=variant, teachers=teachers, aggregator=aggregator, delta=delta, **options)


def test_standard_makes_one_group_of_all_at_the_smallest_budget() -> None:
    plan = plan_of(variant="standard")
    (group,) = plan.groups
    assert (group.name, group.epsilon, group.holders, group.teachers) == ("HIGH", 1.0, 6000, 250)
    assert (group.merged, group.sensitivity) == (("AVERAGE", "LOW"), 1.0)
    assert (plan.aggregator, plan.teachers, plan.votes) == (AGGREGATOR, 250, 250)
    assert "which is 1 for HIGH" in plan.notes[0]


@pytest.mark.parametrize("scheme", ["proportional", "calibrated"])
def test_weighting_shares_teachers_out_and_weighs_them(scheme: str) -> None:
    plan = plan_of(variant="weighting", weight_scheme=scheme, conversion="classic")
    assert [(group.name, group.teachers) for group in plan.groups] == [("HIGH", 108), ("AVERAGE", 57), ("LOW", 85)]
    expected = teacher_weights([1.0, 2.0, 3.0], [108, 57, 85], scheme, 1e-6)
    np.testing.assert_allclose([group.sensitivity for group in plan.groups], expected, atol=GRID)
    assert plan.teacher_weights().sum() == pytest.approx(250, abs=250 * GRID)
    assert plan.notes == ()


def test_upsampling_duplicates_holders_and_scales_the_noise() -> None:
    plan = plan_of(variant="upsampling")
    growth = (2580 + 2 * 1380 + 3 * 2040) / 6000
    assert plan.teachers == plan.votes == round(250 * growth)
    assert [group.factor for group in plan.groups] == [1, 2, 3]
    assert [group.sensitivity for group in plan.groups] == [1.0, 2.0, 3.0]
    assert plan.aggregator == AGGREGATOR.scaled(growth)
    assert plan.members(0).all()
    np.testing.assert_array_equal(plan.teacher_weights(), 1.0)


def test_vanishing_sends_a_share_of_each_group_and_scales_the_noise_to_it() -> None:
    plan = plan_of(variant="vanishing")
    assert [group.participants for group in plan.groups] == [round(108 / 9), round(57 * 4 / 9), 85]
    assert plan.votes == 12 + 25 + 85
    assert plan.aggregator == AGGREGATOR.scaled(122 / 250)
    assert {group.sensitivity for group in plan.groups} == {1.0}
    assert [group.participants for group in plan_of(variant="vanishing", exponent=1.0).groups] == [36, 38, 85]


def test_under_the_scheme_gdp_charges_reach_the_same_share_of_their_caps() -> None:
    mu = gdp_mu([1.0, 2.0, 3.0], 1e-6)
    weighting = plan_of(weight_scheme="gdp")
    weights = np.array([group.weight for group in weighting.groups])
    np.testing.assert_allclose(weights / weights[0], mu / mu[0], rtol=1e-3)
    assert (weights / GRID == np.rint(weights / GRID)).all(), "multiples of the noise's grid"
    factors = [group.factor for group in plan_of(variant="upsampling", weight_scheme="gdp").groups]
    assert factors == [1, 2, 3], "integers near the ratios of μ, 1.9 and 2.7"
    vanishing = plan_of(variant="vanishing", weight_scheme="gdp").groups
    shares = [group.participants / group.teachers for group in vanishing]
    np.testing.assert_allclose(shares, (mu / mu.max()) ** 2, atol=0.01)


@pytest.mark.parametrize(("holders", "is_small"), [(1, True), (9, True), (10, False), (11, False)])
@pytest.mark.parametrize("small_groups", ["merge", "leave_out"])
def test_a_group_is_small_below_half_the_holders_of_a_teacher(holders: int, is_small: bool, small_groups: str) -> None:
    """With 200 holders and 10 teachers, each has 20; the shares leave one teacher for LOW in any case."""
    sizes = (("HIGH", 1.0, 45), ("AVERAGE", 2.0, 155 - holders), ("LOW", 3.0, holders))
    groups = [PrivacyGroup(*of) for of in sizes]
    plan = plan_of(groups, teachers=10, small_groups=small_groups)
    merges, leaves = is_small and small_groups == "merge", is_small and small_groups == "leave_out"
    assert [group.name for group in plan.groups] == ["HIGH", "AVERAGE", *([] if is_small else ["LOW"])]
    average = plan.groups[1]
    assert (average.epsilon, average.merged) == (2.0, ("LOW",) if merges else ())
    assert average.holders == 155 - (0 if merges else holders)
    assert plan.left_out == (("LOW",) if leaves else ())
    assert plan.index_of("LOW") == (LEFT_OUT if leaves else 1 if merges else 2)
    ending = "merged into AVERAGE." if merges else "left out."
    note = f"Group LOW has too few holders for a teacher ({holders}; usually about 20), so it is {ending}"
    assert [str(each) for each in plan.notes if "too few holders for a teacher" in each] == [note] * is_small
    # The strictest group cannot be merged into a stricter one, and limits nobody else.
    sizes = (("HIGH", 1.0, holders), ("AVERAGE", 2.0, 45), ("LOW", 3.0, 155 - holders))
    groups = [PrivacyGroup(*of) for of in sizes]
    plan = plan_of(groups, teachers=10)
    assert [group.name for group in plan.groups] == ["HIGH", "AVERAGE", "LOW"]
    assert any("and no stricter group to merge into, so its" in note for note in plan.notes) == is_small


@repeatable
@given(
    groups=group_lists,
    teachers=st.integers(1, 120),
    variant=st.sampled_from(["weighting", "vanishing"]),
    small_groups=st.sampled_from(["merge", "leave_out"]),
)
def test_every_teacher_has_holders_and_every_budget_holds(groups, teachers, variant, small_groups) -> None:
    if sum(group.holders for group in groups) < teachers:
        return
    plan = plan_of(groups, variant, teachers, small_groups=small_groups)
    assert sum(group.teachers for group in plan.groups) == teachers == plan.teachers
    assert all(1 <= group.participants <= group.teachers <= group.holders for group in plan.groups)
    assert plan.votes == pytest.approx(sum(group.participants * group.weight for group in plan.groups), rel=1e-2)
    np.testing.assert_array_equal(sum(plan.members(i).astype(int) for i in range(len(plan.groups))), 1)
    for group in groups:
        index = plan.index_of(group.name)
        if index == LEFT_OUT:
            assert group.holders == 0 or small_groups == "leave_out"
        else:
            assert plan.groups[index].epsilon <= group.epsilon
    taking_part = [group.holders for group in groups if plan.index_of(group.name) != LEFT_OUT]
    assert sum(group.holders for group in plan.groups) == sum(taking_part)


@repeatable
@given(groups=group_lists, teachers=st.integers(1, 60))
def test_upsampling_never_asks_for_more_duplicates_than_teachers(groups: list[PrivacyGroup], teachers: int) -> None:
    try:
        plan = plan_of(groups, "upsampling", teachers)
    except PlanError:
        return
    assert math.gcd(*(group.factor for group in plan.groups)) == 1
    assert max(group.factor for group in plan.groups) <= plan.teachers
    original = sum(group.holders for group in plan.groups)
    duplicated = sum(group.holders * group.factor for group in plan.groups)
    assert abs(plan.teachers - teachers * duplicated / original) <= 0.5
    assert plan.aggregator.threshold / AGGREGATOR.threshold == pytest.approx(duplicated / original)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"aggregator": dataclasses.replace(AGGREGATOR, threshold=251.0)}, "T = 251 is above the number of votes"),
        ({"aggregator": dataclasses.replace(AGGREGATOR, threshold=25.0), "classes": 10}, "rejects hardly any"),
        ({"aggregator": GNMax(sigma=180.0)}, "votes: the noise often outweighs even a unanimous vote"),
        ({"groups": [*LEVELS, PrivacyGroup("NONE", 1.0, 0)]}, "Group NONE has no holders."),
    ],
)
def test_the_plan_warns(options: dict, part: str) -> None:
    (note,) = plan_of(**options).notes
    assert part in note


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": []}, "consent"),
        ({"groups": [PrivacyGroup("A", 1.0, 300), PrivacyGroup("A", 2.0, 300)]}, "same name"),
        ({"groups": [PrivacyGroup("HIGH", 0.0, 300)]}, "budget of group HIGH"),
        ({"groups": [PrivacyGroup("HIGH", 1.0, 249)]}, "249 holders are too few"),
        ({"teachers": 0}, "at least 1 teacher"),
        ({"variant": "weighing"}, "variant 'weighing'"),
        ({"small_groups": "drop"}, "small_groups 'drop'"),
        ({"delta": 0.0}, "delta"),
        ({"variant": "vanishing", "exponent": -1.0}, "exponent"),
        ({"groups": [PrivacyGroup("A", 0.04, 500)], "variant": "upsampling"}, "raise precision"),
        ({"groups": APART, "variant": "upsampling", "teachers": 20}, "97 copies"),
    ],
)
def test_an_impossible_plan_is_refused_with_a_reason(options: dict, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_of(**options)
    with pytest.raises(KeyError):
        plan_of().index_of("MEDIUM")
