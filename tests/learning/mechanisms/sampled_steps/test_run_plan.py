"""Plans of sampled runs: rates and norms that spend every group's promise, baselines, charges, notes."""

import json
from functools import partial

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from accounting.caps import caps_of
from accounting.privacy import gdp_delta, gdp_mu, sampled_gaussian_epsilon
from learning.mechanisms.sampled_steps.rates import epsilon_cost, sample_rates, scale_norms
from learning.mechanisms.sampled_steps.run_plan import (
    VARIANTS,
    group_after_group,
    non_private,
    plan_sampled,
    standard,
    usual_parameters,
    without_strictest,
)
from tests.accounting.privacy.test_sampled_charge import delta_from_below

MNIST = {"delta": 1e-5, "steps": 9375, "rate": 512 / 60000}
CAPS = caps_of([1.0, 2.0, 3.0], 1e-5 - 1e-7)
RUN = {"share": 1.0, "slack": 1e-7, "steps": 9375, "rate": 512 / 60000, "clip_norm": 0.2, "weights": 26_010}
exhaustive = pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("epsilons", "sizes", "run"),
    [
        pytest.param([1.0, 2.0, 3.0], [0.34, 0.43, 0.23], MNIST, id="published", marks=exhaustive),
        pytest.param([1.0, 3.0], [2, 1], {"delta": 1e-5, "steps": 20, "rate": 0.2}, id="few steps"),
        pytest.param([0.1, 8.0], [1, 1], {"delta": 1e-6, "steps": 1000, "rate": 0.1}, id="far", marks=exhaustive),
        pytest.param([20.0, 5.0], [3, 1], {"delta": 1e-5, "steps": 50, "rate": 0.05}, id="quiet", marks=exhaustive),
        pytest.param([1.0, 1.0], [1, 2], {"delta": 1e-5, "steps": 100, "rate": 1.0}, id="everybody in every step"),
    ],
)
def test_every_promise_is_spent_at_the_same_mean_rate_and_norm(epsilons: list, sizes: list, run: dict) -> None:
    """Checked by our costs, and by dp-accounting's accountant of sampling on its own grid."""
    sigma, rates = sample_rates(epsilons, sizes, **run)
    assert np.average(rates, weights=sizes) == pytest.approx(run["rate"], rel=1e-9)
    for epsilon, rate in set(zip(epsilons, rates.tolist(), strict=True)):
        assert 0.99 * epsilon <= sampled_gaussian_epsilon(rate, sigma, run["steps"], run["delta"]) <= epsilon
        event = PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
        accountant = PLDAccountant(value_discretization_interval=5e-4 * min(1, epsilon)).compose(event, run["steps"])
        assert accountant.get_epsilon(run["delta"]) == pytest.approx(epsilon, rel=0.01)
    sigma, norms = scale_norms(epsilons, sizes, **run, clip_norm=0.2)
    assert np.average(norms, weights=sizes) == pytest.approx(0.2, rel=1e-9)
    for epsilon, norm in set(zip(epsilons, norms.tolist(), strict=True)):
        reached = sampled_gaussian_epsilon(run["rate"], sigma * 0.2 / norm, run["steps"], run["delta"])
        assert 0.99 * epsilon <= reached <= epsilon


def test_promises_are_spent_by_a_convolution_written_from_the_definition() -> None:
    """δ from below, without dp-accounting, is only slightly less than promised at ε, in one direction or the other."""
    epsilons, run = [0.5, 1.5], {"delta": 1e-5, "steps": 10, "rate": 0.1}
    sigma, rates = sample_rates(epsilons, [2, 1], **run)
    for epsilon, rate in zip(epsilons, rates.tolist(), strict=True):
        spent = [
            delta_from_below(rate, sigma, run["steps"], adding, np.array([epsilon]))[0] for adding in (False, True)
        ]
        assert 0.93 * run["delta"] <= max(spent) <= run["delta"] * (1 + 1e-9)


@pytest.mark.parametrize(("sigma", "epsilon"), [(3.42529, 0.917), pytest.param(1.032, 4.678, marks=exhaustive)])
def test_noise_of_the_published_runs(sigma: float, epsilon: float) -> None:
    """The ε that the loss distribution gives for the published noise leads back to that noise."""
    found, rates = sample_rates([epsilon], [1], **MNIST)
    assert found == pytest.approx(sigma, rel=1.5e-3)
    assert rates == pytest.approx([MNIST["rate"]])


