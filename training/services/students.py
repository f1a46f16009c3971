"""Students, which learn only from releases. Each student is a version with a card.

If a run releases a model directly, that model is the version.

A finished run's student can be trained again or assessed at no charge, by a task with a row in the database. The task
can be repeated after a crash, resumes from its checkpoint, and is marked as done in the transaction that writes its
version. Every version is kept and recorded in the register.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from accounting.services import release_record
from common.artifacts import model_store
from common.jobs import PartDied, guarded
from common.logging import logging_run
from common.progress import Progress, counted
from common.sentences import Sentence
from consent.services import study_lock
from learning.calibration import Balance, CalibratedModel, Calibration, rule_of_card
from learning.encoders import EncoderError
from learning.formats import DataError, Schema, schema_from_json
from learning.learners import Model
from learning.students import CategoriesModel, Releases, labelled, published_form
from training.engine.asking import run_part_do
from training.engine.records import points_of, rows_encode
from training.engine.scheduling import WorkYielded, send
from training.errors import STATE, RunError
from training.measures import published_accuracy
from training.methods import student_data_of
from training.methods.student_training import (
    Duel,
    StudentRecipe,
    evaluation,
    progress_of,
    public_answers,
    run_recipe,
    student_check,
    student_from,
    student_try,
    truth_of,
)
from training.models import Run, StudentModel, StudentTraining
from training.notices import model_withdrawn_mail, notify_published, notify_run_ended
from training.services.cards import Candidate, card, card_digest, choice_document, shares_document
from training.services.downloads import model_downloaders, onnx_store, version_load
from training.services.publication import publication_doubts, too_few_labels, withdrawal_record

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TrainedStudent:
    """Trained student, with the data to store once its version has a number."""

    recipe: StudentRecipe
    chosen: Candidate
    seconds: float
    artifact: str
    digest: str
    onnx: tuple[str, str]
    label_accuracy: float | None
    calibration: Calibration
    score: float | None
    card: dict[str, Any]


def student_train(run: Run) -> bool:
    """Train and evaluate the student, store it as a version with its card, and finish the run.

    A run that has released too few labels finishes without a model; a joint run instead fails, so that its sites do not
    wait for the hub's model.
    """
    student_data = student_data_of(run)
    too_few = too_few_labels(len(student_data.releases)) if student_data.model is None else None
    if too_few is not None and run.alliance_id is None:
        return _finish_without_model(run, too_few)
    trained = student_teach(run, run_recipe(run), may_release=True)
    with transaction.atomic():
        study_lock(run.study_id)
        run = Run.objects.select_for_update(of=("self",)).select_related("study", "public_dataset").get(pk=run.pk)
        if run.status != Run.Status.LEARNING:
            return False
        publishes = not publication_doubts(trained.chosen.evaluation)
        version = version_add(run, trained, acting_user_id=run.approved_by_id, publishes=publishes)
        run.student = version if publishes else None
        run.status = Run.Status.FINISHED
        run.ended_at = timezone.now()
        run.message = ""
        run.save(update_fields=["student", "status", "ended_at", "message"])
        notify_run_ended(run)
        if publishes:
            notify_published(run)
    learned_from = counted(trained.card["learned_from"]["labels"], "release", "releases")
    logger.info("The student was trained on %s.", learned_from)
    return True


@transaction.atomic
def _finish_without_model(run: Run, why: Sentence) -> bool:
    study_lock(run.study_id)
    run = Run.objects.select_for_update(of=("self",)).select_related("study").get(pk=run.pk)
    if run.status != Run.Status.LEARNING:
        return False
    run.status, run.ended_at, run.message = Run.Status.FINISHED, timezone.now(), why
    run.save(update_fields=["status", "ended_at", "message"])
    notify_run_ended(run)
    logger.info("The run has no model, because it released too few labels.")
    return True


def student_teach(
    run: Run, recipe: StudentRecipe, *, may_release: bool = False, progress: Progress | None = None
) -> TrainedStudent:
    """Train a student on the run's releases and store its file.

    ``may_release``: whether the run's released model may be published instead. If the run does not specify which of
    them to publish, the model is published unless the student is right more often on labelled public points that it has
    not learned from.
    """
    student_data = student_data_of(run)
    if student_data.model is None and not len(student_data.releases):
        raise RunError(
            gettext_noop(
                "No label was released, so a student has nothing to learn from. Propose a run with more noise (a "
                "larger σ makes labels cheaper) or a lower threshold, or approve one with a larger share."
            )
        )
    truth = truth_of(run.public_dataset) if run.public_dataset is not None else None
    publish = student_data.publish if may_release and student_data.model is not None else "student"
    judges = truth if not publish and run.learns.categories else None
    begun, candidates = time.monotonic(), []
    score: float | None = None
    duel: Duel | None = None
    if recipe.learner:
        categories = None if judges is None else run.learns.categories_of(judges)
        tries = publish == "student" or judges is not None
        trial = student_try(run, student_data, recipe, progress, tries=tries, truth=categories)
        score, duel = trial.score, trial.duel
        student = published_form(trial.model, run.learns)
        candidates.append(_candidate(run, recipe.learner, recipe.parameters, student, student_data.balanced_on))
    seconds = time.monotonic() - begun
    if may_release and student_data.model is not None:
        released = _candidate(run, student_data.learner, {}, student_data.model, student_data.balanced_on)
        candidates.append(released)
    is_students = publish == "student" or (duel is not None and duel.student_wins)
    chosen = candidates[0 if is_students else -1]
    labels = truth if run.classes else None
    right = _labels_right(student_data.releases, labels)
    # The name is unique, so that another worker cannot change the file to which the row refers.
    artifact = f"students/{run.pk}-{uuid4().hex[:12]}.model"
    digest = model_store(artifact, chosen.model.to_bytes())
    calibration = _calibration_of(chosen.model)
    shares = shares_document(run, student_data.shares, labels)
    choice = choice_document(publish, duel)
    untested = public_answers(run, chosen.model, chosen.balance) if chosen.evaluation is None else None
    document = card(run, student_data.releases, shares, right, chosen, calibration, candidates, choice, untested)
    onnx = onnx_store(artifact, chosen.model, run, document)
    return TrainedStudent(
        recipe, chosen, round(seconds, 1), artifact, digest, onnx, right, calibration, score, document
    )


def _candidate(
    run: Run, learner: str, parameters: dict[str, Any], model: Model, balanced_on: np.ndarray | None
) -> Candidate:
    balance = None if balanced_on is None else Balance.of(model.predict_proba(balanced_on))
    return Candidate(learner, parameters, model, evaluation(model, run.test_dataset, run.encoder, balance), balance)


def _calibration_of(model: Model) -> Calibration:
    inner = model.model if isinstance(model, CategoriesModel) else model
    return inner.calibration if isinstance(inner, CalibratedModel) else Calibration.none(inner.classes)


def _labels_right(releases: Releases, truth: np.ndarray | None) -> float | None:
    """Return the rounded share of released labels that are right; None if the true labels are unknown."""
    if truth is None:
        return None
    return published_accuracy(int((truth[releases.rows] == releases.labels).sum()), len(releases))


def version_add(
    run: Run,
    trained: TrainedStudent,
    *,
    acting_user_id: int | None,
    requested_by_id: int | None = None,
    publishes: bool = False,
) -> StudentModel:
    """Add the next version with its release, and request its assessment. The caller holds the study's lock.

    ``publishes``: whether the run publishes the version automatically.
    """
    last = run.students.aggregate(last=Max("version"))["last"] or 0
    version = StudentModel.objects.create(
        run=run,
        version=last + 1,
        artifact=trained.artifact,
        learner=trained.chosen.learner,
        seed=trained.recipe.seed,
        digest=trained.digest,
        onnx=trained.onnx[0],
        onnx_digest=trained.onnx[1],
        calibration=trained.calibration.to_json(),
        accuracy=trained.chosen.accuracy,
        label_accuracy=trained.label_accuracy,
        card=trained.card,
        seconds=trained.seconds,
        score=trained.score,
        requested_by_id=requested_by_id,
    )
    if not run.rehearsal:
        release_record(
            study=run.study,
            kind=Release.Kind.MODEL,
            run=run.pk,
            content={
                "digest": version.digest,
                "onnx": version.onnx_digest,
                "learner": version.learner,
                "labels": run.labels,
                "version": version.version,
                "calibration": version.calibration,
                "card": card_digest(version.card),
                "published": publishes,
            },
            acting_user_id=acting_user_id,
        )
    if not version.is_released_itself:
        assessment = StudentTraining.objects.create(
            run=run,
            version=version,
            learner=trained.recipe.learner,
            parameters=trained.recipe.parameters,
            heartbeat=timezone.now(),
        )
        send("student_learn", assessment.pk)
    return version


@transaction.atomic
def student_publish(*, run: Run, version: int, acting_user: AbstractBaseUser, reason: str = "") -> Run:
    """Publish another version of a run's student and log this. Publishing the published version again has no effect.

    Publishing a version that a run would not publish automatically needs a reason, which the card shows.

    Raises ValidationError if the version does not exist or was withdrawn, or if a required reason is missing.
    """
    study = study_lock(run.study_id)
    run = Run.objects.select_for_update(of=("self",)).get(pk=run.pk)
    chosen = run.students.filter(version=version).first()
    if chosen is None:
        raise ValidationError(_("This version of the run's student does not exist."))
    if run.student_id == chosen.pk:
        return run
    if chosen.is_withdrawn:
        raise ValidationError(_("This version was withdrawn. Publish a different one."), code=STATE)
    if publication_doubts(chosen.card.get("evaluation")):
        if not reason.strip():
            raise ValidationError(
                {"reason": _("Enter a reason for publishing this version anyway. The model card will show it.")}
            )
        chosen.publication_reason = reason.strip()
        chosen.save(update_fields=["publication_reason"])
    run.student = chosen
    run.save(update_fields=["student"])
    notify_published(run)
    if not run.rehearsal:
        release_record(
            study=study,
            kind=Release.Kind.CHOICE,
            run=run.pk,
            content={"version": chosen.version, "digest": chosen.digest, "reason": chosen.publication_reason},
            acting_user_id=acting_user.pk,
        )
    with logging_run(run.pk):
        logger.info("Version %d of the student was published by user %s.", chosen.version, acting_user.pk)
    return run


@transaction.atomic
def student_withdraw(*, run: Run, version: int, reason: str, acting_user: AbstractBaseUser | None) -> StudentModel:
    """Withdraw a version of a run's student permanently and log this. It can no longer be downloaded or used.

    People who downloaded the model or asked it for predictions are notified by email. The version's file is kept so
    that the register can be verified. Withdrawing again has no effect. ``acting_user`` is None if the run's hub has
    withdrawn it.

    Raises:
        ValidationError: the version does not exist, or there is no reason.
    """
    study = study_lock(run.study_id)
    chosen = run.students.filter(version=version).first()
    if chosen is None:
        raise ValidationError(_("This version of the run's student does not exist."))
    if chosen.is_withdrawn:
        return chosen
    problem, number = (
        _("Enter a reason. It will be shown to everyone who downloaded the model or asks for it."),
        {"version": chosen.version},
    )
    withdrawal_record(chosen, study=study, reason=reason, unexplained=problem, content=number, acting_user=acting_user)
    model_withdrawn_mail(chosen, model_downloaders(chosen))
    with logging_run(run.pk):
        who = f"user {acting_user.pk}" if acting_user else "the hub"
        logger.info("Version %d of the student was withdrawn by %s.", chosen.version, who)
    return chosen


def _as_learned(run: Run, rows: np.ndarray) -> np.ndarray:
    try:
        return rows_encode(run, rows)
    except EncoderError as error:
        raise DataError(error.problem, error.remedy) from error


def student_predict(student: StudentModel, rows: list) -> dict:
    """Return a student's predictions for raw ``rows``, which follow the dataset's schema. Raises DataError."""
    if not rows:
        raise DataError("There are no rows.", "Add at least one row.")
    schema: Schema = schema_from_json(student.run.schema)
    probabilities = version_load(student).predict_proba(_as_learned(student.run, schema.encode(rows)))
    if schema.target is not None:
        return {
            "columns": list(schema.target.columns),
            "predictions": schema.target.answers(probabilities),
            "values": probabilities.tolist(),
            "outside": schema.outside(rows),
        }
    classes, rule = student.run.classes, rule_of_card(student.card, student.run.classes)
    labels = probabilities.argmax(axis=1) if rule is None else rule.labels(probabilities)
    return {
        "classes": classes,
        "predictions": [classes[number] for number in labels],
        "probabilities": probabilities.tolist(),
        "outside": schema.outside(rows),
    }


@transaction.atomic
def student_ask(
    *,
    run: Run,
    student_learner: str,
    student_parameters: Mapping[str, Any],
    acting_user: AbstractBaseUser | None,
    by_worker: bool = True,
) -> StudentTraining:
    """Request another version of a finished run's student, which a worker trains on the same releases.

    Args:
        run: A finished run with no other version of its student in training.
        student_learner: One of `STUDENTS`.
        student_parameters: The student's parameters; missing ones get their defaults.
        acting_user: The user who requests it; None for an administrator at the command line.
        by_worker: Whether to queue the training for a worker; if not, the caller must call `student_learn`.

    Raises:
        ValidationError: Errors by field if the student cannot be trained.
    """
    study_lock(run.study_id)
    run = Run.objects.select_for_update(of=("self",)).select_related("study", "public_dataset").get(pk=run.pk)
    if run.public_dataset is None:
        raise ValidationError(
            _("The run has no public points for a student to learn from. Its result is the model that it released.")
        )
    if not run.learns.categories:
        raise ValidationError(
            _("That is too many labels for a student to learn. This run publishes its own model instead.")
        )
    if run.are_points_removed:
        raise ValidationError(_("The public points were removed, so no student can learn from them any more."))
    recipe_check(run, student_learner, student_parameters)
    if run.status != Run.Status.FINISHED:
        raise ValidationError(_("You can train a student again only after its run has finished."), code=STATE)
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
    """Raise ValidationError unless a student with these parameters can learn from a run's public points."""
    errors: dict[str, list[str]] = {}
    proposal = Run(
        public_dataset=run.public_dataset, student_learner=student_learner, student_parameters=student_parameters
    )
    student_check(proposal, lambda field, message: errors.setdefault(field, []).append(str(message)))
    if errors:
        raise ValidationError(errors)


