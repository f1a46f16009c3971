"""Noisy votes: labels have the right frequencies, and their charges are correct."""

import dataclasses
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from accounting.privacy import DEFAULT_ORDERS, gnmax_rdp, threshold_rdp
from common.noise import SimulationNoise
from learning.mechanisms import pate

DRAWS = 40_000
ALL = [cls(**{field.name: field.suggested(100) for field in cls.fields()}) for cls in pate.AGGREGATORS.values()]
by_name = pytest.mark.parametrize("aggregator", ALL, ids=lambda aggregator: aggregator.name)


def winning_probabilities(votes: list[float], noise: stats.rv_continuous) -> np.ndarray:
    """Compute Pr[class j has the largest noisy count] by adaptive quadrature over its noise."""

    def density(x: float, j: int) -> float:
        others = [noise.cdf(votes[j] + x - count) for i, count in enumerate(votes) if i != j]
        return noise.pdf(x) * math.prod(others)

    kinks = sorted({0.0, *(b - a for a in votes for b in votes)})
    grid = [-500.0, *kinks, 500.0]
    parts = list(itertools.pairwise(grid))
    return np.array([sum(integrate.quad(density, *part, args=(j,))[0] for part in parts) for j in range(len(votes))])


def assert_frequencies(labels: np.ndarray, probabilities: dict[int, float]) -> None:
    """Check by a chi-square test how often each label (or rejection) was drawn."""
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-6)
    observed = [np.sum(labels == label) for label in probabilities]
    expected = np.array([*probabilities.values()]) / sum(probabilities.values()) * len(labels)
    assert stats.chisquare(observed, expected).pvalue > 0.001


@pytest.mark.statistical
@pytest.mark.parametrize("votes", [[40.0, 40.0, 20.0], [12.75, 55.5, 31.75], [50.0, 50.0]])
@pytest.mark.parametrize(
    ("aggregator", "noise"),
    [(pate.GNMax(sigma=20.0), stats.norm(scale=20.0)), (pate.LNMax(gamma=0.05), stats.laplace(scale=20.0))],
    ids=["gnmax", "lnmax"],
)
def test_labels_are_as_frequent_as_the_noise_makes_them(aggregator: pate.Aggregator, noise, votes: list[float]) -> None:
    """This includes ties, which only the noise decides."""
    release = aggregator.release(np.tile(votes, (DRAWS, 1)), SimulationNoise(5))
    assert release.answered.all()
    assert_frequencies(release.labels, dict(enumerate(winning_probabilities(votes, noise))))


@pytest.mark.statistical
@pytest.mark.parametrize("student", [[0.1, 0.8, 0.1], [0.5, 0.3, 0.2], [0.0, 0.0, 0.0]])
def test_interactive_gnmax_asks_where_the_teachers_contradict_the_student(student: list[float]) -> None:
    votes = [60.0, 30.0, 10.0]
    aggregator = pate.InteractiveGNMax(sigma=20.0, sigma_threshold=30.0, threshold=40.0, confidence=0.7)
    release = aggregator.release(np.tile(votes, (DRAWS, 1)), SimulationNoise(7), np.tile(student, (DRAWS, 1)))
    margin = max(count - 100.0 * p for count, p in zip(votes, student, strict=True))
    passed = stats.norm.sf((40.0 - margin) / 30.0)
    winning = dict(enumerate(passed * winning_probabilities(votes, stats.norm(scale=20.0))))
    if max(student) > 0.7:
        assert_frequencies(release.labels[release.answered], {k: p / passed for k, p in winning.items()})
        assert (release.labels[~release.answered] == 1).all()
        np.testing.assert_array_equal(release.reinforced, ~release.answered)
    else:
        assert_frequencies(release.labels, {pate.REJECTED: 1 - passed, **winning})
        assert not release.reinforced.any()
    if not any(student):
        confident = pate.ConfidentGNMax(sigma=20.0, sigma_threshold=30.0, threshold=40.0)
        same = confident.release(np.tile(votes, (DRAWS, 1)), SimulationNoise(7))
        np.testing.assert_array_equal(same.labels, release.labels, "without a student it is Confident-GNMax")
    share = release.answered.mean()
    assert abs(share - passed) < 4 * math.sqrt(passed * (1 - passed) / DRAWS)


