"""The gap after a restore: a public floor for every account that covers charges missing from the backup."""

from uuid import uuid4

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from accounting.accounts import charged_slack
from accounting.caps import caps_of
from accounting.models import Release, ShareRecord
from accounting.restores import missing_rows
from accounting.services import book_write, gap_record
from accounting.shares import GAP, committed_share, opened_share, share_free, share_settle, shares
from accounting.verification import balances_rebuilt
from common.append_only import chained_models
from common.journal import journal_read, note
from consent.models import Study
from consent.selectors import epsilon_promised_largest
from consent.services import study_lock


@transaction.atomic
def gap_settle(*, study: Study, acting_user: AbstractBaseUser | None, share: float | None = None) -> float:
    """Charge every account for releases that may have been made since the backup.

    Every share reserved at the time of the backup, and every share granted later, may have been spent completely in the
    meantime. The largest share of its cap that any account can have reached in this way becomes the floor of every
    account (:func:`accounting.accounts.account_balances`). The floor does not depend on who takes part. If only
    consents were lost, nothing is charged.

    Args:
        study: A study whose database is older than the journal.
        acting_user: The user who settles the gap; recorded with it.
        share: The share of every cap that may have been granted since the backup. Defaults to the committed share in
            the journal minus the committed share in the database.

    Returns:
        The share of its cap that every account has reached; 0 if nothing was charged.
    """
    study = study_lock(study.pk)
    lost = missing_rows(study)
    if not lost:
        return 0.0
    # The account book named in the backup has been replaced, but all charge files listed in the backup still exist.
    rebuilt = balances_rebuilt(study)
    last = Release.chain(study.pk).exclude(charges="").values_list("sequence", flat=True).last()
    if last is not None:
        book_write(study, rebuilt, last)
    reached = 0.0
    facts, slack = journal_read(study.pk)["facts"], charged_slack(study)
    forgotten = max(0.0, facts.get("slack", slack) - slack)
    if share or forgotten or {Release._meta.label_lower, ShareRecord._meta.label_lower} & set(lost):
        share = _share_of_gap(study, share)
        reached = min(1.0, opened_share(study) + share)
        _share_enter(study, share, reached)
        # Based only on policies, because holders' promises are private.
        epsilon = epsilon_promised_largest(study)
        gap_record(
            study=study,
            content={"share": share, "reached": reached, "epsilon": epsilon}
            | ({"slack": forgotten} if forgotten else {}),
            before=rebuilt,
            charge=reached * float(caps_of(epsilon, study.delta)) if epsilon else 0.0,
            acting_user=acting_user,
        )
    return reached


def journal_settle(study: Study) -> None:
    """Unlock a study by recording its current chains as complete in the journal. The caller holds the study's lock.

    Call this only after everything has been recorded again. Otherwise, after another restore, the journal would not
    show that earlier additions are missing.
    """
    heads = {}
    for model in chained_models():
        head = model.head(study.pk)
        if head.sequence:
            heads[model._meta.label_lower] = (head.sequence, head.hash)
    note(study.pk, heads=heads, facts={"share": committed_share(study)}, replace=True)


def _share_of_gap(study: Study, share: float | None) -> float:
    """Settle all shares reserved before the backup as spent; return the additional share that may have been spent."""
    if share is None:
        known = committed_share(study)
        share = max(0.0, journal_read(study.pk)["facts"].get("share", known) - known)
    for subject, held in shares(study).items():
        if held.used is None:
            share_settle(study=study, subject=subject, used=held.granted)
            share += held.granted if held.limit is None else 0.0  # possibly opened after the backup
    return min(share, share_free(study))


def _share_enter(study: Study, share: float, reached: float) -> None:
    """Record the gap's share as granted, opened and used."""
    subject = uuid4()
    for kind in ShareRecord.Kind.values:
        limit = reached if kind == ShareRecord.Kind.OPENED else None
        ShareRecord.append(
            [ShareRecord(study_id=study.pk, subject=subject, purpose=GAP, kind=kind, share=share, limit=limit)]
        )
