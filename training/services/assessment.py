"""How good a student is: on test data, rounded as published, and calibrated by releases it has not learned from."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from common.progress import Progress
from learning.calibration import CalibratedModel
from learning.learners import Model
from learning.outcomes import Target
from learning.students import Releases
from learning.students.held_out import fit_to_releases
from training.engine.records import records_key, records_load
from training.measures import evaluated, target_evaluated
from training.methods.lessons import Lesson, StudentRecipe, progress_of, student_fit
from training.methods.space import points_of
from training.models import Dataset, Run


def truth_of(dataset: Dataset) -> np.ndarray | None:
    """(n,) the classes of a public dataset's points, where they are known."""
    try:
        return records_load(dataset, "y")["y"]
    except KeyError:
        return None


def evaluation(model: Model, test: Dataset | None, encoder: str = "") -> dict[str, Any] | None:
    """Evaluation of a model's probabilities and likeliest classes, or of another outcome; None without test data.

    ``encoder``: the digest of that whose vectors the model takes; empty where it takes records as they are.
    """
    if test is None or test.removed_at is not None:
        return None
    key = records_key(encoder)
    arrays = records_load(test, key, "y")
    predictions, outcome = model.predict_proba(arrays[key]), test.outcome
    if isinstance(outcome, Target):
        return target_evaluated(outcome, predictions, arrays["y"]) | {"dataset": test.name}
    return evaluated(predictions, arrays["y"], test.classes) | {"dataset": test.name}


# --- Calibration ------------------------------------------------------------------------------------------------------


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
    recipe: StudentRecipe,
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
