"""Rényi costs of all mechanisms, which rehearsals show, and their conversion to (ε, δ)."""

import math
import warnings
from functools import partial

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from accounting.privacy import (
    DEFAULT_ORDERS,
    PAPER_ORDERS,
    epsilon_from_rdp,
    gaussian_rdp,
    gnmax_rdp,
    lnmax_rdp,
    sampled_gaussian_rdp,
    threshold_rdp,
)

MECHANISMS = {
    "gnmax": lambda votes, **options: gnmax_rdp(votes, 40.0, **options),
    "threshold": lambda votes, **options: threshold_rdp(votes, 60.0, 50.0, **options),
    "lnmax": lambda votes, **options: lnmax_rdp(votes, 0.05, **options),
}
METHODS = ["data_independent", "data_dependent", "exact"]
COSTS = [partial(cost, method=method) for cost in MECHANISMS.values() for method in METHODS]
votes = np.array([[80.0, 15.0, 5.0], [40.0, 38.0, 22.0], [33.0, 33.0, 33.0]])


def by_dp_accounting(noise_multiplier: float) -> np.ndarray:
    return RdpAccountant(DEFAULT_ORDERS).compose(GaussianDpEvent(noise_multiplier)).rdp


@pytest.mark.parametrize("weight", [0.3, 2.5])
def test_data_independent_costs_are_those_of_dp_accounting_and_of_theorem_2(weight: float) -> None:
    label = gnmax_rdp(votes, 40.0, sensitivity=weight)
    check = threshold_rdp(votes, 200.0, 150.0, sensitivity=weight)
    np.testing.assert_allclose(label, np.tile(by_dp_accounting(40 / (np.sqrt(2) * weight)), (3, 1)))
    np.testing.assert_allclose(check, np.tile(by_dp_accounting(150 / weight), (3, 1)))
    np.testing.assert_allclose(gaussian_rdp(150.0, weight), by_dp_accounting(150 / weight))
    moments = 2 * (0.05 * weight) ** 2 * (DEFAULT_ORDERS - 1) * DEFAULT_ORDERS  # PATE 2017, Theorem 2
    laplace = np.minimum(moments / (DEFAULT_ORDERS - 1), 2 * 0.05 * weight)
    np.testing.assert_allclose(lnmax_rdp(votes, 0.05, sensitivity=weight), np.tile(laplace, (3, 1)))


@mpmath.workdps(40)
def test_lnmax_is_theorem_3_of_the_paper() -> None:
    gamma, gaps = mpmath.mpf("0.05"), [218, 222]
    q = sum((2 + gamma * gap) / (4 * mpmath.exp(gamma * gap)) for gap in gaps)  # Lemma 4
    for moment in (1, 3, 8):
        stay = (1 - q) * ((1 - q) / (1 - mpmath.exp(2 * gamma) * q)) ** moment
        exact = mpmath.log(stay + q * mpmath.exp(2 * gamma * moment)) / moment
        cost = lnmax_rdp([[230.0, 12.0, 8.0]], 0.05, orders=[moment + 1.0], method="data_dependent")
        assert cost[0, 0] == pytest.approx(float(exact), rel=1e-9)


def test_sampled_gaussian_without_sampling_is_the_gaussian() -> None:
    np.testing.assert_allclose(sampled_gaussian_rdp(1.0, 3.0, 10), 10 * gaussian_rdp(3.0))
    assert (sampled_gaussian_rdp(0.01, 3.0, 10, [2.0, 16.0]) < 10 * gaussian_rdp(3.0, 1.0, [2.0, 16.0])).all()
    assert (sampled_gaussian_rdp(0.0, 3.0, 10) == 0).all()


@pytest.mark.parametrize("cost", COSTS, ids=range(len(COSTS)))
def test_each_query_has_its_own_finite_cost(cost: partial) -> None:
    together = cost(votes)
    assert together.shape == (3, DEFAULT_ORDERS.size)
    for row, query in zip(together, votes, strict=True):
        np.testing.assert_allclose(row, cost(query[None])[0], rtol=1e-9)
    assert cost(np.empty((0, 3))).shape == (0, DEFAULT_ORDERS.size)
    assert (cost(votes, sensitivity=0.0) == 0).all()
    without_teachers = cost(np.zeros((1, 3)))
    assert (np.isfinite(without_teachers) & (without_teachers >= 0)).all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_costs_follow_the_votes(mechanism: str) -> None:
    cost = MECHANISMS[mechanism]
    for method in ("data_dependent", "exact"):
        unanimous, tied = cost([[300.0, 0.0, 0.0], [60.0, 60.0, 60.0]], method=method)
        assert (unanimous < tied)[:60].all()
        if mechanism != "threshold":
            assert (cost([[5.0], [0.0]], method=method) == 0).all(), "one class reveals nothing"
    absent = np.zeros_like(votes)
    assert (cost(votes, method="exact", group_votes=absent) == 0).all(), "no teachers in the vote"
    absent[1, 0] = 2
    options = {"sensitivity": 2.0, "teachers_per_holder": 2, "orders": [2.0, 20.0]}
    costs = cost(votes, method="exact", group_votes=absent, **options)
    assert (costs > 0).all(axis=1).tolist() == [False, True, False]