def test_a_vote_moves_the_interactive_check_by_its_weight_exactly() -> None:
    class Fixed(SimulationNoise):
        def normal(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
            return np.full(shape, self.value)

    def answered(leader: float, drawn: float, threshold: float, belief: float) -> bool:
        vote = pate.InteractiveGNMax(sigma=1.0, sigma_threshold=1.0, threshold=threshold, confidence=0.999)
        noise = Fixed(0)
        noise.value = drawn
        return bool(vote.release([[leader, 250.0 - leader]], noise, [[belief, 1 - belief]]).answered[0])

    # one more vote and 1 less noise give the same sum for any T, here the last one that passes in floating point
    for belief in np.random.default_rng(0).uniform(36 / 250, 37 / 250, 200):
        threshold = 100.0 - 250.0 * belief
        assert answered(100.0, 0.0, threshold, belief) == answered(101.0, -1.0, threshold, belief)


@pytest.mark.parametrize("student", [None, [[0.5, 0.5]], [[0.5, 0.5, 1.5]], [[0.5, 0.5, np.nan]]])
def test_interactive_gnmax_asks_for_the_students_probabilities(student) -> None:
    aggregator = pate.InteractiveGNMax(sigma=20.0, sigma_threshold=30.0, threshold=10.0, confidence=0.7)
    votes = [[1, 2, 3]]
    with pytest.raises(ValueError, match="student_probabilities"):
        aggregator.release(votes, SimulationNoise(0), student)
    with pytest.raises(ValueError, match="student_probabilities"):
        aggregator.costs(votes, sensitivity=1.0, orders=[2.0], method="data_independent", student_probabilities=student)


@pytest.mark.statistical
@by_name
def test_a_query_nobody_voted_on_is_decided_by_the_noise_alone(aggregator: pate.Aggregator) -> None:
    """Rejecting it would reveal its only voter, so every class is equally likely."""
    nobody = np.zeros((30_000, 3))
    release = aggregator.release(nobody, SimulationNoise(0), nobody)
    checks = isinstance(aggregator, pate.ConfidentGNMax)
    expected = stats.norm.sf(aggregator.threshold / aggregator.sigma_threshold) if checks else 1.0
    assert release.answered.mean() == pytest.approx(expected, abs=0.015)
    assert (release.labels[~release.answered] == pate.REJECTED).all()
    shares = np.bincount(release.labels[release.answered], minlength=3) / release.answered.sum()
    np.testing.assert_allclose(shares, 1 / 3, atol=5 / np.sqrt(release.answered.sum()))


@by_name
def test_one_class_has_one_answer_that_costs_nothing_and_no_query_has_none(aggregator: pate.Aggregator) -> None:
    votes, nothing = np.full((500, 1), 100.0), np.zeros((0, 3))
    release = aggregator.release(votes, SimulationNoise(0), np.zeros((500, 1)))
    assert set(release.labels[release.answered]) == {0}
    costs = aggregator.costs(
        votes, sensitivity=1.0, orders=[2.0, 8.0], method="exact", student_probabilities=np.zeros((500, 1))
    )
    assert aggregator.releases_counts or not costs.label.any()
    empty = aggregator.release(nothing, SimulationNoise(0), nothing)
    assert empty.labels.shape == empty.answered.shape == (0,)


@pytest.mark.parametrize("method", ["data_independent", "data_dependent", "exact"])
def test_costs_depend_on_every_parameter_and_on_what_a_check_looks_at(method) -> None:
    votes = np.array([[70.0, 20.0, 10.0], [40.0, 35.0, 25.0]])
    own = np.array([[30.0, 0.0, 2.0], [0.0, 9.0, 3.0]])
    few = {"sensitivity": 2.0, "orders": np.array([1.5, 8.0]), "method": method}
    how = few | {"group_votes": own, "teachers_per_holder": 2}
    cost = pate.ConfidentGNMax(sigma=9.0, sigma_threshold=20.0, threshold=50.0).costs(votes, **how)
    np.testing.assert_array_equal(cost.label, gnmax_rdp(votes, 9.0, **how))
    np.testing.assert_array_equal(cost.check, threshold_rdp(votes, 50.0, 20.0, **how))
    student = np.array([[0.6, 0.3, 0.1]])
    interactive = pate.InteractiveGNMax(sigma=9.0, sigma_threshold=20.0, threshold=15.0, confidence=0.9)
    cost = interactive.costs(votes[:1], student_probabilities=student, **few)
    np.testing.assert_array_equal(cost.label, gnmax_rdp(votes[:1], 9.0, **few))
    np.testing.assert_allclose(cost.check, threshold_rdp(votes[:1] - 100.0 * student, 15.0, 20.0, **few))


@by_name
def test_scaling_the_aggregator_with_the_votes_changes_nothing_but_the_unit(aggregator: pate.Aggregator) -> None:
    votes = np.random.default_rng(3).multinomial(100, [0.6, 0.3, 0.1], 50).astype(float)
    student = np.full(votes.shape, 1 / 3)
    scaled = aggregator.scaled(2.5)
    np.testing.assert_array_equal(
        scaled.release(2.5 * votes, SimulationNoise(2), student).labels,
        aggregator.release(votes, SimulationNoise(2), student).labels,
    )
    how = {"orders": [1.5, 8.0], "method": "data_dependent", "student_probabilities": student}
    large, small = scaled.costs(2.5 * votes, sensitivity=2.5, **how), aggregator.costs(votes, sensitivity=1.0, **how)
    np.testing.assert_allclose(large.label, small.label, rtol=1e-9)
    np.testing.assert_allclose(large.check, small.check, rtol=1e-9)


@by_name
def test_parameters_are_unchanged_after_storing_them(aggregator: pate.Aggregator) -> None:
    assert pate.aggregator_from_parameters(json.loads(json.dumps(aggregator.parameters()))) == aggregator


def test_unknown_parameters_are_refused() -> None:
    for parameters in ({"sigma": 1.0, "gamma": 1.0}, {"sigma": "40"}, {"sigma": True}, {}, {"name": "max"}):
        with pytest.raises(ValueError, match=r"gamma|sigma|no aggregator 'max'"):
            pate.aggregator_from_parameters({"name": "gnmax"} | parameters)


@by_name
def test_numbers_out_of_range_are_refused(aggregator: pate.Aggregator) -> None:
    for field in aggregator.fields():
        for bad in (0.0, -1.0, np.nan, np.inf, *([1.0] if field.name == "confidence" else [])):
            with pytest.raises(ValueError, match=field.name):
                dataclasses.replace(aggregator, **{field.name: bad})
    for votes in ([1.0, 2.0], [[]], [[np.nan, 1.0]]):
        with pytest.raises(ValueError, match="votes"):
            aggregator.release(votes, SimulationNoise(0), votes)
    for factor in (0.0, np.inf):
        with pytest.raises(ValueError, match="factor"):
            aggregator.scaled(factor)
    votes, student = [[-1.0, 2.0]], [[0.0, 1.0]]
    with pytest.raises(ValueError, match="votes must not be negative"):
        aggregator.costs(votes, sensitivity=1.0, orders=[2.0], method="data_independent", student_probabilities=student)
    assert len(aggregator.release(votes, SimulationNoise(0), student).labels) == 1, "totals with noise may be negative"


def test_teachers_that_agree_make_counts_no_cheaper() -> None:
    """The papers' gain from agreement applies to the winning label, not to the histogram."""
    votes, how = [[98.0, 1.0, 1.0]], {"sensitivity": 1.0, "orders": DEFAULT_ORDERS}
    label, counts = pate.GNMax(sigma=20.0), pate.NoisyCounts(sigma=20.0)
    independent = label.costs(votes, method="data_independent", **how).label
    assert (label.costs(votes, method="data_dependent", **how).label < independent).any()
    for method in ("data_independent", "data_dependent", "exact"):
        np.testing.assert_array_equal(counts.costs(votes, method=method, **how).label, independent)


ORDERS = np.array([1.5, 4.0, 16.0])
AGGREGATOR = pate.ConfidentGNMax(sigma=8.0, sigma_threshold=15.0, threshold=20.0)
repeatable = settings(derandomize=True, deadline=None, max_examples=60)
seeds = st.integers(0, 2**32 - 1)
GROUPS = [pate.PrivacyGroup(*of) for of in (("LOW", 3.0, 400), ("HIGH", 1.0, 250), ("AVERAGE", 2.0, 350))]


def planned(variant: str = "weighting"):
    return pate.make_plan(GROUPS, variant=variant, teachers=50, aggregator=AGGREGATOR, delta=1e-6)


def predictions(teachers: int, queries: int = 12, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(4).choice(classes, (teachers, queries), p=[0.7, 0.2, 0.1])


@pytest.mark.parametrize("method", ["data_independent", "data_dependent", "exact"])
def test_each_group_is_charged_by_its_own_weight(method) -> None:
    """The group with the larger ε has the smaller weight, so sorting them separately would charge the wrong groups."""
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


def test_retired_groups_are_charged_nothing_and_empty_votes_have_no_answer() -> None:
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
