"""Publications of a run: the rule for models, stages, thresholds, tables, and withdrawals. Every change is logged.

A run publishes its model automatically if it meets the rule; otherwise a person may publish it with a reason. A run
that has released too few labels has no model. Counts or synthetic rows are always published with a card.
"""

import logging
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from accounting.services import release_record
from common.artifacts import model_store
from common.logging import logging_run
from common.progress import counted
from common.row_hashes import json_digest
from common.sentences import Sentence
from consent.models import Disposal, Study
from consent.services import study_lock
from consent.services.erasures import disposal_record
from learning.calibration import Threshold, least_by_costs, least_by_sensitivity
from learning.formats import Rows
from learning.mechanisms.synthesis.rounds import SyntheticRows
from learning.outcomes import Classes
from training.engine.records import points_of, records_load
from training.errors import STATE
from training.measures import accuracy_interval, published_accuracy
from training.methods import table_of
from training.models import Dataset, Run, RunResult, StudentModel
from training.models.datasets import DRAWN
from training.notices import notify_published, notify_run_ended, result_withdrawn_mail
from training.services.cards import card_digest, result_card
from training.services.datasets import dataset_import, dataset_name
from training.services.downloads import downloaders, onnx_store, version_load

logger = logging.getLogger(__name__)

LEAST_LABELS = 2
"""Minimum number of releases for training a student."""

_NO_LABEL = gettext_noop(
    "This run has no model: no label was released. Propose a run with more noise (a larger σ makes labels cheaper) or "
    "a lower threshold, or approve one with a larger share."
)
_ONE_LABEL = gettext_noop(
    "This run has no model: 1 label was released, but a student needs at least 2. Propose a run with more noise (a "
    "larger σ makes labels cheaper) or a lower threshold, or approve one with a larger share."
)


def too_few_labels(labels: int) -> Sentence | None:
    """Return the reason why no student can learn from so few labels; None if there are enough."""
    return None if labels >= LEAST_LABELS else Sentence(_ONE_LABEL if labels else _NO_LABEL)


def publication_doubts(evaluation: dict[str, Any] | None) -> list[Sentence]:
    """Return reasons not to publish a model automatically; empty if it is good enough.

    A classifier passes if it was evaluated on at least `LEAST_TEST_POINTS` points, the 95 % interval of the area under
    its ROC curve is above 0.5 (the area of a model that always predicts the same class), and its accuracy is above that
    of always predicting the most frequent class. If its answers are balanced, the balanced accuracy must be above that
    of always giving the same answer. A model of a rare outcome may hardly ever predict it but still show who is at
    risk, so a person must decide whether to publish it. Other models pass if the interval of their first measure is
    above the value of a constant model: 0 for R², 0.5 for concordance and for the mean area.
    """
    least = settings.LEAST_TEST_POINTS
    if least is None:
        return []
    points = evaluation["points"] if evaluation else 0
    if evaluation is None or points < least:
        text = gettext_noop("The model was measured on %(points)d points, but at least %(least)d are needed.")
        return [Sentence(text, points=points, least=least)]
    if "measures" in evaluation:
        return _target_doubts(evaluation["measures"][0])
    if not evaluation["area_interval"] or evaluation["area_interval"][0] <= 0.5:
        return [
            Sentence(
                gettext_noop(
                    "On the test data, the model distinguishes classes no better than always predicting the most "
                    "frequent class: the confidence interval for the area under its ROC curve is not entirely above "
                    "0.5."
                )
            )
        ]
    if "likeliest" in evaluation:
        return _balanced_doubts(evaluation)
    gain = evaluation["majority"]["gain_interval"]
    if not gain or gain[0] <= 0:
        return [
            Sentence(
                gettext_noop(
                    "On the test data, the model may be no better than always predicting the most frequent class: "
                    "the confidence interval of the difference is not entirely above 0."
                )
            )
        ]
    return []


