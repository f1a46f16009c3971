"""Ballot of a run: what its teachers say and who is behind them. All of it is secret.

A file is never written over by another content that matters: the row in the database names the one that counts, so
that a crash between the two, or a worker that wakes up late, leaves a file that nobody reads.
"""

from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID, uuid4

import numpy as np

from common.artifacts import arrays_load
from learning.mechanisms.pate import NO_VOTE, Plan
from training.engine.budgets import GroupBudget, budgets_from_json
from training.engine.files import run_folder
from training.methods.pate.planning import plan_from_json
from training.models import Batch, Query, Run, TeacherChunk


def assignment_name(run: Run) -> str:
    """A new name for pairs ``holder``, ``teacher``, ``group`` (index in the plan), and ``seeds`` (teachers,)."""
    return f"{run_folder(run)}/assignment-{uuid4().hex[:12]}.npz"


def predictions_name(chunk: TeacherChunk) -> str:
    """A new name for ``predictions`` (teachers of the chunk, public points) of class numbers, or ``NO_VOTE``."""
    return f"{run_folder(chunk.run)}/predictions-{chunk.start}-{uuid4().hex[:12]}.npz"


def predictions_load(run: Run) -> np.ndarray:
    """Predictions of every teacher for every public point: ``(teachers, points)``."""
    return np.concatenate([arrays_load(chunk.artifact)["predictions"] for chunk in run.chunks.all()])


@dataclass(frozen=True, eq=False)
class Ballot:
    """Data that stay the same throughout a run's vote.

    ``predictions`` (teachers, points); ``holder``, ``teacher``, ``group`` (pairs,): who is in which teacher, charged as
    which group of the plan; ``members`` (H,) ids in rising order of all who are charged, ``group_of`` (H,) their group.
    """

    run_id: UUID
    plan: Plan
    budgets: list[GroupBudget]
    classes: int
    predictions: np.ndarray
    holder: np.ndarray
    teacher: np.ndarray
    group: np.ndarray
    members: np.ndarray
    group_of: np.ndarray

    @property
    def points(self) -> int:
        return self.predictions.shape[1]

    def votes(self, points: slice, silent: np.ndarray, student: np.ndarray | None = None) -> np.ndarray:
        """Weighted counts ``(queries, classes)`` of some points.

        ``silent`` (teachers,) cast no vote; ``student`` (queries, classes) is what a student makes of these points, all
        0 before there is one.
        """
        cast = self.predictions[:, points].copy()
        cast[silent] = NO_VOTE
        guesses = student.argmax(axis=1) if student is not None and student.any() else None
        return self.plan.aggregator.count(
            cast,
            self.classes,
            self.plan.teacher_weights(),
            guesses=guesses,
            disagreed=None if guesses is None else self.disagreements(),
        )

    def disagreements(self) -> np.ndarray:
        """(teachers,) how often each teacher has said something else than the student in the batches before."""
        counts = np.zeros(len(self.predictions), dtype=np.int64)
        for start, guesses in Batch.objects.filter(run=self.run_id).values_list("start", "guesses"):
            if guesses is not None and start >= (self.budgets[0].first or 0):
                said = self.predictions[:, start : start + len(guesses)]
                counts += ((said != NO_VOTE) & (said != np.array(guesses))).sum(axis=1)
        return counts


@lru_cache(maxsize=2)
def ballot_load(run_id: UUID) -> Ballot:
    """The ballot of a run whose vote has begun, while its arrays are kept."""
    run = Run.objects.select_related("public_dataset").get(pk=run_id)
    assignment = arrays_load(run.assignment)
    members, first = np.unique(assignment["holder"], return_index=True)
    return Ballot(
        run_id=run_id,
        plan=plan_from_json(run.plan),
        budgets=budgets_from_json(run.plan),
        classes=len(run.classes),
        predictions=predictions_load(run),
        holder=assignment["holder"],
        teacher=assignment["teacher"],
        group=assignment["group"],
        members=members,
        group_of=assignment["group"][first],
    )


def labelled_queries(run: Run, labels: np.ndarray, answered: np.ndarray) -> list[Query]:
    """The next public points of a run with their labels, none where ``answered`` is False; not saved."""
    return [
        Query(run=run, row=run.position + offset, label=int(label) if is_answered else None)
        for offset, (label, is_answered) in enumerate(zip(labels, answered, strict=True))
    ]
