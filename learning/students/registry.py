"""The students by name: those that learn from releases, and every learner of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from common.progress import Progress
from learning.learners import LEARNERS, instance_of, registered_class
from learning.learners.learner import Learner, Model, Parametrised
from learning.students.base import Student, learn_labels
from learning.students.boosting import Boosting
from learning.students.checkpoints import UNKEPT, Checkpoint
from learning.students.consistency import Consistency
from learning.students.releases import Releases
from learning.students.shares import Shares

STUDENTS: dict[str, type[Parametrised]] = {
    **{student.name: student for student in (Consistency, Shares, Boosting)},
    **LEARNERS,
}


def student_class(name: str) -> type[Parametrised]:
    """The student of this name; ValueError lists the names there are."""
    return registered_class(STUDENTS, name)


def student_create(name: str, parameters: Mapping[str, Any] | None = None) -> Parametrised:
    """The student with these parameters, defaults for the rest; ValueError says what is unknown or out of range.

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
    checkpoint: Checkpoint = UNKEPT,
) -> Model:
    """Let a student learn; see `Student.learn`; a learner of labels learns from the largest counts, and at once."""
    if isinstance(student, Student):
        return student.learn(points, releases, seed=seed, progress=progress, checkpoint=checkpoint)
    assert isinstance(student, Learner)
    return learn_labels(student, points, releases, seed=seed, progress=progress)


def suggested_student(kind: str) -> Parametrised:
    """The student that a first run on records of this kind, "image" or "table", may begin with.

    >>> suggested_student("image").name, suggested_student("table").name
    ('consistency', 'shares')
    """
    return Consistency() if kind == "image" else Shares()
