"""The end of a run that cannot go on, and what a run must not keep after its end."""

import logging
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from accounting.shares import share_settle
from common.artifacts import arrays_delete, arrays_delete_folder, arrays_list
from consent.services import study_lock
from training.alliances.documents import sums_tidy
from training.alliances.keys import agreement_forget
from training.dispatch import send
from training.engine.attempts import attempt_files, released_tidy, run_folder
from training.engine.spending import runs_send_on, used_share
from training.methods.lessons import checkpoints_folder
from training.models import Run
from training.notices import run_ended_tell
from training.selectors import run_is_claimed
from training.services.erasures import predictions_forget_erased

logger = logging.getLogger(__name__)


def run_fail(run_id: str | UUID, message: str) -> None:
    """End a run that cannot go on; ``message`` is read by staff and holds nothing of the private data."""
    with transaction.atomic():
        run = Run.objects.select_related("study").get(pk=run_id)
        study_lock(run.study_id)
        run.refresh_from_db(fields=["spent", "plan"])
        failed = Run.objects.filter(pk=run_id, status__in=Run.ACTIVE).update(
            status=Run.Status.FAILED, message=message, ended_at=timezone.now()
        )
        if failed:
            share_settle(study=run.study, subject=run.pk, used=used_share(run))
            runs_send_on(run)
            run.refresh_from_db(fields=["status"])
            run_ended_tell(run)
    if failed:
        logger.warning("The run failed: %s", message)
        run_forget(Run.objects.get(pk=run_id))


def run_forget(run: Run) -> None:
    """Delete what a run that has ended must not keep: who was in which teacher or asked, what the teachers predicted.

    What was drawn and not released goes, too. A study that keeps votes keeps what a replay needs, and nothing besides.

    While a worker still holds something of the run it may write once more: then the sweep deletes again.
    """
    released_tidy(run)
    if run.alliance is not None:
        agreement_forget(run.joint)
        sums_tidy(run.joint)
        if not run.alliance.is_hub:  # so that the others do not wait for this site
            send("alliance_contact", run.alliance.pk)
    arrays_delete_folder(checkpoints_folder(run))
    if run.study.retain_votes and run.status == Run.Status.FINISHED:
        files = {run.assignment, *run.chunks.values_list("artifact", flat=True)}
        files |= attempt_files(run)
        arrays_delete(*(name for name in arrays_list(run_folder(run)) if name not in files))
        predictions_forget_erased(run)
        return
    claimed = run_is_claimed(run)
    arrays_delete_folder(run_folder(run))
    if not claimed:
        Run.objects.filter(pk=run.pk).update(forgotten_at=timezone.now())
