"""Lessons: what the student of a run learns from, all of it released."""

from dataclasses import dataclass

import numpy as np

from training.learners import Model
from training.models import Run
from training.services.holders.space import points_of
from training.students import Releases, labelled, refined, student_create, student_learn


@dataclass(frozen=True, eq=False)
class Lesson:
    """Releases of a run, as its student learns from them.

    Attributes:
        releases: About points of the public dataset.
        coordinates: (P, d) of all public points, where releases are about neighbourhoods of images: these are refined
            before they are taught, see `training.students.refined`. None elsewhere.
        model: What a run has released itself, None where it releases labels alone.
        publish: Which of the two is published: "student" or "model".
    """

    releases: Releases
    coordinates: np.ndarray | None = None
    model: Model | None = None
    publish: str = "student"


def queries_lesson(run: Run) -> Lesson:
    """The labels of the answered queries of a run."""
    answered = run.queries.filter(label__isnull=False)
    rows, labels = (list(answered.values_list(name, flat=True)) for name in ("row", "label"))
    return Lesson(labelled(rows, labels, classes=len(run.public_dataset.classes)))


def student_fit(run: Run, lesson: Lesson) -> Model:
    """The student that the run asked for, after the lesson. Its seed is public."""
    seed, told = run.seed or 0, lesson.releases
    if lesson.coordinates is not None:
        told = refined(lesson.coordinates, told, seed=seed)
    student = student_create(run.student_learner, run.student_parameters)
    return student_learn(student, points_of(run.public_dataset), told, seed=seed)
