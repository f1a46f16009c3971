"""Tests of all mechanisms' costs: common properties, and data-independent costs against dp-accounting."""

from functools import partial

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant

from accounting.privacy import (
    DEFAULT_ORDERS,
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
every_cost = pytest.mark.parametrize(
    "cost", [partial(MECHANISMS[m], method=way) for m in MECHANISMS for way in METHODS], ids=lambda c: repr(c.keywords)
)
votes = np.array([[80.0, 15.0, 5.0], [40.0, 38.0, 22.0], [33.0, 33.0, 33.0]])


def by_dp_accounting(noise_multiplier: float) -> np.ndarray:
    return RdpAccountant(DEFAULT_ORDERS).compose(GaussianDpEvent(noise_multiplier)).rdp


@pytest.mark.parametrize("weight", [0.3, 1.0, 2.5])
def test_data_independent_costs_are_those_of_dp_accounting(weight: float) -> None:
    label = gnmax_rdp(votes, 40.0, sensitivity=weight)
    check = threshold_rdp(votes, 200.0, 150.0, sensitivity=weight)
    np.testing.assert_allclose(label, np.tile(by_dp_accounting(40 / (np.sqrt(2) * weight)), (3, 1)))
    np.testing.assert_allclose(check, np.tile(by_dp_accounting(150 / weight), (3, 1)))
    np.testing.assert_allclose(gaussian_rdp(150.0, weight), by_dp_accounting(150 / weight))


def test_sampled_gaussian_without_sampling_is_the_gaussian() -> None:
    np.testing.assert_allclose(sampled_gaussian_rdp(1.0, 3.0, 10), 10 * gaussian_rdp(3.0))
    assert (sampled_gaussian_rdp(0.01, 3.0, 10, [2.0, 16.0]) < 10 * gaussian_rdp(3.0, 1.0, [2.0, 16.0])).all()
    assert (sampled_gaussian_rdp(0.0, 3.0, 10) == 0).all()


@every_cost
def test_a_cost_is_a_row_per_query_and_the_query_alone_decides_it(cost: partial) -> None:
    together = cost(votes)
    assert together.shape == (3, DEFAULT_ORDERS.size)
    for row, query in zip(together, votes, strict=True):
        np.testing.assert_allclose(row, cost(query[None])[0], rtol=1e-9)


@every_cost
def test_no_queries_no_costs_and_no_weight_no_cost(cost: partial) -> None:
    assert cost(np.empty((0, 3))).shape == (0, DEFAULT_ORDERS.size)
    assert (cost(votes, sensitivity=0.0) == 0).all()


@pytest.mark.parametrize("method", ["data_dependent", "exact"])
@pytest.mark.parametrize("mechanism", ["gnmax", "lnmax"])
def test_one_class_tells_nothing(mechanism: str, method: str) -> None:
    assert (MECHANISMS[mechanism]([[5.0], [0.0]], method=method) == 0).all()


@every_cost
def test_no_teachers_at_all_has_a_finite_cost(cost: partial) -> None:
    empty = cost(np.zeros((1, 3)))
    assert np.isfinite(empty).all()
    assert (empty >= 0).all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_group_without_teachers_in_the_vote_pays_nothing(mechanism: str) -> None:
    absent = np.zeros_like(votes)
    assert (MECHANISMS[mechanism](votes, method="exact", group_votes=absent) == 0).all()
    absent[1, 0] = 2
    options = {"sensitivity": 2.0, "teachers_per_holder": 2, "orders": [2.0, 20.0]}
    costs = MECHANISMS[mechanism](votes, method="exact", group_votes=absent, **options)
    assert (costs > 0).all(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_agreement_is_cheaper_than_a_tie(mechanism: str) -> None:
    for method in ("data_dependent", "exact"):
        costs = MECHANISMS[mechanism]([[300.0, 0.0, 0.0], [60.0, 60.0, 60.0]], method=method)
        assert (costs[0] < costs[1])[:60].all()


@every_cost
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"votes": [1.0, 2.0]}, "shape"),
        ({"votes": [[np.nan, 2.0]]}, "finite"),
        ({"votes": votes, "sensitivity": -1.0}, "sensitivity"),
        ({"votes": votes, "sensitivity": np.inf}, "sensitivity"),
        ({"votes": votes, "orders": [0.5]}, "orders"),
        ({"votes": votes, "teachers_per_holder": 0}, "teachers_per_holder"),
    ],
)
def test_bad_input_is_refused(cost: partial, wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cost(**wrong)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("group", [np.zeros((1, 3)), -np.ones((3, 3))])
def test_bad_group_votes_are_refused(mechanism: str, group: np.ndarray) -> None:
    with pytest.raises(ValueError, match="group_votes"):
        MECHANISMS[mechanism](votes, method="exact", group_votes=group)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_no_noise_is_refused(scale: float) -> None:
    for call in (
        lambda: gnmax_rdp(votes, scale),
        lambda: threshold_rdp(votes, 60.0, scale),
        lambda: lnmax_rdp(votes, scale),
        lambda: gaussian_rdp(scale),
        lambda: sampled_gaussian_rdp(0.1, scale, 1),
    ):
        with pytest.raises(ValueError, match="above 0"):
            call()


def test_unknown_methods_and_impossible_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one of"):
        gnmax_rdp(votes, 40.0, method="tight")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threshold"):
        threshold_rdp(votes, np.inf, 40.0)
    with pytest.raises(ValueError, match="sample_rate"):
        sampled_gaussian_rdp(1.5, 1.0, 1)
    with pytest.raises(ValueError, match="steps"):
        sampled_gaussian_rdp(0.5, 1.0, -1)