def _balanced_doubts(evaluation: dict[str, Any]) -> list[Sentence]:
    chance = 1 / sum(each["points"] > 0 for each in evaluation["classes"])
    if evaluation["balanced_accuracy_interval"][0] > chance:
        return []
    text = gettext_noop(
        "On the test data, the model may be no better than always giving the same answer: the confidence interval of "
        "its balanced accuracy is not entirely above %(chance)d %%."
    )
    return [Sentence(text, chance=round(100 * chance))]


def _target_doubts(measure: dict[str, Any]) -> list[Sentence]:
    if measure["interval"] and measure["interval"][0] > measure["nothing"]:
        return []
    text = gettext_noop(
        "On the test data, the model is no better than a guess that ignores the record: the confidence interval for "
        "its %(measure)s is not entirely above %(nothing)s."
    )
    return [Sentence(text, measure=measure["label"], nothing=f"{measure['nothing']:g}")]


# --- Stages -----------------------------------------------------------------------------------------------------------


_Stage = StudentModel.Stage
NEXT: dict[str, tuple[str, ...]] = {
    _Stage.CANDIDATE: (_Stage.PRODUCTION, _Stage.ARCHIVED),
    _Stage.PRODUCTION: (_Stage.CANDIDATE, _Stage.ARCHIVED),
    _Stage.ARCHIVED: (_Stage.CANDIDATE,),
}
"""Stages that may follow each stage. An archived model must become a candidate before it can be used again."""


def registered_models(models: QuerySet[StudentModel]) -> QuerySet[StudentModel]:
    """Return the given models that are published and not withdrawn, newest first."""
    return models.filter(pk=F("run__student"), withdrawn_at=None).order_by("-created_at", "pk")


@transaction.atomic
def model_stage_set(*, run: Run, stage: str, acting_user: AbstractBaseUser) -> StudentModel:
    """Set the stage of a run's published model and log this. Setting the current stage has no effect.

    Raises:
        ValidationError: there is no published model, it was withdrawn, or the stage may not follow the current one.
    """
    study = study_lock(run.study_id)
    run = Run.objects.select_related("student").get(pk=run.pk)
    model = run.student
    if model is None or model.is_withdrawn:
        raise ValidationError(_("The run has no published model yet, or its model was withdrawn."), code=STATE)
    if model.stage == stage:
        return model
    if stage not in NEXT[model.stage]:
        words = {
            "stage": model.get_stage_display(),
            "next": ", ".join(str(_Stage(each).label) for each in NEXT[model.stage]),
        }
        raise ValidationError(
            _("This model is at the stage “%(stage)s”. Possible next stages: %(next)s.") % words, code=STATE
        )
    before, model.stage = model.stage, stage
    model.save(update_fields=["stage"])
    if not run.rehearsal:
        content: dict[str, Any] = {"version": model.version, "digest": model.digest, "before": before, "stage": stage}
        release_record(study=study, kind=Release.Kind.STAGE, run=run.pk, content=content, acting_user_id=acting_user.pk)
    with logging_run(run.pk):
        logger.info("Version %d of the student was set to %s by user %s.", model.version, stage, acting_user.pk)
    return model


# --- Thresholds -------------------------------------------------------------------------------------------------------


