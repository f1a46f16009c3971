"""The optimiser's public state: momentum and averages by hand, checkpoints, a model that learns."""

import numpy as np
import pytest

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.mechanisms.levels import Level
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import CLIP_STEPS, release_sums, step_contributions
from learning.mechanisms.steps.planner import plan_steps
from learning.mechanisms.steps.records import owned_records
from learning.representations import LinearModel, Standardised


def begin(steps: int = 4, **chosen) -> Descent:
    plan = plan_steps(
        [Level("ALL", 4.0, 50.0)], dimensions=2, n_classes=2, share=1.0, steps=Steps(steps=steps, **chosen)
    )
    return Descent.begin(plan, np.array([[30, 40], [-40, 30]]), 2)


def test_steps_keep_momentum_and_the_later_half_is_averaged() -> None:
    state = begin(clip_norm=0.5, step_size=2.0, momentum=0.5)
    assert state.length == 50.0 and state.clip_norm == 25.0
    place = velocity = 0.0
    places = []
    for gradient in (3.0, -1.0, 2.0, 5.0):
        # people are 50, so a gradient of 1 for each is a sum of 50
        state = state.after(np.full((3, 2), gradient * 50 * CLIP_STEPS / 0.5))
        velocity = 0.5 * velocity + gradient
        place -= 2.0 * velocity
        places.append(place)
        assert state.weights == pytest.approx(np.full((3, 2), place / 50.0))
    assert state.finished and state.learned == pytest.approx(np.full((3, 2), (places[2] + places[3]) / 2 / 50.0))


def test_a_checkpoint_goes_on_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    sums = rng.integers(-(10**9), 10**9, (4, 3, 2))
    whole = halted = begin()
    for step, one in enumerate(sums):
        whole = whole.after(one)
        halted = Descent.from_arrays(halted.plan, halted.to_arrays()).after(one) if step == 2 else halted.after(one)
    assert (whole.learned == halted.learned).all() and (whole.velocity == halted.velocity).all()
    assert halted.step == 4


def test_a_planned_round_learns_what_can_be_learned() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 3500)
    points = (np.eye(3)[truth] * 2.5 + rng.normal(0, 1, (3500, 3))).astype(np.float32)
    fitted = Standardised().fit(points[:500])
    coordinates = fitted.transform(points)
    records = owned_records(coordinates[500:], truth[500:], np.arange(3000), np.arange(3000))
    caps = np.where(np.arange(3000) % 2 == 0, 1.0, 0.25)
    levels = [Level("LOW", 1.0, 1500.0), Level("HIGH", 0.25, 1500.0)]
    plan = plan_steps(levels, dimensions=3, n_classes=3, share=1.0)
    state, noise, accounts = Descent.begin(plan, coordinates[:500], 3), SimulationNoise(1), IndividualAccounts(caps)
    shares = plan.level_weights(caps)
    while not state.finished:
        sums, _ = step_contributions(
            records, state.weights, clip_norm=state.clip_norm, accounts=accounts, sigma=plan.sigma, level_weights=shares
        )
        state = state.after(release_sums(sums, plan.sigma, noise))
    assert (accounts.spent <= caps).all()
    model = state.model(fitted)
    right = (model.predict(points[:500]) == truth[:500]).mean()
    best = (points[:500].argmax(axis=1) == truth[:500]).mean()  # Bayes' rule: the nearest of three middles
    assert right > best - 0.02 > 0.9
    again = LinearModel.from_bytes(model.to_bytes())
    assert (again.predict_proba(points[:20]) == model.predict_proba(points[:20])).all()
    with pytest.raises(ValueError, match="cannot be read"):
        LinearModel.from_bytes(b"nothing")
