"""Baselines: every group keeps its own ε in them, too."""

from functools import partial

import numpy as np
import pytest

from accounting.privacy import gdp_mu, sampled_gaussian_epsilon
from learning.mechanisms.sampled_steps.baselines import group_after_group, non_private, standard, without_strictest
from learning.mechanisms.sampled_steps.calibration import epsilon_cost

EPSILONS, SIZES = np.array([2.0, 1.0, 3.0]), np.array([300, 200, 500])
TARGETS = gdp_mu(EPSILONS, 1e-5)
RUN = {"cost": partial(epsilon_cost, delta=1e-5), "steps": 200, "rate": 0.05, "clip_norm": 0.2}


@pytest.mark.parametrize(
    ("baseline", "reached"),
    [(standard, [1, 1, 1]), (without_strictest, [2, 0, 2]), (group_after_group, [2, 1, 3])],
)
def test_each_group_spends_what_the_baseline_says(baseline, reached: list[int]) -> None:
    phases = baseline(TARGETS, SIZES, **RUN)
    assert sum(steps for _, steps in phases) == 200
    spent = np.zeros(3)
    for mechanism, steps in phases:
        assert mechanism.rates @ SIZES == pytest.approx(50)
        assert mechanism.expected == pytest.approx(50)
        for group in np.flatnonzero(mechanism.rates):
            assert spent[group] == 0, "a group is in one phase alone: nothing has to be added up"
            spent[group] = sampled_gaussian_epsilon(mechanism.rates[group], mechanism.noise_multiplier, steps, 1e-5)
    np.testing.assert_allclose(spent, reached, rtol=0.01)
    assert (spent <= EPSILONS).all()


def test_groups_are_ordered_by_epsilon_with_proportional_sizes() -> None:
    phases = group_after_group(TARGETS, SIZES, **RUN)
    assert [int(np.flatnonzero(mechanism.rates)[0]) for mechanism, _ in phases] == [1, 0, 2]
    assert [steps for _, steps in phases] == [40, 60, 100]


def test_nobody_is_left_where_all_promises_are_equal() -> None:
    with pytest.raises(ValueError, match="same"):
        without_strictest([1.0, 1.0], [1, 1], **RUN)


def test_without_privacy_there_is_no_noise_and_as_many_are_drawn() -> None:
    ((mechanism, steps),) = non_private(SIZES, steps=200, rate=0.05, clip_norm=0.2)
    assert (mechanism.noise_multiplier, mechanism.expected, steps) == (0.0, 50.0, 200)
    assert mechanism.norms.min() >= 100