@transaction.atomic
def model_threshold_set(
    *,
    run: Run,
    acting_user: AbstractBaseUser,
    class_name: str = "",
    missed: float | None = None,
    false_alarm: float | None = None,
    sensitivity: float | None = None,
) -> StudentModel:
    """Set the minimum probability at which a run's published model predicts a class, and log this.

    The threshold is computed from the costs of missing the class and of predicting it wrongly, or from a desired
    sensitivity. A sensitivity is estimated on public points, never on test points. Without ``class_name``, the model
    chooses a class as before.

    Raises:
        ValidationError: there is no published model or no such class, or a value is missing.
    """
    study = study_lock(run.study_id)
    run = Run.objects.select_related("student", "public_dataset", "test_dataset").get(pk=run.pk)
    model = run.student
    if model is None or model.is_withdrawn:
        raise ValidationError(_("The run has no published model yet, or its model was withdrawn."), code=STATE)
    if run.learns.kind != Classes.kind:
        raise ValidationError(_("Only a model that predicts classes can have a threshold."), code=STATE)
    model.run = run
    choice = _chosen(run, model, class_name, missed, false_alarm, sensitivity) if class_name else None
    if model.card.get("threshold") == choice:
        return model
    model.card = model.card | {"threshold": choice}
    name = f"{model.artifact}-{uuid4().hex[:12]}"
    model.onnx, model.onnx_digest = onnx_store(name, version_load(model), run, model.card)
    model.save(update_fields=["card", "onnx", "onnx_digest"])
    if not run.rehearsal:
        content = {"version": model.version, "digest": model.digest, "onnx": model.onnx_digest, "threshold": choice}
        kind = Release.Kind.THRESHOLD
        release_record(study=study, kind=kind, run=run.pk, content=content, acting_user_id=acting_user.pk)
    with logging_run(run.pk):
        logger.info("Version %d of the student got a new threshold from user %s.", model.version, acting_user.pk)
    return model


def _chosen(
    run: Run,
    model: StudentModel,
    class_name: str,
    missed: float | None,
    false_alarm: float | None,
    sensitivity: float | None,
) -> dict[str, Any]:
    if class_name not in run.classes:
        raise ValidationError({"class_name": _("This class does not exist.")})
    number = run.classes.index(class_name)
    loaded = version_load(model)
    if sensitivity is not None:
        if missed is not None or false_alarm is not None:
            raise ValidationError({"sensitivity": _("Enter costs or a sensitivity, not both.")})
        if not 0 < sensitivity <= 1:
            raise ValidationError({"sensitivity": _("A sensitivity must be above 0 and at most 1.")})
        if run.public_dataset is None or run.public_dataset.removed_at is not None:
            raise ValidationError(
                {"sensitivity": _("There are no public points for finding the threshold. Enter costs instead.")}
            )
        public = loaded.predict_proba(points_of(run.public_dataset, run.encoder))
        least = least_by_sensitivity(public[:, number], sensitivity)
        choice: dict[str, Any] = {"sensitivity": sensitivity}
    else:
        if missed is None or false_alarm is None or min(missed, false_alarm) < 0 or missed + false_alarm <= 0:
            raise ValidationError(
                {"missed": _("Enter both costs or a sensitivity. At least one of the costs must be above 0.")}
            )
        least = least_by_costs(missed, false_alarm)
        choice = {"missed": missed, "false_alarm": false_alarm}
    threshold = {"class": class_name, "least": least, "by": choice, "evaluation": None}
    test = run.test_dataset
    if test is not None and test.removed_at is None:
        is_predicted = Threshold(number, least).labels(loaded.predict_proba(points_of(test, run.encoder))) == number
        true = records_load(test, "y")["y"] == number
        threshold["evaluation"] = {
            **_share("sensitivity", int((is_predicted & true).sum()), int(true.sum())),
            **_share("specificity", int((~is_predicted & ~true).sum()), int((~true).sum())),
        }
    return threshold


def _share(name: str, right: int, points: int) -> dict[str, Any]:
    share = published_accuracy(right, points)
    ends = accuracy_interval(share, points)
    return {name: share, f"{name}_points": points, f"{name}_interval": None if ends is None else list(ends)}


# --- Withdrawal -------------------------------------------------------------------------------------------------------


