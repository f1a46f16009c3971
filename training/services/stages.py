"""Stages of published models: what they are meant for, on record."""

import logging
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils.translation import gettext as _

from accounting.models import Release
from accounting.services import release_record
from common.logging import logging_run
from consent.services import study_lock
from training.errors import STATE
from training.models import Run, StudentModel

logger = logging.getLogger(__name__)

_Stage = StudentModel.Stage
NEXT: dict[str, tuple[str, ...]] = {
    _Stage.CANDIDATE: (_Stage.PRODUCTION, _Stage.ARCHIVED),
    _Stage.PRODUCTION: (_Stage.CANDIDATE, _Stage.ARCHIVED),
    _Stage.ARCHIVED: (_Stage.CANDIDATE,),
}
"""The stages that may follow each: what was archived is looked at as a candidate before it is used again."""


def registered_models(models: QuerySet[StudentModel]) -> QuerySet[StudentModel]:
    """The published ones among some models, newest first; none that was withdrawn."""
    return models.filter(pk=F("run__student"), withdrawn_at=None).order_by("-created_at", "pk")


@transaction.atomic
def model_stage_set(*, run: Run, stage: str, acting_user: AbstractBaseUser) -> StudentModel:
    """Put the published model of a run into a stage, on record; the one that it is in changes nothing.

    Raises:
        ValidationError: there is no published model, it was withdrawn, or the stage may not follow.
    """
    study = study_lock(run.study_id)
    run = Run.objects.select_related("student").get(pk=run.pk)
    model = run.student
    if model is None or model.is_withdrawn:
        raise ValidationError(_("The run has no published model: there is none yet, or it was withdrawn."), code=STATE)
    if model.stage == stage:
        return model
    if stage not in NEXT[model.stage]:
        words = {
            "stage": model.get_stage_display(),
            "next": ", ".join(str(_Stage(each).label) for each in NEXT[model.stage]),
        }
        raise ValidationError(_("This model is %(stage)s. It can become: %(next)s.") % words, code=STATE)
    before, model.stage = model.stage, stage
    model.save(update_fields=["stage"])
    if not run.rehearsal:
        content: dict[str, Any] = {"version": model.version, "digest": model.digest, "before": before, "stage": stage}
        release_record(study=study, kind=Release.Kind.STAGE, run=run.pk, content=content, acting_user_id=acting_user.pk)
    with logging_run(run.pk):
        logger.info("Version %d of the student is %s now, by user %s.", model.version, stage, acting_user.pk)
    return model
