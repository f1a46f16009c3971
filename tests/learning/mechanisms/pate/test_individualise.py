"""Budgets into duplicates, weights and shares, against first principles."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from accounting.privacy import DEFAULT_ORDERS, epsilon_from_rdp
from learning.mechanisms.pate import participation_frequencies, teacher_weights, upsampling_factors
from learning.mechanisms.pate.individualise import factors_for_most_labels

repeatable = settings(derandomize=True, deadline=None, max_examples=60)
budgets = st.lists(st.integers(1, 100).map(lambda tenths: tenths / 10), min_size=1, max_size=6)


def epsilon_of_gaussian(rho: float, delta: float) -> float:
    """The classic conversion of the RDP curve ρ·α, minimised over all real orders."""
    best = minimize_scalar(lambda log: rho * (1 + math.exp(log)) - math.log(delta) / math.exp(log), (-5.0, 5.0))
    return float(best.fun)


def labels_afforded(mu: list[int], holders: list[int], factors: tuple[int, ...]) -> Fraction:
    """The square root of the number of labels, in units of σ: that of the group whose accounts end first."""
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
    factors = upsampling_factors(budgets)
    ratios = {Fraction(round(10 * budget), int(factor)) for budget, factor in zip(budgets, factors, strict=True)}
    assert len(ratios) == 1
    assert math.gcd(*factors.tolist()) == 1


def test_precision_decides_which_budgets_are_told_apart() -> None:
    assert upsampling_factors([1.0, 1.04]).tolist() == [1, 1]
    assert upsampling_factors([1.0, 1.04], precision=2).tolist() == [25, 26]
    assert upsampling_factors([0.29, 0.58], precision=2).tolist() == [1, 2]  # 100 · 0.29 is a little less than 29
    with pytest.raises(ValueError, match="raise precision"):
        upsampling_factors([0.04, 1.0])


@repeatable
@given(budgets=budgets, seed=st.integers(0, 1000), scheme=st.sampled_from(["proportional", "calibrated"]))
def test_weights_of_all_teachers_sum_to_their_number(budgets: list[float], seed: int, scheme: str) -> None:
    teachers = np.random.default_rng(seed).integers(1, 200, len(budgets))
    weights = teacher_weights(budgets, teachers, scheme, delta=1e-5)
    assert weights @ teachers == pytest.approx(teachers.sum())
    assert (np.argsort(weights, kind="stable") == np.argsort(budgets, kind="stable")).all()


def test_proportional_weights_are_budgets_over_their_mean_and_participation_is_a_power_of_their_ratio() -> None:
    every_teacher = [1.0] * 85 + [2.0] * 107 + [3.0] * 58
    expected = np.array([1.0, 2.0, 3.0]) / np.mean(every_teacher)
    np.testing.assert_allclose(teacher_weights([1.0, 2.0, 3.0], [85, 107, 58]), expected)
    for exponent, power in ((1.0, 0.5), (2.0, 0.25), (4.0, 0.0625)):
        np.testing.assert_allclose(participation_frequencies([2.0, 1.0], exponent), [1.0, power])


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("budgets", [[1.0, 2.0, 3.0], [0.1, 8.0, 0.5, 20.0]])
def test_calibrated_weights_let_all_groups_run_out_together(budgets: list[float], delta: float) -> None:
    weights = teacher_weights(budgets, [30] * len(budgets), "calibrated", delta)
    first = np.argmax(budgets)
    root = math.sqrt(math.log(1 / delta))
    scale = (math.sqrt(root**2 + budgets[first]) - root) / weights[first]
    spent = [epsilon_of_gaussian((scale * weight) ** 2, delta) for weight in weights]
    np.testing.assert_allclose(spent, budgets, rtol=1e-6)


def test_calibrated_weights_fit_the_improved_conversion_too() -> None:
    budgets = np.array([0.5, 1.0, 4.0])
    weights = teacher_weights(budgets, [10, 10, 10], "calibrated", 1e-5, conversion="improved")
    curves = np.outer(weights**2, DEFAULT_ORDERS)
    affordable = max(
        scale for scale in np.geomspace(1e-4, 1, 4000) if (epsilon_from_rdp(scale * curves, 1e-5)[0] <= budgets).all()
    )
    np.testing.assert_allclose(epsilon_from_rdp(affordable * curves, 1e-5)[0], budgets, rtol=0.01)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: upsampling_factors([]), "at least one"),
        (lambda: upsampling_factors([1.0, 0.0]), "budgets"),
        (lambda: teacher_weights([1.0, np.inf], [1, 1]), "budgets"),
        (lambda: teacher_weights([1.0, 2.0], [1]), "teachers_per_group"),
        (lambda: teacher_weights([1.0, 2.0], [0, 0]), "teachers_per_group"),
        (lambda: teacher_weights([1.0], [1], "equal"), "weight scheme"),
        (lambda: teacher_weights([1.0], [1], "calibrated"), "delta"),
        (lambda: teacher_weights([1.0], [1], "calibrated", 1.0), "delta"),
        (lambda: teacher_weights([1e-6], [1], "calibrated", 1e-5, "improved"), "too small"),
        (lambda: participation_frequencies([1.0], 0.0), "exponent"),
        (lambda: participation_frequencies([-1.0]), "budgets"),
    ],
)
def test_bad_arguments_are_refused_by_name(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
