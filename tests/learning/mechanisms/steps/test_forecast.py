"""Forecasts: near the outcome where public points are labelled, and honest about noise where they are not."""

import numpy as np
import pytest

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.forecasts import MODEL, few_people
from learning.mechanisms.levels import Level
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.forecast import forecast_steps
from learning.mechanisms.steps.linear import release_sums, step_contributions
from learning.mechanisms.steps.planner import plan_steps
from learning.mechanisms.steps.records import INTERCEPT, owned_records

pytestmark = pytest.mark.slow


def some_points(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, count)
    return np.clip(np.rint(np.eye(20)[truth] * 60 + rng.normal(0, 25, (count, 20))), -127, 127).astype(np.int8), truth


@pytest.mark.parametrize("cap", [0.02, 0.0005])
def test_a_forecast_from_labels_is_near_the_outcome(cap: float) -> None:
    public, labels = some_points(1, 1500)
    private, truth = some_points(2, 3000)
    plan = plan_steps([Level("ALL", cap, 3000.0)], dimensions=20, n_classes=3, share=1.0)
    made = forecast_steps(plan, public, 3, labels=labels)
    state, accounts = Descent.begin(plan, public, 3), IndividualAccounts(np.full(3000, cap))
    everyone = np.arange(3000)
    records, noise = owned_records(private, truth, everyone, everyone), SimulationNoise(7)
    while not state.finished:
        sums, _ = step_contributions(
            records, state.weights, clip_norm=state.clip_norm, accounts=accounts, sigma=plan.sigma
        )
        state = state.after(release_sums(sums, plan.sigma, noise))
    right = ((public @ state.learned[:-1] + INTERCEPT * state.learned[-1]).argmax(axis=1) == labels).mean()
    assert made.of == MODEL and made.value == pytest.approx(right, abs=0.06)
    assert made.low <= right <= made.high and made.judged == 500
    assert made.noiseless > 0.88


def test_a_forecast_without_labels_tells_that_there_is_too_much_noise() -> None:
    public, _ = some_points(1, 900)
    made = {}
    for people in (30.0, 30_000.0):
        plan = plan_steps([Level("ALL", 0.01, people)], dimensions=20, n_classes=3, share=1.0)
        made[people] = forecast_steps(plan, public, 3)
        assert forecast_steps(plan, public, 3) == made[people] and made[people].value is None
    assert made[30_000.0].high > made[30_000.0].noiseless - 0.02 > 0.9
    assert made[30.0].high < 0.7 and made[30.0].judged == 0
    assert few_people([made[30.0]], 3) and not few_people([made[30_000.0]], 3)