def versions_under_way(run: Run) -> Any:
    """Return the unfinished tasks that train another version; there is at most one."""
    return run.trainings.filter(version=None).exclude(state=StudentTraining.State.DONE)


def student_learn(training_id: int | str, progress: Progress | None = None) -> bool:
    """Run a training task unless it is done or a live worker is running it; return whether this call ran it."""
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
            unexpected=gettext_noop(
                "An unexpected error occurred. You can find the details in the worker's logs under this run's id."
            ),
        ),
    ):
        try:
            worked = run_part_do(
                training,
                status=Run.Status.FINISHED,
                work=lambda found: _task_run(found, progress),
                died=gettext_noop("Too many workers crashed during this task. Check their logs for the reason."),
            )
        except WorkYielded:
            logger.info("The training of the student yields to other work.")
            send("student_learn", training_id)
            worked = True
    return worked


def _fail(training: StudentTraining, message: str) -> None:
    logger.warning("The training of the student failed: %s", message)
    StudentTraining.objects.filter(pk=training.pk).update(message=message, state=StudentTraining.State.DONE)


def _task_run(training: StudentTraining, also: Progress | None) -> str:
    """Run a training task and write its result; return an empty file name, because nothing is kept in private storage.

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
    trained = student_teach(training.run, recipe, progress=progress)
    with transaction.atomic():
        study_lock(training.run.study_id)
        if _is_done(training):
            return
        version_add(
            training.run, trained, acting_user_id=training.requested_by_id, requested_by_id=training.requested_by_id
        )
    logger.info("Another version of the student was trained.")


def _is_done(training: StudentTraining) -> bool:
    """Mark a training task as done in the transaction that writes its result; return whether it was already done."""
    rows = StudentTraining.objects.filter(pk=training.pk).exclude(state=StudentTraining.State.DONE)
    return not rows.update(state=StudentTraining.State.DONE)


def _version_assess(training: StudentTraining, progress: Progress) -> None:
    """Compare a version with the same student trained on true public labels."""
    run, version = training.run, training.version
    assert version is not None
    recipe = StudentRecipe(training.learner, training.parameters, version.seed)
    truth, reference = truth_of(run.public_points), None
    if truth is not None:
        numbers = run.learns.categories_of(truth)
        if (numbers >= 0).all():  # the true categories of people censored early are unknown
            true = labelled(np.arange(len(truth)), numbers, classes=len(run.learns.categories))
            student = published_form(student_from(run, recipe, true, progress), run.learns)
            balanced_on = points_of(run.public_points, run.encoder) if version.card.get("balance") else None
            reference = _candidate(run, version.learner, {}, student, balanced_on).evaluation
    with transaction.atomic():
        version.reference = reference
        version.save(update_fields=["reference"])
        _is_done(training)
