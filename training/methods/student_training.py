"""Training of a run's student, which uses only released and public data.

This module checks a proposed learner, trains and calibrates the student, records progress in the database, the log and
checkpoints, and evaluates the student on test data. It calibrates the student on releases that the student has not
learned from.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from zipfile import BadZipFile

import numpy as np
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from common import __version__
from common.artifacts import arrays_delete, arrays_load, arrays_save
from common.progress import Progress
from common.sentences import Sentence
from learning.calibration import Balance, CalibratedModel
from learning.class_shares import ClassShare
from learning.formats import schema_from_json
from learning.learners import Model
from learning.learners.learner import Parametrised
from learning.outcomes import Target
from learning.published import LINEAR
from learning.students import (
    STUDENTS,
    Releases,
    TrainingCheckpoint,
    labelled,
    refine,
    smooth,
    student_create,
    student_learn,
    with_labelled_rows,
)
from learning.students.releases import fit_to_releases
from training.engine.records import encoder_of, points_of, records_key, records_load
from training.engine.scheduling import WorkYielded, should_yield
from training.measures import answers, evaluated, target_evaluated
from training.models import Dataset, Encoder, Run


@dataclass(frozen=True, eq=False)
class StudentData:
    """Releases of a run, in the form used to train its student.

    Attributes:
        releases: The releases about points of the public dataset.
        coordinates: Coordinates (P, d) of all public points if releases are counts for images, None otherwise. Before a
            student learns from such counts, they are refined (`learning.students.refine`) or, if teachers voted,
            smoothed.
        voters: The public total weight of votes on a point; None if the holders near the point vote.
        model: The model that a run has released directly; None if it releases only labels.
        learner: Name of the learner that can read ``model``.
        publish: Whether to publish the "student" or the "model"; empty to choose by labelled public points.
        shares: Class shares among participants; None if the releases do not show them.
        balanced_on: Points (P, …), public or drawn from counts, whose mean probabilities balance the model's answers;
            None if the answers are not balanced.
    """

    releases: Releases
    coordinates: np.ndarray | None = None
    voters: float | None = None
    model: Model | None = None
    learner: str = LINEAR
    publish: str = "student"
    shares: list[ClassShare] | None = None
    balanced_on: np.ndarray | None = None

    def of(self, releases: Releases) -> StudentData:
        """Return the same data with only the given releases."""
        return replace(self, releases=releases)

    def releases_for(self, releases: Releases, seed: int) -> Releases:
        """Return the given releases, refined or smoothed if necessary, for a student to learn from."""
        if self.coordinates is None:
            return releases
        if self.voters is not None:
            return smooth(self.coordinates, releases, self.voters)
        return refine(self.coordinates, releases, seed=seed)


@dataclass(frozen=True)
class StudentRecipe:
    """Learner, parameters and public seed of a student; the same releases always produce the same student."""

    learner: str
    parameters: dict[str, Any]
    seed: int


def run_recipe(run: Run) -> StudentRecipe:
    """Return the recipe of the run's own student."""
    return StudentRecipe(run.student_learner, run.student_parameters, run.seed or 0)


def student_data_from_queries(run: Run) -> StudentData:
    """Return a student's training data: the labels of a run's answered queries."""
    answered = run.queries.filter(label__isnull=False)
    rows, labels = (list(answered.values_list(name, flat=True)) for name in ("row", "label"))
    return StudentData(labelled(rows, labels, classes=len(run.classes)))


def student_fit(
    run: Run, student_data: StudentData, recipe: StudentRecipe | None = None, *, progress: Progress | None = None
) -> Model:
    """Return a student trained on this data with ``recipe`` or, by default, the run's recipe.

    Progress is stored in the run's row unless ``progress`` is given.
    """
    recipe = recipe or run_recipe(run)
    releases = student_data.releases_for(student_data.releases, recipe.seed)
    if progress is not None:
        return student_from(run, recipe, releases, progress)
    with progress_of(Run.objects.filter(pk=run.pk), "student_progress", end=None) as noted:
        return student_from(run, recipe, releases, noted)


