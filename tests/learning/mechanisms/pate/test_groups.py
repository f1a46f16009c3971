"""From budgets to duplicates, weights and frequencies; assigning holders to teachers, and teachers that do not vote."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from accounting.privacy import gdp_mu
from learning.formats import catalogue_load
from learning.learners import learner_create
from learning.mechanisms import pate
from learning.mechanisms.pate.teachers import PublicGraph, teacher_classes
from learning.mechanisms.pate.votes import factors_for_most_labels
from learning.mechanisms.protocol import PlanError
from learning.representations import default_representation

repeatable = settings(derandomize=True, deadline=None, max_examples=60)
budgets = st.lists(st.integers(1, 100).map(lambda tenths: tenths / 10), min_size=1, max_size=6)


def epsilon_of_gaussian(rho: float, delta: float) -> float:
    """Convert the RDP curve ρ·α in the classic way, minimised over all real orders."""
    best = minimize_scalar(lambda log: rho * (1 + math.exp(log)) - math.log(delta) / math.exp(log), (-5.0, 5.0))
    return float(best.fun)


def labels_afforded(mu: list[int], holders: list[int], factors: tuple[int, ...]) -> Fraction:
    """Return the square root of the number of labels until the first group's accounts run out, in units of σ."""
    growth = Fraction(sum(n * f for n, f in zip(holders, factors, strict=True)), sum(holders))
    return min(Fraction(one, f) for one, f in zip(mu, factors, strict=True)) * growth


