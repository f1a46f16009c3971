"""Choices of all methods, suggestions of one, and what personal levels bring."""

import json
from typing import Any

import numpy as np
import pytest

from accounting.caps import caps_of
from learning.mechanisms.choices import Choices, ChoicesError
from learning.mechanisms.neighbours.rounds import NeighbourChoices
from learning.mechanisms.pate.teachers import Teachers
from learning.mechanisms.protocol import PlannedLevel, at_threshold, best_threshold, signal
from learning.mechanisms.sampled_steps.run_plan import Samples
from learning.mechanisms.steps.steps_plan import Steps
from learning.students import STUDENTS, suggested_student
from training.methods import METHODS
from training.services.runs import FEW_POINTS, suggested_method

GNMAX = {"name": "gnmax", "sigma": 4.0}
GIVEN: dict[type[Choices], dict[str, Any]] = {
    NeighbourChoices: {},
    Steps: {},
    Samples: {},
    Teachers: {"teachers": 5, "learner": "random_forest", "aggregator": GNMAX},
}


@pytest.mark.parametrize("kind", GIVEN)
def test_every_choice_is_described_and_its_default_can_be_chosen(kind: type[Choices]) -> None:
    chosen = kind.from_json(GIVEN[kind])
    assert kind.from_json(json.loads(json.dumps(chosen.to_json()))) == chosen
    for choice in kind.described():
        assert choice.label
        assert choice.minimum is not None or choice.type not in (int, float)
        assert choice.default is None or not list(choice.faults(choice.default))
        assert not choice.values or set(choice.rehearsed) <= set(choice.values)
        assert set(choice.only_if) <= {other.name for other in kind.described()}


@pytest.mark.parametrize(
    ("kind", "document", "names"),
    [
        (NeighbourChoices, {"sigma": -1.0, "rounds": True, "kernel": "gauss"}, ["rounds", "sigma", "kernel"]),
        (NeighbourChoices, {"embedded": "yes"}, ["embedded"]),
        (NeighbourChoices, {"rounds": 1, "embedded": True, "first_queries": 3}, ["first_queries", "embedded"]),
        (Steps, {"steps": 5, "network": "mlp"}, [""]),
        (Steps, [], [""]),
        (Teachers, {}, ["learner"]),
        (Teachers, GIVEN[Teachers] | {"learner_parameters": {"depths": 3}}, ["learner_parameters"]),
        (Teachers, GIVEN[Teachers] | {"aggregator": GNMAX | {"sigma": 0}}, ["aggregator"]),
    ],
)
def test_an_impossible_choice_is_named(kind: type[Choices], document: Any, names: list[str]) -> None:
    with pytest.raises(ChoicesError) as refused:
        kind.from_json(document)
    assert [name for name, _message in refused.value.faults] == names


def test_a_suggestion_can_be_taken_and_few_public_images_add_a_note() -> None:
    for kind in ("image", "table"):
        for points in (0, 1, FEW_POINTS - 1, FEW_POINTS, 10**6):
            suggested = suggested_method(kind, points)
            assert suggested.method in METHODS and suggested.student in STUDENTS
            assert suggested.student == suggested_student(kind).name
            assert ("Add more" in suggested.because) == (kind == "image" and 0 < points < FEW_POINTS)


def test_the_published_example_of_levels() -> None:
    """60,000 people, 34, 43 and 23 % of them at ε 1, 2 and 3 (δ = 1e-5)."""
    caps = caps_of([1.0, 2.0, 3.0], 1e-5)
    levels = [PlannedLevel(str(cap), cap, 60_000 * part) for cap, part in zip(caps, (0.34, 0.43, 0.23), strict=True)]
    assert signal(levels) == pytest.approx(28_330, rel=1e-3)
    assert best_threshold(levels) == caps[1]
    assert signal(at_threshold(levels, caps[1])) == pytest.approx(19_862, rel=1e-3)


def test_the_best_threshold_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for _study in range(60):
        number = int(rng.integers(1, 7))
        levels = [PlannedLevel(str(each), *rng.uniform(0.01, 20, 2)) for each in range(number)]
        # Each person alone, at every cap that anybody has.
        people = [(level.cap, level.holders) for level in levels]
        found = {cap: sum(count for theirs, count in people if theirs >= cap) * cap**0.5 for cap, _count in people}
        best = best_threshold(levels)
        assert found[best] == max(found.values())
        assert signal(at_threshold(levels, best)) == pytest.approx(found[best])
        assert signal(levels) >= found[best], "personal promises never say less"