def student_from(run: Run, recipe: StudentRecipe, releases: Releases, progress: Progress) -> Model:
    """Return a student trained with this recipe on releases about the run's public points.

    It also learns from the run's labelled public rows. If a worker dies during training, training resumes from the
    checkpoint.
    """
    student = student_create(recipe.learner, recipe.parameters)
    points = points_of(run.public_points, run.encoder)
    if run.labelled_dataset is not None:
        releases = with_labelled_rows(releases, len(points), records_load(run.labelled_dataset, "y")["y"])
        points = np.concatenate([points, points_of(run.labelled_dataset, run.encoder)])
    place = f"{checkpoints_folder(run)}/{_key(recipe, releases)}.npz"
    model = student_learn(
        student, points, releases, seed=recipe.seed, progress=progress, checkpoint=checkpoint_at(place)
    )
    checkpoint_drop(place)
    return model


def checkpoints_folder(run: Run) -> str:
    """Return the folder for checkpoints of a run's students in training."""
    return f"checkpoints/{run.pk}"


def _key(recipe: StudentRecipe, releases: Releases) -> str:
    """Return a key that identifies a student by its recipe and training data."""
    digest = hashlib.sha256(json.dumps([__version__, recipe.learner, recipe.parameters, recipe.seed]).encode())
    for array in (releases.rows, releases.counts, releases.sigma):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


# --- Progress of training ---------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_LOGGED = 4  # log messages while a student is trained, at even intervals


@contextmanager
def progress_of(rows: QuerySet, field: str, *, end: float | None) -> Iterator[Progress]:
    """Provide a callback that stores the completed share (0 to 1) in a field of the rows and logs it at intervals.

    Args:
        rows: Database rows.
        field: Field to write to.
        end: Value of the field after the block, even if training fails.
    """
    last = 0

    def note(done: int, total: int) -> None:
        nonlocal last
        rows.update(**{field: done / total})
        if done * _LOGGED // total > last:
            last = done * _LOGGED // total
            logger.info("The student completed %d of %d steps.", done, total)

    rows.update(**{field: 0.0})
    try:
        yield note
    finally:
        rows.update(**{field: end})


def checkpoint_at(name: str) -> TrainingCheckpoint:
    """Return a checkpoint for training a student, which is the file ``name`` in private storage.

    An unreadable file, left by a worker that died while writing it, is ignored. If the checkpoint cannot be written,
    training continues without it. After writing the checkpoint, training yields if its time slice is over.
    """

    def load() -> bytes | None:
        try:
            return arrays_load(name, "state")["state"].tobytes()
        except (OSError, KeyError, ValueError, BadZipFile):
            return None

    def save(state: bytes) -> None:
        with suppress(OSError):
            arrays_save(name, state=np.frombuffer(state, dtype=np.uint8))
            if should_yield():
                raise WorkYielded

    return TrainingCheckpoint(load, save)


def checkpoint_drop(name: str) -> None:
    """Delete a checkpoint that is no longer needed."""
    arrays_delete(name)


# --- Learners that a proposal names -----------------------------------------------------------------------------------


def student_check(run: Run, wrong: Callable[[str, object], None]) -> None:
    """Report errors in a proposal's student, so that a run does not spend budget on a student that cannot learn."""
    try:
        student = student_create(run.student_learner, run.student_parameters)
    except (ValueError, TypeError) as error:
        return wrong("student_parameters" if run.student_learner in STUDENTS else "student_learner", error)
    shape_check(run, "student_learner", student, wrong, encoder_of(run))


def shape_check(
    run: Run, role: str, learner: Parametrised, wrong: Callable[[str, object], None], encoder: Encoder | None = None
) -> None:
    """Report an error if a learner cannot handle the shape of the public points or of the encoder's vectors."""
    if run.public_dataset_id:
        try:
            schema = schema_from_json(run.public_points.schema)
            learner.shape_check(schema.shape if encoder is None else (encoder.width,))
        except ValueError as error:
            wrong(role, _message(error))


def _message(error: ValueError) -> str:
    """Return a learner's error message, translated if it is a Sentence."""
    reason = error.args[0]
    return _(reason.template) % reason.values if isinstance(reason, Sentence) else str(error)


# --- Evaluation -------------------------------------------------------------------------------------------------------