def withdrawal_record(
    target: StudentModel | RunResult,
    *,
    study: Study,
    reason: str,
    unexplained: str,
    content: dict[str, Any],
    acting_user: AbstractBaseUser | None,
) -> None:
    """Permanently mark a run's result as withdrawn; if the run asked people, record this in the register as well.

    Args:
        study: the run's study, locked.
        reason: the reason, shown to people who downloaded or request the result.
        unexplained: the error message if there is no reason.
        content: content of the register entry besides digest and reason.
        acting_user: the user who withdraws it; None if the run's hub has done so.

    Raises:
        ValidationError: there is no reason.
    """
    if not reason.strip():
        raise ValidationError({"reason": unexplained})
    target.withdrawn_at, target.withdrawal_reason = timezone.now(), reason.strip()
    target.save(update_fields=["withdrawn_at", "withdrawal_reason"])
    # If a restored backup lacks the withdrawal, it is repeated on the basis of this record.
    disposal_record(
        study=study,
        kind=Disposal.Kind.RESULT,
        acting_user=acting_user,
        subject=target.digest,
        reason=target.withdrawal_reason,
    )
    if not target.run.rehearsal:
        release_record(
            study=study,
            kind=Release.Kind.WITHDRAWAL,
            run=target.run_id,
            content={**content, "digest": target.digest, "reason": target.withdrawal_reason},
            acting_user_id=acting_user.pk if acting_user else None,
        )


# --- Results of runs without a model ----------------------------------------------------------------------------------


def result_publish(run: Run) -> bool:
    """Publish the table of a run that has asked all its questions, with a card, and finish the run.

    Synthetic rows become a public dataset of the study, which later runs may use.
    """
    table = table_of(run)
    # The name is unique, so that another worker cannot change the file to which the row refers.
    artifact = f"tables/{run.pk}-{uuid4().hex[:12]}.csv"
    digest = model_store(artifact, table.to_csv().encode())
    with transaction.atomic():
        study_lock(run.study_id)
        run = Run.objects.select_for_update(of=("self",)).select_related("study").get(pk=run.pk)
        if run.status != Run.Status.LEARNING:
            return False
        drawn = table if isinstance(table, SyntheticRows) else None
        result = RunResult.objects.create(
            run=run,
            content=table.to_json(),
            artifact=artifact,
            digest=digest,
            card=result_card(run),
            dataset=_rows_import(run, drawn) if drawn else None,
        )
        if not run.rehearsal:
            release_record(
                study=run.study,
                kind=Release.Kind.RESULT,
                run=run.pk,
                content={
                    "digest": result.digest,
                    "content": json_digest(result.content),
                    "card": card_digest(result.card),
                    "rows" if drawn else "cells": len(table),
                },
                acting_user_id=run.approved_by_id,
            )
        run.status, run.ended_at, run.message = Run.Status.FINISHED, timezone.now(), ""
        run.save(update_fields=["status", "ended_at", "message"])
        notify_run_ended(run)
        notify_published(run)
    parts = counted(len(table), "row", "rows") if drawn else counted(len(table), "cell", "cells")
    logger.info("A table of %s was published.", parts)
    return True


def _rows_import(run: Run, rows: SyntheticRows) -> Dataset:
    """Import a run's synthetic rows as a public dataset without classes, because those are not ground truth."""
    return dataset_import(
        study=run.study,
        name=dataset_name(run.study, run.title),
        kind=Dataset.Kind.PUBLIC,
        rows=Rows(rows.x, None),
        schema=rows.schema,
        provenance=DRAWN,
        artifact=f"datasets/drawn-{run.pk}.npz",
    )


@transaction.atomic
def result_withdraw(*, run: Run, reason: str, acting_user: AbstractBaseUser | None) -> RunResult:
    """Withdraw the table of a run permanently and log this; it can no longer be downloaded.

    Releases and charges remain. People who downloaded the table are notified by email; withdrawing again has no effect.
    ``acting_user`` is None if the run's hub has withdrawn it.

    Raises:
        ValidationError: there is no table or no reason.
    """
    study = study_lock(run.study_id)
    result = RunResult.objects.select_related("run__study").filter(run=run).first()
    if result is None:
        raise ValidationError(_("The run has no table."))
    if result.is_withdrawn:
        return result
    message = _("Enter a reason. It will be shown to everyone who downloaded the table or asks for it.")
    withdrawal_record(result, study=study, reason=reason, unexplained=message, content={}, acting_user=acting_user)
    result_withdrawn_mail(result, downloaders(run, [result.digest]))
    with logging_run(run.pk):
        logger.info("The table was withdrawn by %s.", f"user {acting_user.pk}" if acting_user else "the hub")
    return result
