"""Students with their calibration, by releases that they have not learned from."""

from common.progress import Progress
from learning.calibration import CalibratedModel
from learning.learners import Model
from learning.students.calibration import fit_to_releases
from training.methods.lessons import Lesson, Recipe, student_fit
from training.methods.progress import progress_told
from training.methods.space import points_of
from training.models import Run

HELD_OUT = 0.2
"""Share of the releases by which students are calibrated and versions compared; each learns from the others."""


def student_calibrated(
    run: Run, lesson: Lesson, recipe: Recipe, progress: Progress | None = None, *, calibrates: bool = True
) -> tuple[Model, float | None]:
    """A student after the lesson, and its agreement with held-out releases.

    The same student learns from four fifths of the releases first, and is compared with the others: what calibrates it
    calibrates the one that learns from all. Where there are too few releases to hold any out, nothing is changed.
    """
    if progress is None:
        with progress_told(Run.objects.filter(pk=run.pk), "student_progress", end=None) as noted:
            return student_calibrated(run, lesson, recipe, noted, calibrates=calibrates)
    learned, held_out = lesson.releases.split(HELD_OUT, recipe.seed)
    if not (calibrates and len(learned) and len(held_out)):
        return student_fit(run, lesson, recipe, progress=progress), None
    trial = student_fit(run, lesson.of(learned), recipe, progress=lambda done, total: progress(done, 2 * total))
    probabilities = trial.predict_proba(points_of(run.public_points))
    model = student_fit(run, lesson, recipe, progress=lambda done, total: progress(total + done, 2 * total))
    return CalibratedModel(model, fit_to_releases(probabilities, held_out)), held_out.score(probabilities)