BAD_COSTS = [
    *[
        (partial(cost, **{"votes": votes} | wrong), message)
        for cost in MECHANISMS.values()
        for wrong, message in [
            ({"votes": [1.0, 2.0]}, "shape"),
            ({"votes": [[np.nan, 2.0]]}, "finite"),
            ({"sensitivity": -1.0}, "sensitivity"),
            ({"sensitivity": np.inf}, "sensitivity"),
            ({"orders": [0.5]}, "orders"),
            ({"teachers_per_holder": 0}, "teachers_per_holder"),
            ({"method": "exact", "group_votes": np.zeros((1, 3))}, "group_votes"),
            ({"method": "exact", "group_votes": -np.ones((3, 3))}, "group_votes"),
        ]
    ],
    *[
        (partial(cost, scale), "above 0")
        for cost in (
            partial(gnmax_rdp, votes),
            partial(threshold_rdp, votes, 60.0),
            partial(lnmax_rdp, votes),
            gaussian_rdp,
            lambda scale: sampled_gaussian_rdp(0.1, scale, 1),
        )
        for scale in (0.0, -1.0, np.nan, np.inf)
    ],
    (lambda: gnmax_rdp(votes, 40.0, method="tight"), "choose one of"),  # type: ignore[arg-type]
    (lambda: threshold_rdp(votes, np.inf, 40.0), "threshold"),
    (lambda: sampled_gaussian_rdp(1.5, 1.0, 1), "sample_rate"),
    (lambda: sampled_gaussian_rdp(0.5, 1.0, -1), "steps"),
]


def test_impossible_votes_and_noise_are_refused() -> None:
    for call, message in BAD_COSTS:
        with pytest.raises(ValueError, match=message):
            call()


def test_classic_is_the_proposition_of_mironov() -> None:
    epsilon, order = epsilon_from_rdp([0.5, 0.9, 3.0], 1e-3, [2, 4, 8], "classic")
    assert (epsilon, order) == (pytest.approx(0.9 + math.log(1e3) / 3), 4)
    epsilon, order = epsilon_from_rdp([np.inf, 1.0, np.inf], 1e-5, [2, 3, 4], "classic")
    assert (epsilon, order) == (pytest.approx(1 + math.log(1e5) / 2), 3), "orders without a bound are skipped"


@pytest.mark.parametrize("slope", [0.001, 0.02, 3.0])
def test_improved_agrees_with_dp_accounting(slope: float) -> None:
    expected, expected_order = compute_epsilon(DEFAULT_ORDERS, slope * DEFAULT_ORDERS, 1e-6)
    assert epsilon_from_rdp(slope * DEFAULT_ORDERS, 1e-6) == (pytest.approx(expected), expected_order)


@pytest.mark.parametrize("conversion", ["improved", "classic"])
def test_default_orders_hold_the_best_order_and_are_fine_enough(conversion: str) -> None:
    """For Gaussians of about this ε, neither end is best, and continuous orders would gain less than one per cent."""
    continuous = 1 + np.geomspace(1e-2, 1e5, 100_000)
    for epsilon, delta in ((0.01, 1e-3), (0.01, 1e-12), (1.0, 1e-5), (100.0, 1e-3), (100.0, 1e-12)):
        slope = (math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))) ** 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got, _ = epsilon_from_rdp(slope * DEFAULT_ORDERS, delta, conversion=conversion)
        finest, _ = epsilon_from_rdp(slope * continuous, delta, continuous, conversion)
        assert finest <= got <= 1.01 * finest + 1e-4, (epsilon, delta)


def test_converting_many_curves_at_once_equals_converting_each() -> None:
    curves = np.random.default_rng(1).uniform(0, 3, (4, 3, DEFAULT_ORDERS.size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        epsilon, order = epsilon_from_rdp(curves, 1e-5)
        assert epsilon.shape == order.shape == (4, 3)
        assert (epsilon[2, 1], order[2, 1]) == epsilon_from_rdp(curves[2, 1], 1e-5)


def test_epsilon_is_never_negative_and_too_small_orders_raise_a_warning() -> None:
    assert epsilon_from_rdp(np.zeros(DEFAULT_ORDERS.size), 1e-5)[0] == 0
    assert epsilon_from_rdp([1e-9, 1e-9, 1e-9], 0.5, [1.5, 1.9, 3.0])[0] == 0
    with pytest.warns(UserWarning, match="widen the orders"):
        epsilon, order = epsilon_from_rdp(1e-4 * PAPER_ORDERS, 1e-5, PAPER_ORDERS, "classic")
    assert order == 50
    assert epsilon > math.log(1e5) / 49


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"orders": [2, 3]}, "must match the 2 orders"),
        ({"rdp": [-1.0]}, "negative or NaN"),
        ({"rdp": [np.nan]}, "negative or NaN"),
        ({"delta": 0}, "between 0 and 1"),
        ({"delta": 1}, "between 0 and 1"),
        ({"orders": [1.0]}, "above 1"),
        ({"rdp": [1.0, 1.0], "orders": [3, 2]}, "ascend"),
        ({"conversion": "best"}, "'improved' or 'classic'"),
    ],
)
def test_curves_that_cannot_be_converted_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        epsilon_from_rdp(**{"rdp": [1.0], "delta": 1e-5, "orders": [2]} | wrong)
