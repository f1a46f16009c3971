"""Students by name: models that learn from releases about public points, at no privacy cost.

Students see only releases, never accounts or private records. All learners of labels are also students. Does not import
Django.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from common.progress import Progress
from learning.learners import LEARNERS, instance_of, registered_class
from learning.learners.learner import Learner, Model, Parametrised
from learning.students.boosting import Boosting
from learning.students.consistency import Consistency
from learning.students.releases import Releases, choose, counted, joined, labelled, predicted, with_labelled_rows
from learning.students.shares import Shares
from learning.students.smoothing import neighbourhoods, refine, smooth
from learning.students.student import UNKEPT, CategoriesModel, Student, TrainingCheckpoint, learn_labels, published_form

STUDENTS: dict[str, type[Parametrised]] = {
    **{student.name: student for student in (Consistency, Shares, Boosting)},
    **LEARNERS,
}


def student_class(name: str) -> type[Parametrised]:
    """Return the student class with this name. The ValueError for an unknown name lists the available names."""
    return registered_class(STUDENTS, name)


def student_create(name: str, parameters: Mapping[str, Any] | None = None) -> Parametrised:
    """Return a student with these parameters and defaults for the rest.

    Raises:
        ValueError: The student or a parameter is unknown, or a parameter is out of range.

    >>> student_create("boosting", {"leaves": 8}).leaves
    8
    """
    return instance_of(STUDENTS, name, parameters)


def student_learn(
    student: Parametrised,
    points: npt.NDArray[np.floating],
    releases: Releases,
    *,
    seed: int,
    progress: Progress | None = None,
    checkpoint: TrainingCheckpoint = UNKEPT,
) -> Model:
    """Train a student; see `Student.learn`. Learners of labels learn the largest counts and use no checkpoints."""
    if isinstance(student, Student):
        return student.learn(points, releases, seed=seed, progress=progress, checkpoint=checkpoint)
    assert isinstance(student, Learner)
    return learn_labels(student, points, releases, seed=seed, progress=progress)


def suggested_student(kind: str) -> Parametrised:
    """Return the student suggested for a first run on records of this kind, "image" or "table".

    >>> suggested_student("image").name, suggested_student("table").name
    ('consistency', 'shares')
    """
    return Consistency() if kind == "image" else Shares()
