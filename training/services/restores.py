"""Unlocking after a restore: decisions are recorded again, the gap is charged, and runs in progress are ended."""

import logging
from dataclasses import dataclass
from datetime import date
from functools import partial

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.gaps import gap_settle, journal_settle
from accounting.restores import is_distrusted, missing_rows
from common.append_only import pending_settle
from common.progress import counted
from consent.models import Disposal, Study, study_lock
from consent.services.replays import Lost, acts_apply, acts_lost
from training.models import Dataset, Encoder, Run, RunResult, StudentModel
from training.services.approvals import approval_fail
from training.services.encoders import encoder_runs, encoder_withdraw
from training.services.erasures import dataset_remove, dataset_runs, study_close
from training.services.publication import result_withdraw
from training.services.runs import run_cancel, run_forget
from training.services.students import student_withdraw

logger = logging.getLogger(__name__)

_APPROVE_AGAIN = gettext_noop(
    "The study's database was restored from a backup before this run was planned. Review the plan and approve it again."
)
RESTORED = gettext_noop(
    "The study's database was restored from a backup made in the middle of this run. Its whole share counts as used, "
    "because we cannot know what the run released after the backup. Propose the run again."
)


@dataclass(frozen=True)
class Settlement:
    """Result of settling a restore.

    Attributes:
        reached: the share of its cap that is now charged to every account; 0 if nothing was charged and runs continue.
        applied: number of decisions, circumstances, erasures and closings that were recorded again.
    """

    reached: float
    applied: int


@transaction.atomic
def restore_settle(
    *, study: Study, acting_user: AbstractBaseUser, share: float | None = None, given_up: int = 0, entered: bool = False
) -> Settlement:
    """Settle a restore and unlock the study.

    People's decisions since the backup are recorded again from the journal, and :func:`accounting.gaps.gap_settle`
    charges the gap. Runs whose shares this uses up are ended, and removals and withdrawals are repeated.

    Args:
        study: A study whose database is older than the journal.
        share: See :func:`accounting.gaps.gap_settle`.
        given_up: Number of journalled decisions to give up, because the person, form or policy that they name was lost
            too.
        entered: Whether staff have entered the decisions that the journal lacks.

    Raises:
        ValidationError: the journal contains acts that are missing from the database and cannot be recorded again.
    """
    study = study_lock(study.pk)
    pending_settle(study.pk)
    is_locked = bool(missing_rows(study))
    lost = acts_lost(study)
    _acts_check(study, lost, given_up, entered)
    disposals = acts_apply(study, lost)
    reached = gap_settle(study=study, acting_user=acting_user, share=share)
    if reached:
        under_way = (Run.Status.APPROVED, Run.Status.PREPARING, Run.Status.ASKING)
        for run in Run.objects.select_related("study").filter(study=study, status__in=under_way, rehearsal=False):
            Run.objects.filter(pk=run.pk).update(status=Run.Status.FAILED, message=RESTORED, ended_at=timezone.now())
            transaction.on_commit(partial(run_forget, run))
        for pk in Run.objects.filter(study=study, status=Run.Status.PLANNING).values_list("pk", flat=True):
            approval_fail(pk, _APPROVE_AGAIN)
    for disposal in disposals:
        _dispose(study, disposal, acting_user)
    if is_locked:
        journal_settle(study)
    applied = sum(len(rows) for rows in lost.rows.values())
    logger.warning(
        "User %s settled the restore of study %s: accounts are charged at least %g of their caps; restored: %s.",
        acting_user.pk,
        study.pk,
        reached,
        counted(applied, "row", "rows"),
    )
    return Settlement(reached, applied)


def _acts_check(study: Study, lost: Lost, given_up: int, entered: bool) -> None:
    """Raise ValidationError unless staff have entered or given up all of people's acts that would be lost."""
    if (not lost.is_complete or is_distrusted(study)) and not entered:
        why = _("The journal does not contain everything that people decided since the backup.")
        if is_distrusted(study):
            why = _(
                "The journal does not continue where this backup ends. Perhaps the journal was lost or is too old. "
                "Or an earlier restore went back to a time before this backup, so the backup contains what that "
                "restore discarded. In that case, restore a backup made after that restore, if you can."
            )
        what = _(
            "Use emails and letters to enter what people decided since the backup: withdrawals, consents, deaths, "
            "and who answers for whom. Request erasures again, and remove the datasets that were removed. Then run "
            "this command again with --decisions-entered."
        )
        raise ValidationError(f"{why} {what}")
    unknown = len(lost.unrecordable)
    if unknown != given_up:
        raise ValidationError(
            _(
                "%(count)d decisions since the backup cannot be recorded again, because the person, the form or the "
                "policy they name was lost too. List them with --list FILE and invite these people again. To "
                "continue without these decisions, run this command again with --give-up %(count)d."
            )
            % {"count": unknown}
        )


def _dispose(study: Study, disposal: Disposal, acting_user: AbstractBaseUser) -> None:
    """Repeat an earlier act: remove a dataset, withdraw an encoder, a model or a table, or close the study.

    Runs that the restore has reopened but that had ended before the act are cancelled first.
    """
    if disposal.kind == Disposal.Kind.CLOSED:
        _runs_cancel(Run.objects.filter(study=study), acting_user)
        last = date.fromisoformat(disposal.subject) if disposal.subject else None
        study_close(study=study, reason=disposal.reason, acting_user=acting_user, erase_after=last)
        return
    if disposal.kind == Disposal.Kind.ENCODER:
        for encoder in Encoder.objects.filter(study=study, name=disposal.subject, stated_at__lt=disposal.recorded_at):
            _runs_cancel(encoder_runs(encoder), acting_user)
            encoder_withdraw(encoder=encoder, reason=disposal.reason, acting_user=acting_user)
        return
    if disposal.kind == Disposal.Kind.RESULT:
        given = {"run__study": study, "digest": disposal.subject, "withdrawn_at": None}
        for model in StudentModel.objects.filter(**given).select_related("run"):
            student_withdraw(run=model.run, version=model.version, reason=disposal.reason, acting_user=acting_user)
        for table in RunResult.objects.filter(**given).select_related("run"):
            result_withdraw(run=table.run, reason=disposal.reason, acting_user=acting_user)
        return
    for dataset in Dataset.objects.filter(study=study, name=disposal.subject, removed_at=None):
        if dataset.imported_at < disposal.recorded_at:
            _runs_cancel(dataset_runs(dataset), acting_user)
            dataset_remove(dataset=dataset, reason=disposal.reason, acting_user=acting_user)


def _runs_cancel(runs: QuerySet[Run], acting_user: AbstractBaseUser) -> None:
    for run in runs.exclude(status__in=Run.ENDED):
        run_cancel(run=run, acting_user=acting_user)
