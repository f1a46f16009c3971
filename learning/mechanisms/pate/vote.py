"""One batch of queries put to the vote: labels, and what each group owes for them if they are released."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import DEFAULT_ORDERS
from accounting.privacy.checks import Method
from common.noise import Noise
from learning.mechanisms.pate.aggregators import QueryCosts, Release
from learning.mechanisms.pate.plan import Plan
from learning.mechanisms.pate.votes import NO_VOTE, count_votes, group_votes


@dataclass(frozen=True, eq=False)
class Vote:
    """The outcome of a batch. All of it is secret until the budget filter has said how much of it may be released.

    votes: `(queries, classes)`, weighted.  release: the labels.  costs: for each group of the plan, what a query costs
    a holder of the group whose teacher took part in it, `(queries, R)`.
    """

    votes: NDArray[np.float64]
    release: Release
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
    """Count the votes, draw the noise, and price every query for every group by the group's own sensitivity.

    A group none of whose teachers voted on a query pays nothing for it. In the vanishing variant, where some did and
    others did not, `participation_costs` turns these costs into what the query adds to the group's account.

    predictions: `(teachers, queries)`, numbered as in the plan; `NO_VOTE` where a teacher takes no part.  method,
    orders, student_probabilities: as for `Aggregator.costs`. Raises ValueError if the predictions do not fit the plan.

    >>> from learning.mechanisms.pate import GNMax, Group, SimulationNoise, make_plan
    >>> plan = make_plan([Group("HIGH", 1.0, 10), Group("LOW", 2.0, 10)], variant="weighting", teachers=4,
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
    """Cost of a vote on these predictions to each group of the plan, without holding it; see `hold_vote`.

    >>> from learning.mechanisms.pate import GNMax, Group, make_plan
    >>> plan = make_plan([Group("HIGH", 1.0, 4)], variant="standard", teachers=2, aggregator=GNMax(sigma=2.0),
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


def _require_teachers(plan: Plan, predictions: ArrayLike) -> NDArray[np.integer]:
    matrix = np.asarray(predictions)
    if matrix.ndim != 2 or len(matrix) != plan.teachers:
        raise ValueError(
            f"predictions must have the shape (teachers, queries) with {plan.teachers} teachers, not {matrix.shape}: "
            f"pass a row for each teacher of the plan, of {NO_VOTE} for one that is retired."
        )
    return matrix
