"""The end of a lock after a restore: the gap is charged, and runs that were under way at the backup end."""

from functools import partial

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounting.gaps import gap_settle
from consent.models import Study
from training.models import Run
from training.services.ending import run_forget

RESTORED = gettext_noop(
    "The study's database was restored from a backup made in the middle of this run. All of its share counts as used, "
    "because nobody knows what it released since. Propose it anew."
)


@transaction.atomic
def restore_settle(*, study: Study, share: float | None = None) -> float:
    """Settle a restore by :func:`accounting.gaps.gap_settle`, and end the runs whose shares it counts as used.

    Args:
        study: A study whose database is older than the journal.
        share: See there.

    Returns:
        The share of its largest cap that every account has come to; 0 where nothing was charged, and runs go on.
    """
    reached = gap_settle(study=study, share=share)
    if reached:
        under_way = (Run.Status.APPROVED, Run.Status.PREPARING, Run.Status.TRAINING, *Run.SPENDING)
        for run in Run.objects.select_related("study").filter(study=study, status__in=under_way, rehearsal=False):
            Run.objects.filter(pk=run.pk).update(status=Run.Status.FAILED, message=RESTORED, ended_at=timezone.now())
            transaction.on_commit(partial(run_forget, run))
    return reached
