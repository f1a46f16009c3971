"""Plans of sampled runs: charges, promises, notes."""

import json

import numpy as np
import pytest

from accounting.caps import caps_of
from accounting.privacy import gdp_delta, sampled_gaussian_epsilon
from learning.mechanisms.sampled_steps.planner import VARIANTS, plan_sampled, usual_parameters
from tests.accounting.privacy.test_sampled_charge import delta_from_below

pytestmark = pytest.mark.slow

CAPS = caps_of([1.0, 2.0, 3.0], 1e-5 - 1e-7)
RUN = {"share": 1.0, "slack": 1e-7, "steps": 9375, "rate": 512 / 60000, "clip_norm": 0.2, "weights": 26_010}


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


@pytest.mark.parametrize(("people", "rate"), [(0.0, 1.0), (100.0, 1.0), (5_120.0, 0.1), (1e6, 0.005)])
def test_usual_rates_suit_few_people_and_many(people: float, rate: float) -> None:
    assert usual_parameters("mlp", people).rate == pytest.approx(rate)


def test_usual_parameters_make_a_plan_and_half_of_the_share_needs_more_noise() -> None:
    usual = usual_parameters("mlp", 5_120.0)
    chosen = {"steps": usual.steps, "rate": usual.rate, "clip_norm": usual.clip_norm}
    whole, half = (
        plan_sampled("scale", CAPS[:1], [5_120], **(RUN | chosen | {"share": share})) for share in (1.0, 0.5)
    )
    assert whole.charges[0] > 0.98 * CAPS[0]
    assert half.mechanism.noise_multiplier > 1.2 * whole.mechanism.noise_multiplier
    assert half.charges[0] <= CAPS[0] / 2


def test_a_note_says_when_noise_is_too_loud() -> None:
    plan = plan_sampled("sample", CAPS[:1], [2_000], **(RUN | {"steps": 500, "rate": 0.02}))
    assert plan.mechanism.expected == pytest.approx(40)
    (note,) = plan.notes
    assert "little will be learned" in note


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"variant": "upside"}, "choose one of"),
        ({"share": 0.0}, "share"),
        ({"share": 1.1}, "share"),
        ({"caps": [0.0, 1.0]}, "caps"),
        ({"group_sizes": [0, 0]}, "group_sizes"),
        ({"slack": 1e-13}, "slack"),
        ({"rate": 0.0}, "rate"),
    ],
)
def test_impossible_values_are_refused(wrong: dict, message: str) -> None:
    right = RUN | {"steps": 20, "variant": "sample", "caps": [0.1, 0.2], "group_sizes": [1, 1]} | wrong
    with pytest.raises(ValueError, match=message):
        plan_sampled(right.pop("variant"), right.pop("caps"), right.pop("group_sizes"), **right)
