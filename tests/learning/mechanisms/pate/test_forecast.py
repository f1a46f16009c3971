"""The forecast of a teachers' vote, compared with real votes of teachers on other records."""

import numpy as np
import pytest

from common.noise import SimulationNoise
from learning.forecasts import LABELS, few_people
from learning.learners import LEARNERS, learner_create
from learning.mechanisms.pate import GNMax, PrivacyGroup, make_plan
from learning.mechanisms.pate.aggregators import ConfidentGNMax, InteractiveGNMax
from learning.mechanisms.pate.aggregators.aggregator import Aggregator
from learning.mechanisms.pate.plan import Plan
from learning.mechanisms.pate.teachers import forecast_votes

TEACHERS, RECORDS = 40, 30
LEARNER = learner_create("logistic_regression", {})


def points(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return three overlapping classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    return (np.eye(3)[labels] * 1.5 + rng.normal(0, 1, (count, 3))).astype(np.float32), labels


def planned(aggregator: Aggregator) -> Plan:
    groups = [PrivacyGroup("HIGH", 1.0, TEACHERS * RECORDS // 2), PrivacyGroup("LOW", 2.0, TEACHERS * RECORDS // 2)]
    return make_plan(groups, variant="standard", teachers=TEACHERS, aggregator=aggregator, delta=1e-5)


def held(plan: Plan) -> float:
    """Return the share of correct labels among those that teachers of the private records release."""
    private, truth = points(1, TEACHERS * RECORDS)
    public, true = points(2, 500)
    counts = np.zeros((500, 3))
    for mine in np.array_split(np.arange(len(private)), TEACHERS):
        said = LEARNER.fit(private[mine], truth[mine], classes=3, seed=0).predict(public)
        counts[np.arange(500), said] += 1
    release = plan.aggregator.release(counts, SimulationNoise(3))
    return float((release.labels == true)[release.answered].mean())


@pytest.mark.parametrize(
    "aggregator",
    [GNMax(sigma=4.0), GNMax(sigma=40.0), ConfidentGNMax(sigma=4.0, sigma_threshold=4.0, threshold=30.0)],
    ids=["little noise", "much noise", "rejections"],
)
def test_forecasts_match_the_outcome(aggregator: Aggregator) -> None:
    plan, (known, labels) = planned(aggregator), points(4, 300)
    forecast = forecast_votes(plan, LEARNER, 3, points=known, labels=labels)
    right = held(plan)
    assert forecast is not None and forecast.of == LABELS and forecast.judged > 100
    assert forecast.low <= right <= forecast.high and forecast.value == pytest.approx(right, abs=0.08)
    assert bool(few_people([forecast], 3)) == (aggregator.deviation == 40.0)
    if plan.aggregator.deviation == 40.0:
        assert forecast == forecast_votes(plan, LEARNER, 3, points=known, labels=labels), "computed twice"


def test_without_labels_it_says_what_it_assumes() -> None:
    forecast = forecast_votes(planned(GNMax(sigma=4.0)), LEARNER, 3, points=np.empty(0), labels=None)
    assert forecast is not None and forecast.judged == 0 and "Assumes that" in forecast.rests_on
    assert forecast.low <= 0.55 and forecast.high > 0.98
    loud = forecast_votes(planned(GNMax(sigma=400.0)), LEARNER, 3, points=np.empty(0), labels=None)
    assert loud is not None and loud.high < 0.6 and few_people([loud], 3)


def test_an_aggregator_that_may_answer_nothing_has_no_forecast() -> None:
    known, labels = points(4, 60)
    asks = InteractiveGNMax(sigma=4.0, sigma_threshold=4.0, threshold=20.0, confidence=0.9)
    assert forecast_votes(planned(asks), LEARNER, 3, points=known, labels=labels) is None
    never = ConfidentGNMax(sigma=4.0, sigma_threshold=1.0, threshold=1000.0)
    assert forecast_votes(planned(never), LEARNER, 3, points=known, labels=labels) is None


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_plans_are_forecast_with_faster_models(name: str) -> None:
    """Six hundred images train ten teachers three times, without forests, networks or shifted copies."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    images = (rng.random((600, 12, 12)) + np.eye(3)[labels].repeat(4, axis=1)[:, :, None]).astype(np.float32)
    groups = [PrivacyGroup("ALL", 1.0, 6000)]
    plan = make_plan(groups, variant="standard", teachers=10, aggregator=GNMax(sigma=2.0), delta=1e-5)
    chosen = learner_create(name, {"copies": 50} if name in ("cnn", "nearest_neighbour") else {})
    forecast = forecast_votes(plan, chosen, 3, points=images, labels=labels)
    assert forecast is not None and forecast.noiseless > 0.9
    assert ("faster models than the run" in str(forecast.rests_on)) == (name != "logistic_regression")
    assert forecast.rests_on.values["records"] == 400, "more teachers than points would draw points several times"