def truth_of(dataset: Dataset) -> np.ndarray | None:
    """Return the classes of a public dataset's points, (n,); None if they are unknown."""
    try:
        return records_load(dataset, "y")["y"]
    except KeyError:
        return None


def evaluation(
    model: Model, test: Dataset | None, encoder: str = "", balance: Balance | None = None
) -> dict[str, Any] | None:
    """Evaluate a model's class probabilities and predictions, or another outcome; return None without test data.

    Args:
        model: Model to evaluate.
        test: Test data; None if there are none.
        encoder: Digest of the encoder whose vectors are the model's input; empty if records are the input.
        balance: Rule that chooses classes; None for the most likely class.
    """
    if test is None or test.removed_at is not None:
        return None
    key = records_key(encoder)
    arrays = records_load(test, key, "y")
    predictions, outcome = model.predict_proba(arrays[key]), test.outcome
    if isinstance(outcome, Target):
        return target_evaluated(outcome, predictions, arrays["y"]) | {"dataset": test.name}
    return evaluated(predictions, arrays["y"], test.classes, balance) | {"dataset": test.name}


def public_answers(run: Run, model: Model, balance: Balance | None) -> dict[str, Any] | None:
    """Return a model's most frequent answer for public points, which shows whether it nearly always gives this answer.

    If the points have no labels, the model's probabilities replace them. The result is None if the run predicts no
    classes or has no public points. ``balance`` is as in `evaluation`.
    """
    if not run.classes or run.public_dataset is None or run.are_points_removed:
        return None
    probabilities = model.predict_proba(points_of(run.public_dataset, run.encoder))
    truth = truth_of(run.public_dataset)
    chances = probabilities if truth is None else np.eye(len(run.classes))[truth]
    predicted = probabilities.argmax(axis=1) if balance is None else balance.labels(probabilities)
    found = answers(predicted, chances, run.classes)
    return None if found is None else found | {"labelled": truth is not None}


# --- Calibration ------------------------------------------------------------------------------------------------------


HELD_OUT = 0.2
"""Share of the releases that is held out to calibrate and compare students, which then learn from the rest."""


@dataclass(frozen=True)
class Duel:
    """Comparison of a student's and a model's correct predictions for labelled public points held out from training."""

    points: int
    student: int
    model: int

    @property
    def student_wins(self) -> bool:
        """Return whether the student is right more often than the model."""
        return self.student > self.model


@dataclass(frozen=True, eq=False)
class Trial:
    """Student trained on all releases, with the score that the same recipe achieved on held-out releases.

    ``score`` is the agreement with held-out releases; None if none could be held out. ``duel`` is the comparison with
    the model that taught the student, if the held-out points have labels.
    """

    model: Model
    score: float | None = None
    duel: Duel | None = None


def student_try(
    run: Run,
    student_data: StudentData,
    recipe: StudentRecipe,
    progress: Progress | None = None,
    *,
    tries: bool = True,
    truth: np.ndarray | None = None,
) -> Trial:
    """Return a calibrated student trained on this data.

    A student with the same recipe first learns from four fifths of the releases and is scored on the rest. The
    resulting calibration is used for the student that learns from all. If there are too few releases to hold any out,
    the student is not calibrated.

    Args:
        run: The run that made the releases.
        progress: Receives the progress, which is otherwise stored in the run's row.
        tries: Whether to hold out releases and calibrate the student.
        truth: Categories `(P,)` of the public points, -1 where unknown; None if all are unknown.
    """
    if progress is None:
        with progress_of(Run.objects.filter(pk=run.pk), "student_progress", end=None) as noted:
            return student_try(run, student_data, recipe, noted, tries=tries, truth=truth)
    learned, held_out = student_data.releases.split(HELD_OUT, recipe.seed)
    if not (tries and len(learned) and len(held_out)):
        return Trial(student_fit(run, student_data, recipe, progress=progress))
    trial = student_fit(run, student_data.of(learned), recipe, progress=lambda done, total: progress(done, 2 * total))
    probabilities = trial.predict_proba(points_of(run.public_points, run.encoder))
    model = student_fit(run, student_data, recipe, progress=lambda done, total: progress(total + done, 2 * total))
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
