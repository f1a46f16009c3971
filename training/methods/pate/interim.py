"""The student of a vote that is under way: it learns from the labels released so far, and from nothing else."""

from functools import lru_cache
from uuid import UUID

import numpy as np

from learning.students import labelled
from training.methods.lessons import Lesson, student_fit
from training.methods.space import points_of
from training.models import Run

#: The first student learns from this many labels, each later one from twice as many.
LABELS = 10


def interim_probabilities(run: Run, points: slice) -> np.ndarray:
    """(Q, C) what the present student makes of some public points; all 0 before there are ``LABELS`` labels."""
    if run.labels < LABELS:
        asked = range(run.public_points.rows)[points]
        return np.zeros((len(asked), len(run.classes)))
    known = LABELS * 2 ** int(np.log2(run.labels / LABELS))
    return _probabilities(run.pk, known)[points]


@lru_cache(maxsize=2)
def _probabilities(run_id: UUID, known: int) -> np.ndarray:
    """Probabilities of all public points by a student that learned from the first ``known`` labels."""
    run = Run.objects.select_related("public_dataset").get(pk=run_id)
    answered = run.queries.filter(label__isnull=False).order_by("row")[:known]
    rows, labels = np.array(list(answered.values_list("row", "label"))).T
    model = student_fit(run, Lesson(labelled(rows, labels, classes=len(run.classes))))
    return model.predict_proba(points_of(run.public_points))
