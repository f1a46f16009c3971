"""Tests of the conversion from RDP to (ε, δ)."""

import math
import warnings

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon

from accounting.privacy import DEFAULT_ORDERS, PAPER_ORDERS, epsilon_from_rdp
from accounting.privacy.papers.conversion import Conversion


def test_classic_is_the_proposition_of_mironov() -> None:
    epsilon, order = epsilon_from_rdp([0.5, 0.9, 3.0], 1e-3, [2, 4, 8], "classic")
    assert (epsilon, order) == (pytest.approx(0.9 + math.log(1e3) / 3), 4)


@pytest.mark.parametrize("slope", [0.001, 0.02, 0.5, 3.0])
def test_improved_agrees_with_dp_accounting(slope: float) -> None:
    epsilon, order = epsilon_from_rdp(slope * DEFAULT_ORDERS, 1e-6)
    expected, expected_order = compute_epsilon(DEFAULT_ORDERS, slope * DEFAULT_ORDERS, 1e-6)
    assert epsilon == pytest.approx(expected)
    assert order == expected_order


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-12])
@pytest.mark.parametrize("conversion", ["improved", "classic"])
def test_default_orders_hold_the_best_order_and_are_fine_enough(
    epsilon: float, delta: float, conversion: Conversion
) -> None:
    """For a Gaussian of about this ε, no end is reached, and continuous orders would gain less than a per cent."""
    slope = (math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))) ** 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got, _ = epsilon_from_rdp(slope * DEFAULT_ORDERS, delta, conversion=conversion)
    continuous = 1 + np.geomspace(1e-2, 1e5, 100_000)
    finest, _ = epsilon_from_rdp(slope * continuous, delta, continuous, conversion)
    assert finest <= got <= 1.01 * finest + 1e-4


def test_many_curves_at_once_give_what_each_gives_alone() -> None:
    curves = np.random.default_rng(1).uniform(0, 3, (4, 3, DEFAULT_ORDERS.size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        epsilon, order = epsilon_from_rdp(curves, 1e-5)
        assert epsilon.shape == order.shape == (4, 3)
        assert (epsilon[2, 1], order[2, 1]) == epsilon_from_rdp(curves[2, 1], 1e-5)


def test_nothing_spent_is_no_epsilon_and_no_curve_gives_a_negative_one() -> None:
    assert epsilon_from_rdp(np.zeros(DEFAULT_ORDERS.size), 1e-5)[0] == 0
    assert epsilon_from_rdp([1e-9, 1e-9, 1e-9], 0.5, [1.5, 1.9, 3.0])[0] == 0


def test_too_small_orders_raise_a_warning() -> None:
    with pytest.warns(UserWarning, match="widen the orders"):
        epsilon, order = epsilon_from_rdp(1e-4 * PAPER_ORDERS, 1e-5, PAPER_ORDERS, "classic")
    assert order == 50
    assert epsilon > math.log(1e5) / 49


def test_an_order_without_a_bound_is_passed_over() -> None:
    epsilon, order = epsilon_from_rdp([np.inf, 1.0, np.inf], 1e-5, [2, 3, 4], "classic")
    assert (epsilon, order) == (pytest.approx(1 + math.log(1e5) / 2), 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rdp": [1.0], "delta": 1e-5, "orders": [2, 3]}, "must match the 2 orders"),
        ({"rdp": [-1.0], "delta": 1e-5, "orders": [2]}, "negative or NaN"),
        ({"rdp": [np.nan], "delta": 1e-5, "orders": [2]}, "negative or NaN"),
        ({"rdp": [1.0], "delta": 0, "orders": [2]}, "between 0 and 1"),
        ({"rdp": [1.0], "delta": 1, "orders": [2]}, "between 0 and 1"),
        ({"rdp": [1.0], "delta": 1e-5, "orders": [1.0]}, "above 1"),
        ({"rdp": [1.0, 1.0], "delta": 1e-5, "orders": [3, 2]}, "ascend"),
        ({"rdp": [1.0], "delta": 1e-5, "orders": [2], "conversion": "best"}, "'improved' or 'classic'"),
    ],
)
def test_bad_input_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        epsilon_from_rdp(**arguments)
