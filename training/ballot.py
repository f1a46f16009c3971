"""What a run's teachers say, who is behind them, and what a part of the vote costs. All of it is secret.

A file is never written over by another content that matters: the row in the database names the one that counts, so
that a crash between the two, or a worker that wakes up late, leaves a file that nobody reads.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast
from uuid import UUID, uuid4

import numpy as np

from accounting.privacy import Method
from training.artifacts import arrays_load
from training.models import Run, TeacherChunk, VoteBatch
from training.pate import NO_VOTE, Plan, count_votes, vote_costs
from training.services.planning import plan_from_json


def run_folder(run: Run) -> str:
    """Where a run's secrets lie in private storage, and nothing else."""
    return f"runs/{run.pk}"


def assignment_name(run: Run) -> str:
    """A new name for pairs ``holder``, ``teacher``, ``group`` (index in the plan), and ``seeds`` (teachers,)."""
    return f"{run_folder(run)}/assignment-{uuid4().hex[:12]}.npz"


def promises_name(run: Run) -> str:
    """Array ``epsilon`` (pairs,): the budget that each pair of the assignment votes under."""
    return f"{run_folder(run)}/promises.npz"


def predictions_name(chunk: TeacherChunk) -> str:
    """A new name for ``predictions`` (teachers of the chunk, public points) of class numbers, or ``NO_VOTE``."""
    return f"runs/{chunk.run_id}/predictions-{chunk.start}-{uuid4().hex[:12]}.npz"


def predictions_load(run: Run) -> np.ndarray:
    """What every teacher says of every public point: ``(teachers, points)``."""
    return np.concatenate([arrays_load(chunk.artifact)["predictions"] for chunk in run.chunks.all()])


@dataclass(frozen=True, eq=False)
class BatchCosts:
    """What each query costs each privacy group: ``check`` and ``label`` (queries, groups, R)."""

    check: np.ndarray
    label: np.ndarray

    def total(self, answered: np.ndarray) -> np.ndarray:
        """(groups, R): the cost of as many leading queries as ``answered`` has."""
        count = len(answered)
        return self.check[:count].sum(axis=0) + self.label[:count][answered].sum(axis=0)


@dataclass(frozen=True, eq=False)
class Ballot:
    """What stays the same throughout a run's vote.

    ``predictions`` (teachers, points); ``holder``, ``teacher``, ``epsilon`` (pairs,): who is in which teacher, under
    which ε; ``group_of`` the group of the plan that each privacy group of the account belongs to.
    """

    plan: Plan
    group_of: list[int]
    classes: int
    predictions: np.ndarray
    holder: np.ndarray
    teacher: np.ndarray
    epsilon: np.ndarray

    @property
    def points(self) -> int:
        return self.predictions.shape[1]

    @property
    def sensitivities(self) -> list[float]:
        """By how much a holder of each privacy group can move a vote count."""
        return [self.plan.groups[index].sensitivity for index in self.group_of]

    def votes(self, points: slice, silent: np.ndarray) -> np.ndarray:
        """Weighted counts ``(queries, classes)`` of some points; ``silent`` (teachers,) cast no vote."""
        return count_votes(self._cast(points, silent), self.classes, self.plan.teacher_weights())

    def costs(self, points: slice, silent: np.ndarray, orders: Any, method: Method) -> BatchCosts:
        """What those votes cost: each group by its own sensitivity, nothing where none of its teachers votes."""
        of_plan = vote_costs(
            self.plan, self._cast(points, silent), self.classes, method=method, orders=np.asarray(orders)
        )
        return BatchCosts(
            check=np.stack([of_plan[index].check for index in self.group_of], axis=1),
            label=np.stack([of_plan[index].label for index in self.group_of], axis=1),
        )

    def _cast(self, points: slice, silent: np.ndarray) -> np.ndarray:
        cast = self.predictions[:, points].copy()
        cast[silent] = NO_VOTE
        return cast


@lru_cache(maxsize=2)
def ballot_load(run_id: UUID) -> Ballot:
    """The ballot of a run whose vote has begun, while its arrays are kept."""
    run = Run.objects.select_related("public_dataset").get(pk=run_id)
    assignment = arrays_load(run.assignment)
    return Ballot(
        plan=plan_from_json(run.plan),
        group_of=run.plan["group_of"],
        classes=len(run.public_dataset.classes),
        predictions=predictions_load(run),
        holder=assignment["holder"],
        teacher=assignment["teacher"],
        epsilon=arrays_load(promises_name(run))["epsilon"],
    )


def batch_cost(batch: VoteBatch) -> np.ndarray:
    """(groups, R): what a batch that was committed cost, computed anew from the teachers' predictions."""
    run, ballot = batch.run, ballot_load(batch.run_id)
    silent = np.zeros(ballot.plan.teachers, dtype=bool)
    silent[batch.silent_teachers] = True
    account = run.account
    assert account is not None, "a batch was committed to an account"
    points = slice(batch.start, batch.start + batch.queries)
    answered = np.array([label is not None for label in batch.results.order_by("row").values_list("label", flat=True)])
    return ballot.costs(points, silent, account.orders, cast(Method, account.method)).total(answered)
