"""A whole vote without a study, for benchmarks and tests: no ledger is charged, and a seed repeats it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import DEFAULT_ORDERS, affordable_prefix, epsilon_from_rdp
from accounting.privacy.checks import Method
from accounting.privacy.papers.conversion import Conversion
from common.noise import SimulationNoise
from learning.mechanisms.pate.plan import LEFT_OUT, Group, Plan
from learning.mechanisms.pate.vanishing import draw_participation, participation_costs
from learning.mechanisms.pate.vote import hold_vote
from learning.mechanisms.pate.votes import NO_VOTE


@dataclass(frozen=True, eq=False)
class SimulatedVote:
    """Outcome of the vote.

    labels, answered: of the queries released before a budget ran out, as in `Release`.  epsilons: what each group has
    spent, in the order given, `(groups,)`.  exhausted: which groups stopped the vote.
    """

    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    epsilons: NDArray[np.float64]
    exhausted: NDArray[np.bool_]


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
    student_probabilities: ArrayLike | None = None,
    wanted_labels: int | None = None,
) -> SimulatedVote:
    """Put all queries to the vote until they are used up, the first group's budget is, or enough labels are released.

    groups: as they were given to `make_plan`; each starts with nothing spent and its ε to spend.  predictions:
    `(teachers, queries)`.  Everything else as in `hold_vote` and `affordable_prefix`.

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
    vote = hold_vote(
        plan,
        np.where(present, matrix, NO_VOTE),
        classes,
        SimulationNoise(seed),
        method=method,
        orders=orders,
        student_probabilities=student_probabilities,
    )
    answered = vote.release.answered
    costs = vote.costs
    if plan.variant == "vanishing":
        costs = tuple(
            participation_costs(cost, present[plan.members(index)], answered) for index, cost in enumerate(costs)
        )
    alpha = np.asarray(orders, dtype=np.float64)
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
    count = prefix.count
    if wanted_labels is not None:
        count = min(count, int(np.searchsorted(np.cumsum(answered), wanted_labels)) + 1)
    spent = check[:count].sum(axis=0) + label[:count][answered[:count]].sum(axis=0)
    epsilons, _ = epsilon_from_rdp(spent, delta, alpha, conversion)
    return SimulatedVote(
        labels=vote.release.labels[:count],
        answered=answered[:count],
        epsilons=epsilons,
        exhausted=prefix.exhausted,
    )
