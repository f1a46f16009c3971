"""Results of runs without a model: counts or synthetic rows are published with a card, and can be withdrawn."""

import logging
from uuid import uuid4

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from accounting.models import Release
from accounting.services import release_record
from common.artifacts import model_store
from common.logging import logging_run
from common.progress import counted
from common.row_hashes import json_digest
from consent.services import study_lock
from learning.formats import Rows
from learning.mechanisms.synthesis.rounds import SyntheticRows
from training.methods import table_of
from training.models import Dataset, Run, RunResult
from training.models.datasets import DRAWN
from training.notices import published_tell, result_withdrawn_mail, run_ended_tell
from training.services.cards import card_digest, result_card
from training.services.datasets import dataset_import, dataset_name
from training.services.downloads import takers
from training.services.publication import withdrawal_record

logger = logging.getLogger(__name__)


def result_publish(run: Run) -> bool:
    """Publish the table of a run that has asked everything, with its card, and finish the run.

    Synthetic rows become a public dataset of the study, which further runs may ask about.
    """
    table = table_of(run)
    # A unique name, so that a second worker cannot touch the file that the row names.
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
        run_ended_tell(run)
        published_tell(run)
    parts = counted(len(table), "row", "rows") if drawn else counted(len(table), "cell", "cells")
    logger.info("A table of %s was published.", parts)
    return True


def _rows_import(run: Run, rows: SyntheticRows) -> Dataset:
    """Return the public dataset of a run's synthetic rows. Their classes are not ground truth, and are left out."""
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
    """Withdraw the table of a run permanently, and log it: it can no longer be downloaded.

    Releases stay released and charged. People who took the table are notified by mail; withdrawing again changes
    nothing. ``acting_user`` is None if the run's hub has withdrawn it.

    Raises:
        ValidationError: there is no table, or no reason.
    """
    study = study_lock(run.study_id)
    result = RunResult.objects.select_related("run__study").filter(run=run).first()
    if result is None:
        raise ValidationError(_("The run has no table."))
    if result.is_withdrawn:
        return result
    message = _("Enter a reason. Everyone who downloaded the table or asks for it sees this.")
    withdrawal_record(result, study=study, reason=reason, unexplained=message, content={}, acting_user=acting_user)
    result_withdrawn_mail(result, takers(run, [result.digest]))
    with logging_run(run.pk):
        logger.info("The table was withdrawn by %s.", f"user {acting_user.pk}" if acting_user else "the hub")
    return result
