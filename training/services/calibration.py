"""Students with their calibration, by releases that they have not learned from."""

from dataclasses import dataclass

import numpy as np

from common.progress import Progress
from learning.calibration import CalibratedModel
from learning.learners import Model
from learning.students import Releases
from learning.students.calibration import fit_to_releases
from training.methods.lessons import Lesson, Recipe, progress_of, student_fit
from training.methods.space import points_of
from training.models import Run

HELD_OUT = 0.2
"""Share of the releases by which students are calibrated and versions compared; each learns from the others."""


@dataclass(frozen=True)
class Duel:
    """Labelled public points that a student had not learned from: how many it says right, and what taught it does."""

    points: int
    student: int
    model: int

    @property
    def student_wins(self) -> bool:
        """Whether the student is right more often."""
        return self.student > self.model


@dataclass(frozen=True, eq=False)
class Trial:
    """A student that has learned from all releases, and how the same one did on some that it had not learned from.

    score: agreement with these; None where none could be held out.  duel: with what taught it, where their points have
    labels.
    """

    model: Model
    score: float | None = None
    duel: Duel | None = None


def student_try(
    run: Run,
    lesson: Lesson,
    recipe: Recipe,
    progress: Progress | None = None,
    *,
    tries: bool = True,
    truth: np.ndarray | None = None,
) -> Trial:
    """A student after the lesson, calibrated.

    The same student learns from four fifths of the releases first, and is compared with the others: what calibrates it
    calibrates the one that learns from all. Where there are too few releases to hold any out, nothing is changed.

    Args:
        run: Whose releases they are.
        lesson: What it learns from.
        recipe: By which.
        progress: Hears how far it is; else the run's row does.
        tries: Whether any are held out.
        truth: `(P,)` categories of the public points, -1 where one is not known; None where none is.
    """
    if progress is None:
        with progress_of(Run.objects.filter(pk=run.pk), "student_progress", end=None) as noted:
            return student_try(run, lesson, recipe, noted, tries=tries, truth=truth)
    learned, held_out = lesson.releases.split(HELD_OUT, recipe.seed)
    if not (tries and len(learned) and len(held_out)):
        return Trial(student_fit(run, lesson, recipe, progress=progress))
    trial = student_fit(run, lesson.of(learned), recipe, progress=lambda done, total: progress(done, 2 * total))
    probabilities = trial.predict_proba(points_of(run.public_points, run.encoder))
    model = student_fit(run, lesson, recipe, progress=lambda done, total: progress(total + done, 2 * total))
    calibrated = CalibratedModel(model, fit_to_releases(probabilities, held_out))
    return Trial(calibrated, held_out.score(probabilities), _duel(probabilities, held_out, truth))


def _duel(probabilities: np.ndarray, held_out: Releases, truth: np.ndarray | None) -> Duel | None:
    if truth is None:
        return None
    right = truth[held_out.rows]
    known = right >= 0
    says = (probabilities[held_out.rows].argmax(axis=1), held_out.labels)
    student, model = (int((each[known] == right[known]).sum()) for each in says)
    return Duel(int(known.sum()), student, model)