def test_the_harmonic_mean_of_noise_keeps_the_mean_norm_and_equal_promises_are_one_group() -> None:
    run = {"delta": 1e-5, "steps": 20, "rate": 0.2}
    sigma, norms = scale_norms([1.0, 3.0], [1, 1], **run, clip_norm=1.0)
    own = [sample_rates([epsilon], [6], **run)[0] for epsilon in (1.0, 3.0)]
    assert sigma == pytest.approx(2 / (1 / own[0] + 1 / own[1]))
    assert np.mean(norms) == pytest.approx(1.0)
    assert norms[1] / norms[0] == pytest.approx(own[0] / own[1])
    together, rates = sample_rates([1.0, 1.0], [1, 5], **run)
    assert together == own[0] and rates == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize(
    ("baseline", "reached"), [(standard, [1, 1, 1]), (without_strictest, [2, 0, 2]), (group_after_group, [2, 1, 3])]
)
def test_each_group_spends_what_the_baseline_says(baseline, reached: list[int]) -> None:
    epsilons, sizes = np.array([2.0, 1.0, 3.0]), np.array([300, 200, 500])
    run = {"cost": partial(epsilon_cost, delta=1e-5), "steps": 200, "rate": 0.05, "clip_norm": 0.2}
    phases = baseline(gdp_mu(epsilons, 1e-5), sizes, **run)
    assert sum(steps for _, steps in phases) == 200
    spent = np.zeros(3)
    for mechanism, steps in phases:
        assert mechanism.rates @ sizes == pytest.approx(50) == mechanism.expected
        for group in np.flatnonzero(mechanism.rates):
            assert spent[group] == 0, "each group is in one phase only, so nothing is composed"
            spent[group] = sampled_gaussian_epsilon(mechanism.rates[group], mechanism.noise_multiplier, steps, 1e-5)
    np.testing.assert_allclose(spent, reached, rtol=0.01)
    assert (spent <= epsilons).all()
    if baseline is group_after_group:  # the strictest first, each in proportion to its size
        assert [(int(np.argmax(mechanism.rates)), steps) for mechanism, steps in phases] == [(1, 40), (0, 60), (2, 100)]
    if baseline is standard:
        ((mechanism, steps),) = non_private(sizes, steps=200, rate=0.05, clip_norm=0.2)
        assert (mechanism.noise_multiplier, mechanism.expected, steps) == (0.0, 50.0, 200)
        assert mechanism.norms.min() >= 100, "nothing is clipped without privacy"
    if baseline is without_strictest:
        with pytest.raises(ValueError, match="same"):
            without_strictest([1.0, 1.0], [1, 1], **run)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_group_is_charged_nearly_its_share_and_keeps_its_promise(variant: str) -> None:
    sizes = np.array([20_400, 25_800, 13_800])
    plan = plan_sampled(variant, CAPS, sizes, **RUN)
    mechanism = plan.mechanism
    assert ((plan.charges >= 0.99 * CAPS) & (plan.charges <= CAPS)).all()
    assert np.average(mechanism.rates, weights=sizes) == pytest.approx(512 / 60000)
    assert np.average(mechanism.norms, weights=sizes) == pytest.approx(0.2)
    assert mechanism.expected == pytest.approx(512)
    for epsilon, rate, norm in zip([1, 2, 3], mechanism.rates.tolist(), mechanism.norms.tolist(), strict=True):
        own = mechanism.noise_multiplier * mechanism.clip_norm / norm
        assert 0.97 * epsilon <= sampled_gaussian_epsilon(rate, own, plan.steps, 1e-5) <= epsilon
    assert plan.notes == ()
    assert json.loads(json.dumps(plan.to_json()))["charges"] == plan.charges.tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_charge_dominates_the_run_in_both_directions(variant: str) -> None:
    run = RUN | {"steps": 40, "rate": 0.05, "share": 0.6, "slack": 1e-6}
    plan = plan_sampled(variant, CAPS[[0, 2]], [2, 1], **run)
    mechanism = plan.mechanism
    assert (plan.charges <= 0.6 * CAPS[[0, 2]]).all()
    for rate, norm, charge in zip(mechanism.rates, mechanism.norms, plan.charges, strict=True):
        own = mechanism.noise_multiplier * mechanism.clip_norm / norm
        points = np.linspace(0, 4, 12)
        bound = 1e-6 + (1 - 1e-6) * gdp_delta(charge**0.5, points)
        for adding in (False, True):
            assert (delta_from_below(rate, own, 40, adding, points) <= bound + 1e-11).all()


def test_usual_parameters_suit_few_people_and_many_and_half_of_the_share_needs_more_noise() -> None:
    for people, rate in ((0.0, 1.0), (100.0, 1.0), (5_120.0, 0.1), (1e6, 0.005)):
        assert usual_parameters("mlp", people).rate == pytest.approx(rate), people
    usual = usual_parameters("mlp", 5_120.0)
    chosen = {"steps": usual.steps, "rate": usual.rate, "clip_norm": usual.clip_norm}
    whole, half = (
        plan_sampled("scale", CAPS[:1], [5_120], **(RUN | chosen | {"share": share})) for share in (1.0, 0.5)
    )
    assert whole.charges[0] > 0.98 * CAPS[0]
    assert half.mechanism.noise_multiplier > 1.2 * whole.mechanism.noise_multiplier
    assert half.charges[0] <= CAPS[0] / 2
    (note,) = plan_sampled("sample", CAPS[:1], [2_000], **(RUN | {"steps": 500, "rate": 0.02})).notes
    assert "Even if all contributions to a step point the" in note


def test_impossible_values_are_refused() -> None:
    right = {"epsilons": [1.0, 2.0], "group_sizes": [1, 1], "delta": 1e-5, "steps": 100, "rate": 0.1}
    for wrong, message in (
        ({"epsilons": [1.0, 0.0]}, "epsilons"),
        ({"group_sizes": [1]}, "group_sizes"),
        ({"group_sizes": [1, -1]}, "group_sizes"),
        ({"rate": 0.0}, "rate"),
        ({"rate": 1.5}, "rate"),
        ({"steps": 0}, "steps"),
        ({"delta": 1e-13}, "delta"),
        ({"rate": 0.8}, "smaller rate"),
        ({"epsilons": [300.0, 200.0], "rate": 0.001}, "more steps"),
    ):
        with pytest.raises(ValueError, match=message):
            sample_rates(**(right | wrong))
    with pytest.raises(ValueError, match="clip_norm"):
        scale_norms(**right, clip_norm=0.0)
    right = RUN | {"steps": 20, "variant": "sample", "caps": [0.1, 0.2], "group_sizes": [1, 1]}
    for name, wrong in (("variant", "up"), ("share", 0.0), ("share", 1.1), ("caps", [0.0, 1.0]), ("slack", 1e-13)):
        with pytest.raises(ValueError, match="choose one of" if name == "variant" else name):
            plan_sampled(**(right | {name: wrong}))
