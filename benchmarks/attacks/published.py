"""Studies to attack by what they publish: a model learned from any half of the people, as the services learn it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.caps import caps_of
from benchmarks.neighbours.study import DELTAS, data_load
from benchmarks.sgd.study import case_of, splits_load
from benchmarks.sgd.study import hold as hold_steps
from benchmarks.students.parts import teacher
from benchmarks.students.study import hold
from benchmarks.students.teachers import vote
from learning.learners import learner_create
from learning.mechanisms.pate import GNMax, Group, assign, make_plan
from learning.mechanisms.steps.choices import Steps

Floats = NDArray[np.float64]
Taking = NDArray[np.bool_]
TEACHERS, SIGMA = 25, 8.0


@dataclass(frozen=True, eq=False)
class Target:
    """A study of people with one record each.

    truth: `(people,)` everybody's class.  caps: `(people,)` their promises, μ².  publish: probabilities
    `(people, classes)` of a model learned from those taking part, `(people,)`, with a seed.
    """

    truth: NDArray[np.integer]
    caps: Floats
    publish: Callable[[Taking, int], Floats]


def neighbours_target(name: str, people: int, epsilons: Sequence[float]) -> Target:
    """Method neighbours, one round, and the student `consistency`."""
    data = data_load(name).first(people)
    x, truth, caps = _people(name, people, epsilons)

    def publish(taking: Taking, seed: int) -> Floats:
        some = data.of(taking)
        held = hold(some, list(epsilons), caps=caps[taking], seed=seed)
        return teacher("consistency", some, steps=100)(some.x, held.releases).predict_proba(x)

    return Target(truth, caps, publish)


def teachers_target(name: str, people: int, epsilons: Sequence[float]) -> Target:
    """Method pate, weighting: little noise on few teachers, so that there are labels; student `consistency`."""
    splits = splits_load(name)
    x, truth, caps = _people(name, people, epsilons)
    places = np.searchsorted(np.unique(caps), caps)
    learner, points, classes = learner_create("logistic_regression"), splits.public.x, len(splits.schema.classes)

    def publish(taking: Taking, seed: int) -> Floats:
        mine, groups = np.flatnonzero(taking), np.bincount(places[taking], minlength=len(epsilons))
        plan = make_plan(
            [Group(f"{one:g}", one, int(count)) for one, count in zip(sorted(epsilons), groups, strict=True)],
            variant="weighting",
            teachers=TEACHERS,
            aggregator=GNMax(sigma=SIGMA),
            delta=DELTAS[name],
            weight_scheme="gdp",
        )
        records, taught_by = assign(plan, places[mine], np.random.default_rng(seed))
        models = (
            learner.fit(x[rows], truth[rows], classes=classes, seed=seed)
            for rows in (mine[records[taught_by == teacher]] for teacher in range(plan.teachers))
        )
        said = np.stack([model.predict(points) for model in models])
        answers = vote(name, plan, said, classes, seed=seed)
        return teacher("consistency", steps=100)(points, answers.releases).predict_proba(x)

    return Target(truth, caps, publish)


def steps_target(name: str, people: int, epsilons: Sequence[float]) -> Target:
    """Method sgd, individual: the linear model."""
    splits = splits_load(name)
    case = case_of(name, splits.private, splits.public.x, splits.test.x, splits.test.y, Steps()).first(people)
    x, truth, caps = _people(name, people, epsilons)

    def publish(taking: Taking, seed: int) -> Floats:
        held = hold_steps(case.of(taking), list(epsilons), caps=caps[taking], steps=Steps(), seed=seed)
        return held.model.predict_proba(x)

    return Target(truth, caps, publish)


def _people(
    name: str, people: int, epsilons: Sequence[float]
) -> tuple[NDArray[np.floating], NDArray[np.integer], Floats]:
    """Record and class of everybody, in the order of their numbers, and promises by chance, as many of each."""
    private = splits_load(name).private
    of_each = np.argsort(np.unique(np.array(private.holders), return_inverse=True)[1])[:people]
    caps = caps_of(np.random.default_rng(0).choice(list(epsilons), people), DELTAS[name])
    return private.x[of_each], private.y[of_each], caps
