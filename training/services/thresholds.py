"""Thresholds of published models: chosen by costs or by a wanted sensitivity, on record, and part of the ONNX file."""

import logging
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from accounting.models import Release
from accounting.services import release_record
from common.logging import logging_run
from consent.services import study_lock
from learning.calibration import Threshold, least_by_costs, least_by_sensitivity
from learning.outcomes import Classes
from training.accuracy import accuracy_interval, published_accuracy
from training.engine.records import records_load
from training.errors import STATE
from training.methods.space import points_of
from training.models import Run, StudentModel
from training.services.exports import onnx_store, version_load

logger = logging.getLogger(__name__)


def threshold_of(version: StudentModel) -> Threshold | None:
    """The threshold of a version; None where it says the likeliest class."""
    threshold = version.card.get("threshold")
    return Threshold(version.run.classes.index(threshold["class"]), threshold["least"]) if threshold else None


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
    """Set from which probability on the published model of a run says a class, on record.

    By what it costs to miss the class and to say it falsely, or by a wanted sensitivity; that rests on probabilities of
    the public points, and no test point has a part in it. Without a class the model says the likeliest again.

    Raises:
        ValidationError: there is no published model or no such class, or what the choice needs is missing.
    """
    study = study_lock(run.study_id)
    run = Run.objects.select_related("student", "public_dataset", "test_dataset").get(pk=run.pk)
    model = run.student
    if model is None or model.is_withdrawn:
        raise ValidationError(_("The run has no published model: there is none yet, or it was withdrawn."), code=STATE)
    if run.learns.kind != Classes.kind:
        raise ValidationError(_("Only a model that tells classes apart has a threshold."), code=STATE)
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
        logger.info("Version %d of the student has a new threshold, by user %s.", model.version, acting_user.pk)
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
        raise ValidationError({"class_name": _("There is no such class.")})
    number = run.classes.index(class_name)
    loaded = version_load(model)
    if sensitivity is not None:
        if missed is not None or false_alarm is not None:
            raise ValidationError({"sensitivity": _("Give costs or a sensitivity, not both.")})
        if not 0 < sensitivity <= 1:
            raise ValidationError({"sensitivity": _("A sensitivity is above 0 and at most 1.")})
        if run.public_dataset is None or run.public_dataset.removed_at is not None:
            raise ValidationError({"sensitivity": _("There are no public points to find it by: give costs.")})
        public = loaded.predict_proba(points_of(run.public_dataset, run.encoder))
        least = least_by_sensitivity(public[:, number], sensitivity)
        choice: dict[str, Any] = {"sensitivity": sensitivity}
    else:
        if missed is None or false_alarm is None or min(missed, false_alarm) < 0 or missed + false_alarm <= 0:
            raise ValidationError({"missed": _("Give both costs, or a sensitivity; one of the costs is above 0.")})
        least = least_by_costs(missed, false_alarm)
        choice = {"missed": missed, "false_alarm": false_alarm}
    threshold = {"class": class_name, "least": least, "by": choice, "evaluation": None}
    test = run.test_dataset
    if test is not None and test.removed_at is None:
        is_said = Threshold(number, least).labels(loaded.predict_proba(points_of(test, run.encoder))) == number
        true = records_load(test, "y")["y"] == number
        threshold["evaluation"] = {
            **_share("sensitivity", int((is_said & true).sum()), int(true.sum())),
            **_share("specificity", int((~is_said & ~true).sum()), int((~true).sum())),
        }
    return threshold


def _share(name: str, right: int, points: int) -> dict[str, Any]:
    share = published_accuracy(right, points)
    ends = accuracy_interval(share, points)
    return {name: share, f"{name}_interval": None if ends is None else list(ends)}
