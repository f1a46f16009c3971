"""Simulation of a whole vote without a study, for benchmarks, tests and rehearsals.

The vote proceeds batch by batch. Released labels are charged to each group according to the papers' data-dependent
accounting. No ledger is charged, nothing is promised, and a seed makes the vote repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import DEFAULT_ORDERS, Conversion, Method, affordable_prefix, epsilon_from_rdp
from accounting.privacy.papers.curves import Prefix
from common.noise import Noise, SimulationNoise
from learning.mechanisms.pate.aggregators import REJECTED, LabelRelease, QueryCosts
from learning.mechanisms.pate.ballots import Ballot, Stop, TeachersQuestion, VoteState
from learning.mechanisms.pate.partition import draw_participation, participation_costs
from learning.mechanisms.pate.plan import LEFT_OUT, Plan, PrivacyGroup
from learning.mechanisms.pate.votes import NO_VOTE, count_votes, group_votes
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People


@dataclass(frozen=True, eq=False)
class Vote:
    """Outcome of a batch. It is secret until the budget filter has determined how much of it may be released.

    Attributes:
        votes: `(queries, classes)`, weighted.
        release: The labels.
        costs: For each group of the plan, the cost `(queries, R)` of a query to a holder in the group whose teacher
            took part in it.
    """

    votes: NDArray[np.float64]
    release: LabelRelease
    costs: tuple[QueryCosts, ...]


def hold_vote(
    plan: Plan,
    predictions: ArrayLike,
    classes: int,
    noise: Noise,
    *,
    method: Method,
    orders: ArrayLike = DEFAULT_ORDERS,
    student_probabilities: ArrayLike | None = None,
) -> Vote:
    """Count the votes, draw the noise, and compute each query's cost to each group, given the group's sensitivity.

    A group pays nothing for a query on which none of its teachers voted. In the vanishing variant, only some teachers
    may vote; `participation_costs` then converts these costs to each query's addition to the group's account.

    Args:
        predictions: `(teachers, queries)`, numbered as in the plan; `NO_VOTE` if a teacher takes no part.
        method, orders, student_probabilities: See `Aggregator.costs`.

    Raises:
        ValueError: The predictions do not fit the plan.

    >>> from learning.mechanisms.pate import GNMax, PrivacyGroup, SimulationNoise, make_plan
    >>> plan = make_plan([PrivacyGroup("HIGH", 1.0, 10), PrivacyGroup("LOW", 2.0, 10)], variant="weighting", teachers=4,
    ...                  aggregator=GNMax(sigma=0.1), delta=1e-5)
    >>> vote = hold_vote(plan, [[0], [0], [1], [1]], 2, SimulationNoise(0), method="data_independent", orders=[2.0])
    >>> vote.votes.round(3), vote.release.labels
    (array([[1.333, 2.667]]), array([1]))
    >>> [round(float(cost.label[0, 0]), 1) for cost in vote.costs]  # α · w² / σ² with the weights 2/3 and 4/3
    [88.9, 355.6]
    """
    matrix = _require_teachers(plan, predictions)
    votes = count_votes(matrix, classes, plan.teacher_weights())
    return Vote(
        votes=votes,
        release=plan.aggregator.release(votes, noise, student_probabilities),
        costs=vote_costs(
            plan, matrix, classes, method=method, orders=orders, student_probabilities=student_probabilities
        ),
    )


def vote_costs(
    plan: Plan,
    predictions: ArrayLike,
    classes: int,
    *,
    method: Method,
    orders: ArrayLike = DEFAULT_ORDERS,
    student_probabilities: ArrayLike | None = None,
) -> tuple[QueryCosts, ...]:
    """Return each group's cost of a vote on these predictions, without holding the vote; see `hold_vote`.

    >>> from learning.mechanisms.pate import GNMax, PrivacyGroup, make_plan
    >>> plan = make_plan([PrivacyGroup("HIGH", 1.0, 4)], variant="standard", teachers=2, aggregator=GNMax(sigma=2.0),
    ...                  delta=1e-5)
    >>> vote_costs(plan, [[0], [1]], 2, method="data_independent", orders=[2.0])[0].label
    array([[0.5]])
    """
    matrix = _require_teachers(plan, predictions)
    votes = count_votes(matrix, classes, plan.teacher_weights())
    costs = []
    for index, group in enumerate(plan.groups):
        members = plan.members(index)
        cost = plan.aggregator.costs(
            votes,
            sensitivity=group.sensitivity,
            orders=orders,
            method=method,
            group_votes=group_votes(matrix, classes, members),
            teachers_per_holder=group.factor,
            student_probabilities=student_probabilities,
        )
        took_part = (matrix[members] != NO_VOTE).any(axis=0)[:, None]
        costs.append(QueryCosts(check=cost.check * took_part, label=cost.label * took_part))
    return tuple(costs)


@dataclass(frozen=True, eq=False)
class SimulatedVote:
    """Outcome of a simulated vote.

    Attributes:
        labels, answered, counts: Results for the queries released before a budget was used up; see `LabelRelease`.
            Queries that were not answered are reinforced.
        epsilons: ε spent by each group, `(groups,)` in the order given.
        exhausted: Groups whose budget ended the vote.
    """

    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    epsilons: NDArray[np.float64]
    exhausted: NDArray[np.bool_]
    counts: NDArray[np.int64] | None = None


def simulate_vote(
    plan: Plan,
    groups: Sequence[PrivacyGroup],
    predictions: ArrayLike,
    classes: int,
    *,
    delta: float,
    seed: int,
    method: Method = "data_dependent",
    orders: ArrayLike = DEFAULT_ORDERS,
    conversion: Conversion = "improved",
    student: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None = None,
    block: int | None = None,
    wanted_labels: int | None = None,
) -> SimulatedVote:
    """Vote on queries until none are left, a group's budget is used up, or enough labels are released.

    Args:
        groups: As passed to `make_plan`; each group starts with nothing spent and may spend its ε.
        predictions: `(teachers, queries)`, numbered as in the plan.
        student: Function that maps the labels so far, `(queries so far,)`, to probabilities `(queries, classes)`;
            called before each block of `block` queries, for aggregators that use a student.
        delta, method, orders, conversion: See `hold_vote` and `affordable_prefix`.
        wanted_labels: Number of labels after which the vote ends.

    >>> from learning.mechanisms.pate import GNMax, make_plan
    >>> groups = [PrivacyGroup("HIGH", 1.0, 60), PrivacyGroup("LOW", 2.0, 40)]
    >>> plan = make_plan(groups, variant="weighting", teachers=100, aggregator=GNMax(sigma=40.0), delta=1e-5,
    ...                  weight_scheme="calibrated")
    >>> vote = simulate_vote(plan, groups, np.zeros((100, 500), int), 10, delta=1e-5, seed=0, method="data_independent")
    >>> len(vote.labels), vote.epsilons.round(2)
    (89, array([1.  , 1.99]))
    """
    matrix = np.asarray(predictions)
    queries = matrix.shape[1]
    present = draw_participation(plan, queries, np.random.default_rng(seed))
    matrix = np.where(present, matrix, NO_VOTE)
    noise = SimulationNoise(seed)
    size = block or max(queries, 1)
    votes: list[Vote] = []
    labels, answered = np.empty(0, np.int64), np.empty(0, np.bool_)
    for start in range(0, max(queries, 1), size):
        part = slice(start, start + size)
        votes.append(
            hold_vote(
                plan,
                matrix[:, part],
                classes,
                noise,
                method=method,
                orders=orders,
                student_probabilities=None if student is None else student(labels)[part],
            )
        )
        labels = np.append(labels, votes[-1].release.labels)
        answered = np.append(answered, votes[-1].release.answered)
        prefix, check, label = _affordable(plan, groups, votes, present, answered, delta, orders, conversion)
        count = prefix.count
        if wanted_labels is not None:
            count = min(count, int(np.searchsorted(np.cumsum(answered), wanted_labels)) + 1)
        if count < len(labels):
            break
    spent = check[:count].sum(axis=0) + label[:count][answered[:count]].sum(axis=0)
    epsilons, _ = epsilon_from_rdp(spent, delta, orders, conversion)
    counts = [vote.release.counts for vote in votes if vote.release.counts is not None]
    return SimulatedVote(
        labels=labels[:count],
        answered=answered[:count],
        epsilons=epsilons,
        exhausted=prefix.exhausted,
        counts=np.concatenate(counts)[:count] if counts else None,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class RehearsedVote(TeachersQuestion):
    """Question for a rehearsed vote, which is simulated in one batch by :func:`learning.mechanisms.pate.simulate_vote`.

    Attributes:
        groups: Levels of the rehearsal for which the plan was made.
        delta, seed, method, conversion: See that function.
        block: Number of queries after which the student is asked again, if the aggregator uses one.
    """

    groups: tuple[PrivacyGroup, ...]
    delta: float
    seed: int
    method: Method
    conversion: Conversion
    block: int

    spread = None

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> VoteState | None:  # type: ignore[override]
        """Return the state after the simulated vote; None before it."""
        return None if released is None else super().state(released)

    def stop(self, state: VoteState | None) -> Stop | None:
        return None if state is None else super().stop(state) or Stop.SHARE

    def simulated(self, ballot: Ballot) -> SimulatedVote:
        """Hold the whole vote and return its outcome."""
        return simulate_vote(
            self.plan,
            self.groups,
            ballot.predictions,
            self.n_classes,
            delta=self.delta,
            seed=self.seed,
            method=self.method,
            conversion=self.conversion,
            student=self.student,
            block=None if self.student is None else self.block,
            wanted_labels=self.wanted_labels,
        )

    def answer(  # type: ignore[override]
        self,
        part: slice,
        state: VoteState,
        people: People,
        records: Callable[[], SimulatedVote],
        *,
        alone: bool,
        draws: Draws,
    ) -> dict[str, Any]:
        vote = records()
        return {
            "labels": vote.labels,
            "reinforced": ~vote.answered & (vote.labels != REJECTED),
            "epsilons": vote.epsilons,
            "group": np.empty(0, np.int64),
            **({} if vote.counts is None else {"counts": vote.counts}),
        }

    def release(self, part: slice, state: VoteState, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        (answer,) = answers
        labels, reinforced = answer["labels"], answer["reinforced"]
        after = VoteState(labels, np.full(len(labels), NO_VOTE), reinforced)
        return PartRelease(
            size=len(labels),
            content={},
            arrays={**after.to_arrays(), "epsilons": answer["epsilons"]},
            rows=range(len(labels)),
            labels=[int(label) if label != REJECTED else None for label in labels],
            reinforced=reinforced.tolist(),
            counts=answer["counts"].tolist() if "counts" in answer else [],
            charges=[],
        )


def _require_teachers(plan: Plan, predictions: ArrayLike) -> NDArray[np.integer]:
    matrix = np.asarray(predictions)
    if matrix.ndim != 2 or len(matrix) != plan.teachers:
        raise ValueError(
            f"predictions must have the shape (teachers, queries) with {plan.teachers} teachers, not {matrix.shape}: "
            f"pass a row for each teacher of the plan, filled with {NO_VOTE} for retired ones."
        )
    return matrix


def _affordable(
    plan: Plan,
    groups: Sequence[PrivacyGroup],
    votes: Sequence[Vote],
    present: NDArray[np.bool_],
    answered: NDArray[np.bool_],
    delta: float,
    orders: ArrayLike,
    conversion: Conversion,
) -> tuple[Prefix, NDArray[np.float64], NDArray[np.float64]]:
    """Return the number of queries that all groups can afford, and the costs `(Q, G, R)` of checks and of labels."""
    alpha, queries = np.asarray(orders, dtype=np.float64), len(answered)
    costs = [
        QueryCosts(
            check=np.concatenate([vote.costs[index].check for vote in votes]),
            label=np.concatenate([vote.costs[index].label for vote in votes]),
        )
        for index in range(len(plan.groups))
    ]
    if plan.variant == "vanishing":
        costs = [
            participation_costs(cost, present[plan.members(index), :queries], answered)
            for index, cost in enumerate(costs)
        ]
    nothing = np.zeros((queries, alpha.size))
    planned = [plan.index_of(group.name) for group in groups]
    check = np.stack([nothing if i == LEFT_OUT else costs[i].check for i in planned], axis=1)
    label = np.stack([nothing if i == LEFT_OUT else costs[i].label for i in planned], axis=1)
    prefix = affordable_prefix(
        past=np.zeros((len(groups), alpha.size)),
        check=check,
        label=label,
        answered=answered,
        epsilons=[group.epsilon for group in groups],
        delta=delta,
        orders=alpha,
        conversion=conversion,
    )
    return prefix, check, label
