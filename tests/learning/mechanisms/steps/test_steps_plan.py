"""Plans by hand: noise, weights, people, pace, what is used at most; and what is refused or warned of."""

import json
import math

import numpy as np
import pytest

from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.steps_plan import Steps, StepsPlan, few_people_notes, plan_steps, strength_of

RECORDS = np.zeros((2, 9))

LEVELS = [PlannedLevel("HIGH", 0.01, 3000.0), PlannedLevel("LOW", 0.09, 1000.0)]


def test_a_plan_by_hand() -> None:
    plan = plan_steps(LEVELS, dimensions=24, n_classes=4, share=0.5)
    assert plan.sigma == pytest.approx(math.sqrt(60 / (0.5 * 0.09)))
    assert plan.level_weights([0.01, 0.09, 0.25]) == pytest.approx([1 / 3, 1, 1])
    assert plan.people == pytest.approx(3000 / 3 + 1000)
    mu = math.sqrt(0.5 * 0.09)
    assert plan.signal == pytest.approx(2000 * mu / 10)
    assert plan.strength == pytest.approx(2000 * mu) == strength_of(LEVELS, share=0.5, steps=Steps())
    assert plan.ridge == pytest.approx(10 * plan.sigma * plan.clip_norm / 2000)
    assert plan.until == {"HIGH": 0.5, "LOW": 0.5}
    assert not plan.warnings


def test_steps_of_full_contributions_fit_into_every_account() -> None:
    for share in (0.1, 1 / 3, 1.0):
        for cap in (1e-4, 0.0718, 2.0):
            plan = plan_steps([PlannedLevel("ALL", cap, 100.0)], dimensions=5, n_classes=2, share=share)
            assert plan.steps / plan.sigma**2 <= share * cap


def test_the_planner_takes_choices_by_hand() -> None:
    chosen = Steps(steps=7, clip_norm=2.0, sigma=30.0, step_size=3.0, ridge=0.5)
    plan = plan_steps(LEVELS, dimensions=24, n_classes=4, share=1.0, steps=chosen)
    assert (plan.steps, plan.clip_norm, plan.sigma, plan.step_size) == (7, 2.0, 30.0, 3.0)
    assert plan.ridge == pytest.approx(0.5 * 30 * 2 / 2000)
    assert plan.until["LOW"] == pytest.approx(7 / 900 / 0.09)


def test_people_who_are_too_few_and_noise_that_is_too_little_are_warned_of() -> None:
    few = plan_steps([PlannedLevel("ALL", 0.01, 100.0)], dimensions=99, n_classes=10, share=1.0)
    assert "too few people" in few_people_notes(few)[0] and not few.warnings
    # an account of 0.09 pays for 9 steps of norm 1 at σ = 10
    loud = plan_steps(LEVELS, dimensions=24, n_classes=4, share=1.0, steps=Steps(sigma=10.0))
    assert "9 of 60 steps" in loud.warnings[0]
    assert loud.until == {"HIGH": 1.0, "LOW": 1.0}
    nobody = plan_steps([PlannedLevel("ALL", 1.0, -3.0)], dimensions=5, n_classes=2, share=1.0)
    assert nobody.people == 1.0 and few_people_notes(nobody)


def test_plans_and_parameters_survive_json() -> None:
    plan = plan_steps(LEVELS, dimensions=200, n_classes=10, share=0.5, steps=Steps(sigma=7.0))
    again = StepsPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan and again.warnings[0].template == plan.warnings[0].template
    chosen = Steps(steps=5, representation="wavelets", representation_parameters={"components": 50})
    assert Steps.from_json(json.loads(json.dumps(chosen.to_json()))) == chosen
    assert chosen.space(np.zeros((2, 28, 28))).components == 50


@pytest.mark.parametrize(
    ("people", "classes", "noises"), [(11_000, 4, 7.0), (11_000, 9, 10.5), (9000, 4, 10.0), (9000, 9, 10.5)]
)
def test_the_ridge_grows_with_the_classes_and_where_people_are_weak(people, classes, noises) -> None:
    plan = plan_steps([PlannedLevel("ALL", 0.25, people)], dimensions=5, n_classes=classes, share=1.0)
    assert plan.ridge == pytest.approx(noises * plan.sigma * plan.clip_norm / people)


def test_weaker_people_have_fewer_thresholds_and_magnify_less() -> None:
    strong, weak = (Steps().placed(RECORDS, strength).space(RECORDS) for strength in (9000.0, 240.0))
    assert strong.name == weak.name == "evened"
    assert (weak.together, weak.floor) == (20, 10.0)
    assert (strong.together, strong.floor) == (750, 0.1)
    assert Steps().placed(RECORDS, 800.0).space(RECORDS).floor == 1.0
    texts = np.zeros((2, 40), np.uint8)
    found = [Steps().placed(texts, strength).space(texts) for strength in (60.0, 240.0, 9000.0)]
    assert [(each.name, each.components) for each in found] == [("words", 16), ("words", 20), ("words", 256)]
    vectors = np.random.default_rng(3).normal(size=(300, 40))
    encoded = [Steps(encoder="e").placed(vectors, strength).space(vectors) for strength in (60.0, 1800.0, 9000.0)]
    assert [space.components for space in encoded] == [96, 150, 256]
    named = Steps(representation="standardised")
    assert named.placed(RECORDS, 240.0) == named


def test_impossible_plans_and_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="noise multiplier"):
        plan_steps([PlannedLevel("ALL", 1e-6, 100.0)], dimensions=5, n_classes=2, share=1.0)
    with pytest.raises(ValueError, match="share"):
        plan_steps(LEVELS, dimensions=5, n_classes=2, share=0.0)
    wrongs = ({"steps": 0}, {"sigma": 1e9}, {"ridge": -1.0}, {"momentum": 0.5}, {"model": "tree"}, {"no": 1})
    for wrong in wrongs:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Steps.from_json(wrong)
