"""Choices of all methods: each is described, checked by its description, and survives JSON."""

import json
from typing import Any

import pytest

from learning.mechanisms.choices import Choices, ChoicesError
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.mechanisms.pate.choices import Teachers
from learning.mechanisms.sampled_steps.choices import Samples
from learning.mechanisms.steps.choices import Steps

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
        (Teachers, {}, ["teachers", "learner", "aggregator"]),
        (Teachers, GIVEN[Teachers] | {"learner_parameters": {"depths": 3}}, ["learner_parameters"]),
        (Teachers, GIVEN[Teachers] | {"aggregator": GNMAX | {"sigma": 0}}, ["aggregator"]),
    ],
)
def test_an_impossible_choice_is_named(kind: type[Choices], document: Any, names: list[str]) -> None:
    with pytest.raises(ChoicesError) as refused:
        kind.from_json(document)
    assert [name for name, _message in refused.value.faults] == names
