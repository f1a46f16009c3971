"""Trainings of students of finished runs: another version, or the assessment of one. They cost nobody anything.

Each is a row and a task. It can be repeated after a crash and resumes from its checkpoint; its version and the note
that it is done are written together.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from common.jobs import PartDied, guarded
from common.logging import logging_run
from common.progress import Progress
from consent.services import study_lock
from learning.students import labelled, said
from training.engine.asking import run_part_do
from training.engine.turns import StepAside, send
from training.errors import STATE, RunError
from training.methods.lessons import StudentRecipe, evaluation, progress_of, student_check, student_from, truth_of
from training.models import Run, StudentTraining
from training.services.students import student_teach, version_add

logger = logging.getLogger(__name__)


@transaction.atomic
def student_ask(
    *,
    run: Run,
    student_learner: str,
    student_parameters: Mapping[str, Any],
    acting_user: AbstractBaseUser | None,
    by_worker: bool = True,
) -> StudentTraining:
    """Request another version of a finished run's student, from the same releases; a worker trains it.

    Args:
        run: A finished run with no other version of its student in training.
        student_learner: One of `STUDENTS`.
        student_parameters: Its parameters; missing ones get their defaults.
        acting_user: The user who asks; None for an administrator at the command line.
        by_worker: Whether to queue it for a worker; otherwise the caller does it, see `student_learn`.

    Raises:
        ValidationError: By field, if it cannot be trained.
    """
    study_lock(run.study_id)
    run = Run.objects.select_for_update(of=("self",)).select_related("study", "public_dataset").get(pk=run.pk)
    if run.public_dataset is None:
        raise ValidationError(
            _("The run has no public points that a student could learn from. The model that it released is its result.")
        )
    if not run.learns.categories:
        raise ValidationError(
            _("That is too many labels for a student to learn. This run publishes its model instead.")
        )
    if run.are_points_removed:
        raise ValidationError(_("The public points were removed, so no student can learn from them any more."))
    recipe_check(run, student_learner, student_parameters)
    if run.status != Run.Status.FINISHED:
        raise ValidationError(_("You can only train the student of a finished run again."), code=STATE)
    if versions_under_way(run).exists():
        raise ValidationError(_("Another version of this student is being trained. Wait until it is done."), code=STATE)
    run.trainings.filter(version=None).exclude(message="").delete()
    training = StudentTraining.objects.create(
        run=run,
        learner=student_learner,
        parameters=dict(student_parameters),
        requested_by_id=acting_user.pk if acting_user is not None else None,
        heartbeat=timezone.now(),
    )
    if by_worker:
        send("student_learn", training.pk)
    return training


def recipe_check(run: Run, student_learner: str, student_parameters: Mapping[str, Any]) -> None:
    """Check that a student with these parameters can learn from a run's public points; ValidationError, by field."""
    errors: dict[str, list[str]] = {}
    proposal = Run(
        public_dataset=run.public_dataset, student_learner=student_learner, student_parameters=student_parameters
    )
    student_check(proposal, lambda field, message: errors.setdefault(field, []).append(str(message)))
    if errors:
        raise ValidationError(errors)


def versions_under_way(run: Run) -> Any:
    """Return the unfinished training of another version: one at most."""
    return run.trainings.filter(version=None).exclude(state=StudentTraining.State.DONE)


def student_learn(training_id: int | str, progress: Progress | None = None) -> bool:
    """Do a training unless it is done or a live worker is at it, reporting to `progress`; return whether it ran."""
    training = StudentTraining.objects.select_related("run").filter(pk=training_id).first()
    if training is None:
        return False
    worked = False
    with (
        logging_run(training.run_id),
        guarded(
            "The training of the student",
            expected=(RunError, PartDied, ValueError),
            fail=partial(_fail, training),
            unexpected=gettext_noop("An unexpected error. The worker's logs contain it under this run's id."),
        ),
    ):
        try:
            worked = run_part_do(
                training,
                status=Run.Status.FINISHED,
                work=lambda found: _worked(found, progress),
                died=gettext_noop("Too many workers died during this task. The workers' logs contain the reason."),
            )
        except StepAside:
            logger.info("The training of the student steps aside for other work.")
            send("student_learn", training_id)
            worked = True
    return worked


def _fail(training: StudentTraining, message: str) -> None:
    logger.warning("No student came of the training: %s", message)
    StudentTraining.objects.filter(pk=training.pk).update(message=message, state=StudentTraining.State.DONE)


def _worked(training: StudentTraining, also: Progress | None) -> str:
    """Do the training and write its result; it leaves no file in private storage.

    Raises RunError if the public points were removed after the request.
    """
    if training.run.are_points_removed:
        raise RunError(gettext_noop("The public points were removed, so no student can learn from them any more."))
    with progress_of(StudentTraining.objects.filter(pk=training.pk), "progress", end=1.0) as noted:

        def progress(done: int, total: int) -> None:
            noted(done, total)
            if also is not None:
                also(done, total)

        (_version_train if training.version_id is None else _version_assess)(training, progress)
    return ""


def _version_train(training: StudentTraining, progress: Progress) -> None:
    recipe = StudentRecipe(training.learner, training.parameters, training.run.seed or 0)
    taught = student_teach(training.run, recipe, progress=progress)
    with transaction.atomic():
        study_lock(training.run.study_id)
        if _is_done(training):
            return
        version_add(
            training.run, taught, acting_user_id=training.requested_by_id, requested_by_id=training.requested_by_id
        )
    logger.info("Another version of the student has learned.")


def _is_done(training: StudentTraining) -> bool:
    """Mark a training as done, in the transaction that writes its result; return whether it was done before."""
    rows = StudentTraining.objects.filter(pk=training.pk).exclude(state=StudentTraining.State.DONE)
    return not rows.update(state=StudentTraining.State.DONE)


def _version_assess(training: StudentTraining, progress: Progress) -> None:
    """Compare a version with the same student on true public labels."""
    run, version = training.run, training.version
    assert version is not None
    recipe = StudentRecipe(training.learner, training.parameters, version.seed)
    truth, reference = truth_of(run.public_points), None
    if truth is not None:
        numbers = run.learns.categories_of(truth)
        if (numbers >= 0).all():  # the true category of people censored early is unknown
            true = labelled(np.arange(len(truth)), numbers, classes=len(run.learns.categories))
            student = said(student_from(run, recipe, true, progress), run.learns)
            reference = evaluation(student, run.test_dataset, run.encoder)
    with transaction.atomic():
        version.reference = reference
        version.save(update_fields=["reference"])
        _is_done(training)
