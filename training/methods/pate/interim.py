"""The student of a vote that is under way: it learns from the labels released so far, and from nothing else."""

from functools import lru_cache
from uuid import UUID

import numpy as np

from learning.mechanisms.pate import REJECTED
from learning.students import labelled
from training.methods.lessons import Lesson, student_fit
from training.methods.space import points_of
from training.models import Run

#: The first student learns from this many labels, each later one from twice as many.
LABELS = 10


def interim_probabilities(run: Run, labels: np.ndarray) -> np.ndarray:
    """(points, C) what the present student makes of the public points; all 0 before there are ``LABELS`` labels.

    ``labels`` (Q,) are those of the first public points, ``REJECTED`` where there is none.
    """
    (rows,) = np.nonzero(labels != REJECTED)
    if len(rows) < LABELS:
        return np.zeros((run.public_points.rows, len(run.classes)))
    known = rows[: LABELS * 2 ** int(np.log2(len(rows) / LABELS))]
    return _probabilities(run.pk, tuple(known.tolist()), tuple(labels[known].tolist()))


@lru_cache(maxsize=2)
def _probabilities(run_id: UUID, rows: tuple[int, ...], labels: tuple[int, ...]) -> np.ndarray:
    """Probabilities of all public points by a student that learned from some labels."""
    run = Run.objects.select_related("public_dataset").get(pk=run_id)
    model = student_fit(run, Lesson(labelled(np.array(rows), np.array(labels), classes=len(run.classes))))
    return model.predict_proba(points_of(run.public_points))
