"""Studies to attack through their publications: models trained as the services do, on any half of the people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from accounting.caps import caps_of, slack_of
from benchmarks.neighbours.study import DELTAS, data_load
from benchmarks.sgd.study import case_of, splits_load
from benchmarks.sgd.study import hold as hold_steps
from benchmarks.students.parts import teacher
from benchmarks.students.study import hold
from benchmarks.students.teachers import vote
from benchmarks.synthesis import count
from common.noise import SimulationNoise
from learning.formats import TabularSchema
from learning.learners import learner_create
from learning.mechanisms.counts.table_plan import Counts, Places, column_names, columns_of, number_of_cells, plan_counts
from learning.mechanisms.counts.tables import PERSON, CountsQuestion
from learning.mechanisms.pate import GNMax, PrivacyGroup, assign, make_plan
from learning.mechanisms.protocol import People, PlannedLevel, Records
from learning.mechanisms.sampled_steps import training
from learning.mechanisms.sampled_steps.contributions import Gradients
from learning.mechanisms.sampled_steps.networks import NetworkModel, network_create, with_weights
from learning.mechanisms.sampled_steps.run_plan import plan_sampled
from learning.mechanisms.steps.linear import owned_records
from learning.mechanisms.steps.steps_plan import Steps
from learning.mechanisms.synthesis.model import NOBODY
from learning.mechanisms.synthesis.rounds import Marginals, rows_draw
from learning.representations import default_representation

Floats = NDArray[np.float64]
Taking = NDArray[np.bool_]
TEACHERS, SIGMA = 25, 8.0


@dataclass(frozen=True, eq=False)
class Target:
    """A study of people with one record each.

    truth: `(people,)` everyone's class.  caps: `(people,)` their promises, μ².  publish: function of a mask of
    the participants `(people,)` and a seed; it trains a model on their records and returns the model's probabilities
    `(people, classes)`.
    """

    truth: NDArray[np.integer]
    caps: Floats
    publish: Callable[[Taking, int], Floats]


def neighbours_target(name: str, people: int, epsilons: Sequence[float]) -> Target:
    """Return a target for the method *neighbours*: one round, and the student `consistency`."""
    data = data_load(name).first(people)
    x, truth, caps = _people(name, people, epsilons)

    def publish(taking: Taking, seed: int) -> Floats:
        some = data.of(taking)
        held = hold(some, list(epsilons), caps=caps[taking], seed=seed)
        return teacher("consistency", some, steps=100)(some.x, held.releases).predict_proba(x)

    return Target(truth, caps, publish)


def teachers_target(name: str, people: int, epsilons: Sequence[float]) -> Target:
    """Return a target for the method *pate* (weighting) with little noise on few teachers; student `consistency`."""
    splits = splits_load(name)
    x, truth, caps = _people(name, people, epsilons)
    places = np.searchsorted(np.unique(caps), caps)
    learner, points, classes = learner_create("logistic_regression"), splits.public.x, len(splits.schema.classes)

    def publish(taking: Taking, seed: int) -> Floats:
        mine, groups = np.flatnonzero(taking), np.bincount(places[taking], minlength=len(epsilons))
        plan = make_plan(
            [PrivacyGroup(f"{one:g}", one, int(count)) for one, count in zip(sorted(epsilons), groups, strict=True)],
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
    """Return a target for the method *sgd* (individual): the linear model."""
    splits = splits_load(name)
    case = case_of(name, splits.private, splits.public.x, splits.test.x, splits.test.y, Steps()).first(people)
    x, truth, caps = _people(name, people, epsilons)

    def publish(taking: Taking, seed: int) -> Floats:
        held = hold_steps(case.of(taking), list(epsilons), caps=caps[taking], steps=Steps(), seed=seed)
        return held.model.predict_proba(x)

    return Target(truth, caps, publish)


def sampled_target(name: str, people: int, epsilons: Sequence[float]) -> Target:
    """Return a target for the method *sgd* (sample): a linear network after 300 steps on samples of one in twenty."""
    x, truth, caps = _people(name, people, epsilons)
    fitted = default_representation(x.shape[1:]).fit(splits_load(name).public.x)
    numbers, classes = fitted.transform(x), len(splits_load(name).schema.classes)
    scale = float((numbers.astype(np.float64) ** 2).sum(axis=1).mean() ** -0.5)
    places, shape = np.searchsorted(np.unique(caps), caps), numbers.shape[1:]
    slack, network = slack_of(DELTAS[name]), network_create("linear", numbers.shape[1:], classes, 1)
    of_levels = np.array([float(caps_of(one, DELTAS[name] - slack)) for one in sorted(epsilons)])
    plan = plan_sampled(
        "sample",
        of_levels,
        np.bincount(places) / 2,
        share=1.0,
        slack=slack,
        steps=300,
        rate=0.05,
        clip_norm=0.5,
        weights=sum(tensor.numel() for tensor in network.parameters()),
    )

    def publish(taking: Taking, seed: int) -> Floats:
        mine = np.arange(int(taking.sum()))
        state = training.run_chunk(
            training.SampledSteps.start(network),
            owned_records(numbers[taking], truth[taking], mine, mine),
            places[taking],
            gradients=Gradients(network, shape, scale=scale),
            mechanism=plan.mechanism,
            steps=300,
            step_size=0.6,
            momentum=0.0,
            noise=SimulationNoise(seed),
            sampling=training.SimulationSampling(seed),
        )
        return NetworkModel(with_weights(network, state.weights), classes, shape).predict_proba(scale * numbers)

    return Target(truth, caps, publish)


def counts_target(name: str, people: int, epsilons: Sequence[float]) -> Target:
    """Return a target for the method *counts*: a table of the first binned columns; the attack uses its cell shares."""
    x, truth, caps = _people(name, people, epsilons)
    schema = splits_load(name).schema
    assert isinstance(schema, TabularSchema)
    columns = columns_of(schema, column_names(schema)[1:3], 32)
    records = Records(x, truth, np.arange(people))
    cells, of_levels = Places(records).cells(list(columns)), np.unique(caps)

    def publish(taking: Taking, seed: int) -> Floats:
        mine = np.arange(int(taking.sum()))
        levels = [PlannedLevel(str(cap), float(cap), float((caps[taking] == cap).sum())) for cap in of_levels]
        plan = plan_counts(levels, cells=number_of_cells(columns), share=1.0, counts=Counts(column=columns[0].name))
        question = CountsQuestion(plan, (columns,), tuple(of_levels.tolist()))
        participants = People(mine, caps[taking], caps[taking], np.zeros(len(mine)))
        sums, _ = question.contributions(participants, Records(x[taking], truth[taking], mine))
        released = question.release(slice(0, 1), None, [{"sums": sums}], SimulationNoise(seed)).arrays["sums"]
        share = 0.5 + released[cells] / (4 * PERSON * people)
        return np.tile(share[:, None], (1, len(schema.classes)))

    return Target(truth, caps, publish)


def rows_target(name: str, people: int, epsilons: Sequence[float]) -> Target:
    """Return a target for the method *synthesis*: class probabilities of the model behind the rows.

    The rows themselves reveal no more than these.
    """
    rows = _counting(name, people, epsilons)

    def publish(taking: Taking, seed: int) -> Floats:
        return _expected(rows.released(taking, seed), rows.everybody)

    return Target(rows.everybody.classes, rows.caps, publish)


def copies(name: str, people: int, epsilons: Sequence[float], studies: int) -> Iterator[dict[str, float]]:
    """Compare people for copies among the synthetic rows, with one row per participant and all columns in bins.

    For each promise, yield the share of people with a copy, among participants (``found``) and among others
    (``false``), over ``studies``; the standard error of the first share; and its maximum under the promise, given the
    second.
    """
    rows, random = _counting(name, people, epsilons), np.random.default_rng(1)
    inside, outside = ([[] for _ in epsilons] for _ in range(2))
    caps = np.unique(rows.caps)
    for study in range(studies):
        taking = random.random(people) < 0.5
        marginals = rows.released(taking, study)
        drawn = rows_draw(marginals)
        made = Records(drawn.x, drawn.classes, np.arange(len(drawn)))
        known = {cells.tobytes() for cells in _cells(marginals, made)}
        has_copy = np.array([cells.tobytes() in known for cells in _cells(marginals, rows.everybody)])
        for place, cap in enumerate(caps):
            theirs = rows.caps == cap
            inside[place].append(has_copy[theirs & taking].mean())
            outside[place].append(has_copy[theirs & ~taking].mean())
    for epsilon, cap, found, false in zip(sorted(epsilons), caps, inside, outside, strict=True):
        rate = float(np.mean(false))
        yield {
            "epsilon": epsilon,
            "found": float(np.mean(found)),
            "uncertain": float(np.std(np.array(found) - false, ddof=1) / np.sqrt(studies)),
            "false": rate,
            "most_found": float(norm.cdf(norm.ppf(rate) + np.sqrt(cap))),
        }


@dataclass(frozen=True, eq=False)
class _Counting:
    schema: TabularSchema
    everybody: Records
    caps: Floats

    def released(self, taking: Taking, seed: int) -> Marginals:
        """Return the releases of a run about the participants."""
        owner = np.arange(int(taking.sum()))
        mine = Records(self.everybody.x[taking], self.everybody.classes[taking], owner)
        return count(self.schema, mine, self.caps[taking], seed)


def _counting(name: str, people: int, epsilons: Sequence[float]) -> _Counting:
    x, truth, caps = _people(name, people, epsilons)
    schema = splits_load(name).schema
    assert isinstance(schema, TabularSchema)
    return _Counting(schema, Records(x, truth, np.arange(people)), caps)


def _cells(marginals: Marginals, records: Records) -> NDArray[np.int64]:
    """Return `(n, columns + 1)` cells of records, with their classes last."""
    return np.stack([*(column.places(records) for column in marginals.columns), records.classes], axis=1)


def _expected(marginals: Marginals, records: Records) -> Floats:
    """Return `(n, classes)` probabilities of each class, given all columns, in the model that rows are drawn from."""
    model, cells = marginals.model, _cells(marginals, records)[:, :-1]
    groups = np.stack([np.array(column.groups)[cells[:, place]] for place, column in enumerate(model.columns)], axis=1)
    logs = np.tile(np.log(np.maximum(model.classes, 1e-12)), (len(cells), 1))
    for parent, child in model.edges:
        table, mine = model.of_groups[child], groups[:, child]
        likely = table[:, mine] if parent == NOBODY else table[:, groups[:, parent], mine]
        logs += np.log(np.maximum(likely * model.of_cells[child][:, cells[:, child]], 1e-12)).T
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _people(
    name: str, people: int, epsilons: Sequence[float]
) -> tuple[NDArray[np.floating], NDArray[np.integer], Floats]:
    """Return everyone's record and class, ordered by number, and random promises in equal proportions."""
    private = splits_load(name).private
    of_each = np.argsort(np.unique(np.array(private.holders), return_inverse=True)[1])[:people]
    caps = caps_of(np.random.default_rng(0).choice(list(epsilons), people), DELTAS[name])
    return private.x[of_each], private.y[of_each], caps
