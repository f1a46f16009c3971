"""A whole vote without a study, for benchmarks and tests: no ledger is charged, and a seed repeats it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import DEFAULT_ORDERS, affordable_prefix, epsilon_from_rdp
from accounting.privacy.checks import Method
from accounting.privacy.papers.curves import Conversion
from accounting.privacy.papers.filter import Prefix
from common.noise import SimulationNoise
from learning.mechanisms.pate.aggregators import QueryCosts
from learning.mechanisms.pate.plan import LEFT_OUT, Group, Plan
from learning.mechanisms.pate.vanishing import draw_participation, participation_costs
from learning.mechanisms.pate.vote import Vote, hold_vote
from learning.mechanisms.pate.votes import NO_VOTE


@dataclass(frozen=True, eq=False)
class SimulatedVote:
    """Outcome of the vote.

    labels, answered, counts: of the queries released before a budget ran out, as in `Release`; labels that were not
    answered are reinforced.  epsilons: what each group has spent, in the order given, `(groups,)`.  exhausted: which
    groups stopped the vote.
    """

    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    epsilons: NDArray[np.float64]
    exhausted: NDArray[np.bool_]
    counts: NDArray[np.int64] | None = None


def simulate_vote(
    plan: Plan,
    groups: Sequence[Group],
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
    """Put all queries to the vote until they are used up, the first group's budget is, or enough labels are released.

    groups: as they were given to `make_plan`; each starts with nothing spent and its ε to spend.  predictions:
    `(teachers, queries)`.  student: the labels so far, `(queries so far,)` → its probabilities `(queries, classes)`;
    asked before each block of `block` queries, for aggregators that ask one.  Everything else as in `hold_vote` and
    `affordable_prefix`.

    >>> from learning.mechanisms.pate import GNMax, make_plan
    >>> groups = [Group("HIGH", 1.0, 60), Group("LOW", 2.0, 40)]
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


def _affordable(
    plan: Plan,
    groups: Sequence[Group],
    votes: Sequence[Vote],
    present: NDArray[np.bool_],
    answered: NDArray[np.bool_],
    delta: float,
    orders: ArrayLike,
    conversion: Conversion,
) -> tuple[Prefix, NDArray[np.float64], NDArray[np.float64]]:
    """Return how many of the queries so far all groups can pay for, and the costs of checks and labels `(Q, G, R)`."""
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