@repeatable
@given(st.lists(st.tuples(st.integers(4, 20), st.integers(1, 1_000)), min_size=1, max_size=4))
def test_no_other_duplicates_afford_more_labels(groups: list[tuple[int, int]]) -> None:
    mu, holders = [list(column) for column in zip(*groups, strict=True)]
    factors = tuple(factors_for_most_labels(mu, holders).tolist())
    assert factors[mu.index(min(mu))] == 1
    ranges = [range(1, one // min(mu) + 2) if one > min(mu) else [1] for one in mu]
    best = max(labels_afforded(mu, holders, others) for others in itertools.product(*ranges))
    assert labels_afforded(mu, holders, factors) >= best * (1 - Fraction(1, 10**9))


@repeatable
@given(budgets=budgets)
def test_factors_are_the_smallest_integers_in_the_ratio_of_the_budgets(budgets: list[float]) -> None:
    factors = pate.upsampling_factors(budgets)
    ratios = {Fraction(round(10 * budget), int(factor)) for budget, factor in zip(budgets, factors, strict=True)}
    assert len(ratios) == 1
    assert math.gcd(*factors.tolist()) == 1


def test_precision_determines_which_budgets_are_distinguished() -> None:
    assert pate.upsampling_factors([1.0, 1.04]).tolist() == [1, 1]
    assert pate.upsampling_factors([1.0, 1.04], precision=2).tolist() == [25, 26]
    assert pate.upsampling_factors([0.29, 0.58], precision=2).tolist() == [1, 2]  # 100 · 0.29 is a little less than 29
    with pytest.raises(ValueError, match="raise precision"):
        pate.upsampling_factors([0.04, 1.0])


def test_proportional_weights_are_budgets_over_their_mean_and_participation_is_a_power_of_their_ratio() -> None:
    every_teacher = [1.0] * 85 + [2.0] * 107 + [3.0] * 58
    expected = np.array([1.0, 2.0, 3.0]) / np.mean(every_teacher)
    np.testing.assert_allclose(pate.teacher_weights([1.0, 2.0, 3.0], [85, 107, 58]), expected)
    for exponent, power in ((1.0, 0.5), (2.0, 0.25), (4.0, 0.0625)):
        np.testing.assert_allclose(pate.participation_frequencies([2.0, 1.0], exponent), [1.0, power])


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("budgets", [[1.0, 2.0, 3.0], [0.1, 8.0, 0.5, 20.0]])
def test_calibrated_weights_let_all_groups_run_out_together(budgets: list[float], delta: float) -> None:
    weights = pate.teacher_weights(budgets, [30] * len(budgets), "calibrated", delta)
    first = np.argmax(budgets)
    root = math.sqrt(math.log(1 / delta))
    scale = (math.sqrt(root**2 + budgets[first]) - root) / weights[first]
    spent = [epsilon_of_gaussian((scale * weight) ** 2, delta) for weight in weights]
    np.testing.assert_allclose(spent, budgets, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pate.upsampling_factors([]), "at least one"),
        (lambda: pate.upsampling_factors([1.0, 0.0]), "budgets"),
        (lambda: pate.teacher_weights([1.0, np.inf], [1, 1]), "budgets"),
        (lambda: pate.teacher_weights([1.0, 2.0], [1]), "teachers_per_group"),
        (lambda: pate.teacher_weights([1.0, 2.0], [0, 0]), "teachers_per_group"),
        (lambda: pate.teacher_weights([1.0], [1], "equal"), "weight scheme"),
        (lambda: pate.teacher_weights([1.0], [1], "calibrated"), "delta"),
        (lambda: pate.teacher_weights([1.0], [1], "calibrated", 1.0), "delta"),
        (lambda: pate.teacher_weights([1e-6], [1], "calibrated", 1e-5, "improved"), "too small"),
        (lambda: pate.participation_frequencies([1.0], 0.0), "exponent"),
        (lambda: pate.participation_frequencies([-1.0]), "budgets"),
    ],
)
def test_bad_arguments_are_refused_by_name(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def planned(holders: list[int], variant: str, teachers: int):
    groups = [pate.PrivacyGroup(f"G{i}", 1.0 + i, count) for i, count in enumerate(holders)]
    plan = pate.make_plan(groups, variant=variant, teachers=teachers, aggregator=pate.GNMax(sigma=1.0), delta=1e-5)
    return plan, np.repeat([plan.index_of(group.name) for group in groups], holders)


@repeatable
@given(
    holders=st.lists(st.integers(20, 90), min_size=1, max_size=4),
    teachers=st.integers(5, 20),
    variant=st.sampled_from(pate.VARIANTS),
    seed=st.integers(0, 1000),
)
def test_holders_go_where_their_group_belongs_and_teachers_have_equal_parts(holders, teachers, variant, seed) -> None:
    plan, group_of_holder = planned(holders, variant, teachers)
    holder, teacher = pate.assign(plan, group_of_holder, np.random.default_rng(seed))
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
        # exactly the accounting's limit on how far a holder can move a vote: both are rounded to the same grid
        assert weights[own].sum() == plan.groups[index].sensitivity
    sizes = np.bincount(teacher, minlength=plan.teachers)
    for index in range(len(plan.groups)):
        own = sizes[plan.members(index)]
        assert own.min() >= 1
        assert own.max() - own.min() <= 1
    if variant != "upsampling":
        assert len(set(holder.tolist())) == len(holder), "the parts are not disjoint"


def test_no_teacher_learns_from_excluded_holders() -> None:
    plan, _ = planned([30, 40], "weighting", 10)
    groups = np.array([pate.LEFT_OUT] * 5 + [0] * 30 + [1] * 40 + [pate.LEFT_OUT] * 5)
    holder, _ = pate.assign(plan, groups, np.random.default_rng(0))
    assert sorted(holder) == list(range(5, 75))


def test_parts_are_drawn_and_duplicates_of_different_holders_meet_different_teachers() -> None:
    """Duplicates are spread at random, so no two teachers have nearly the same part.

    The same seed gives the same assignment.
    """
    plan, groups = planned([20, 400], "upsampling", 10)
    first, again, other = (pate.assign(plan, groups, np.random.default_rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    holder, teacher = first
    learns_from = np.zeros((plan.teachers, len(groups)))
    learns_from[teacher, holder] = 1
    shared = (learns_from @ learns_from.T)[~np.eye(plan.teachers, dtype=bool)]
    expected = 400 * 2 / (plan.teachers * (plan.teachers - 1))
    assert shared.max() < 4 * expected


def test_other_holders_than_planned_are_refused() -> None:
    plan, _ = planned([30, 40], "weighting", 10)
    for groups in ([0] * 30 + [1] * 39, [0] * 30 + [2] * 40, [-2] * 30 + [1] * 40, [0.5] * 70):
        with pytest.raises(ValueError, match=r"plan is for \[30, 40\]|index_of|integers"):
            pate.assign(plan, groups, np.random.default_rng(0))


GROUPS = [pate.PrivacyGroup(*of) for of in (("HIGH", 1.0, 250), ("AVERAGE", 2.0, 450), ("LOW", 3.0, 300))]


def plan_of(variant: str = "vanishing"):
    return pate.make_plan(GROUPS, variant=variant, teachers=100, aggregator=pate.GNMax(sigma=10.0), delta=1e-6)


@st.composite
def batches(draw):
    """Yield costs of a batch for a participant, who took part, and which queries were answered."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    teachers, queries, orders = draw(st.integers(1, 6)), draw(st.integers(0, 12)), 3
    costs = pate.QueryCosts(check=rng.random((queries, orders)), label=rng.random((queries, orders)))
    return costs, rng.random((teachers, queries)) < 0.5, rng.random(queries) < 0.6


def test_every_vote_has_the_planned_participants_drawn_again_for_each_vote() -> None:
    plan = plan_of()
    present = pate.draw_participation(plan, 400, np.random.default_rng(0))
    assert (present.sum(axis=0) == plan.votes).all()
    for index, group in enumerate(plan.groups):
        own = present[plan.members(index)]
        assert (own.sum(axis=0) == group.participants).all()
        assert own.sum(axis=1).max() - own.sum(axis=1).min() <= 1
    own = present[plan.members(1)]
    assert len({column.tobytes() for column in own.T}) > 390
    together = own.astype(float) @ own.T / 400
    share = plan.groups[1].participants / plan.groups[1].teachers
    pairs = together[~np.eye(len(together), dtype=bool)]
    assert np.abs(pairs - share**2).max() < 0.12
    for variant in ("standard", "weighting", "upsampling"):
        plan = plan_of(variant)
        assert np.array_equal(
            pate.draw_participation(plan, 5, np.random.default_rng(0)), np.ones((plan.teachers, 5), bool)
        )


@repeatable
@given(batch=batches())
def test_a_group_pays_for_its_costliest_teacher_at_every_query_for_any_noise(batch) -> None:
    costs, present, answered = batch
    added = pate.participation_costs(costs, present, answered)
    assert (added.check >= 0).all() and (added.label >= 0).all()
    paid = np.cumsum(added.check + answered[:, None] * added.label, axis=0)
    for teacher in present:
        took_part = teacher[:, None] * (costs.check + answered[:, None] * costs.label)
        assert (paid >= np.cumsum(took_part, axis=0) - 1e-12).all()
    np.testing.assert_allclose(added.check.sum(axis=0), (present @ costs.check).max(axis=0))
    labels = (present & answered) @ costs.label
    np.testing.assert_allclose((answered[:, None] * added.label).sum(axis=0), labels.max(axis=0))
    for query in range(len(answered)):
        other = answered.copy()
        other[query] = not other[query]
        again = pate.participation_costs(costs, present, other)
        np.testing.assert_array_equal(again.label[: query + 1], added.label[: query + 1])
        np.testing.assert_array_equal(again.check, added.check)
    always = pate.participation_costs(costs, np.ones_like(present), answered)
    np.testing.assert_allclose(always.check, costs.check)
    np.testing.assert_allclose(always.label, costs.label)


def test_shapes_that_do_not_fit_are_refused() -> None:
    costs = pate.QueryCosts(check=np.zeros((4, 1)), label=np.zeros((4, 1)))
    for shape, answered in (((2, 3), 4), ((2, 4), 1), ((0, 4), 4)):
        with pytest.raises(ValueError, match="participation"):
            pate.participation_costs(costs, np.ones(shape), [True] * answered)


def test_a_small_group_is_copied_into_the_teachers_in_which_it_counts_most() -> None:
    """Within their promise, two teachers of the strictest group have more weight than one of the next."""
    groups = [pate.PrivacyGroup(*of) for of in (("HIGH", 1.0, 100), ("AVERAGE", 2.0, 100), ("LOW", 3.0, 3))]
    options = {"variant": "weighting", "teachers": 20, "delta": 1e-5, "weight_scheme": "gdp", "small_groups": "copy"}
    plan = pate.make_plan(groups, aggregator=pate.GNMax(sigma=8.0), **options)
    assert [(group.name, group.teachers, group.host, group.factor) for group in plan.groups] == [
        ("HIGH", 10, "", 1),
        ("AVERAGE", 10, "", 1),
        ("LOW", 0, "HIGH", 2),
    ]
    high, average, low = plan.groups
    assert average.sensitivity < low.sensitivity == 2 * high.weight
    shares = [group.sensitivity / gdp_mu(group.epsilon, 1e-5) for group in plan.groups]
    assert shares[2] <= max(shares), "it uses the same share of its promise as the others"
    np.testing.assert_array_equal(plan.members(2), plan.members(0))
    group_of = np.repeat([0, 1, 2], [100, 100, 3])
    drawn = pate.assign(plan, group_of, np.random.default_rng(0))
    for positions, teachers in (drawn, pate.assign_keyed(plan, np.arange(203), group_of, b"key")):
        for holder in (200, 201, 202):
            mine = teachers[positions == holder]
            assert len(set(mine.tolist())) == 2 and plan.members(0)[mine].all()
    with pytest.raises(PlanError, match="Only the weighting variant can copy small groups into"):
        pate.make_plan(groups, aggregator=pate.GNMax(sigma=8.0), **options | {"variant": "vanishing"})


@pytest.mark.parametrize("teachers", [24, 31, 100])
def test_a_holder_of_three_times_the_weight_is_copied_three_times_despite_rounding(teachers: int) -> None:
    """With 24 teachers, the weight rounded to the grid is 2.99998 times the other."""
    groups = [pate.PrivacyGroup(*of) for of in (("HIGH", 1.0, 3000), ("AVERAGE", 2.0, 2000), ("LOW", 3.0, 5))]
    options = {"variant": "weighting", "teachers": teachers, "delta": 1e-5, "small_groups": "copy"}
    low = pate.make_plan(groups, aggregator=pate.GNMax(sigma=8.0), **options).groups[2]
    assert (low.name, low.host, low.factor) == ("LOW", "HIGH", 3)


@pytest.fixture(scope="module")
def graph() -> PublicGraph:
    points = catalogue_load("digits").public.x
    fitted = default_representation(points.shape[1:]).fit(points)
    return PublicGraph.of(fitted, fitted.transform(points))


@pytest.mark.parametrize("name", ["nearest_neighbour", "logistic_regression"])
def test_public_points_without_labels_make_teachers_better(graph: PublicGraph, name: str) -> None:
    splits, learner, right = catalogue_load("digits"), learner_create(name), []
    for number in range(12):
        mine = splits.private[number * 13 : (number + 1) * 13]
        about = {"classes": 10, "seed": number}
        said = [teacher_classes(learner, mine.x, mine.y, splits.public.x, one, **about) for one in (None, graph)]
        right.append([float((each == splits.public.y).mean()) for each in said])
    alone, beside = np.mean(right, axis=0)
    assert beside > alone + (0.08 if name == "nearest_neighbour" else 0.005)


def test_a_teacher_of_one_class_says_that_class(graph: PublicGraph) -> None:
    splits, learner = catalogue_load("digits"), learner_create("nearest_neighbour")
    mine = splits.private[:1]
    said = teacher_classes(learner, mine.x, mine.y, splits.public.x, graph, classes=10, seed=0)
    assert (said == mine.y[0]).mean() > 0.9, "the whole promise of its records"
