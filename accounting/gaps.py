"""The gap that a restored backup leaves: charged to everybody, so that what was forgotten is paid for."""

from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils.translation import gettext_noop

from accounting.book import Balances
from accounting.caps import caps_of
from accounting.models import Release, ShareRecord
from accounting.restores import missing_rows
from accounting.services import book_write, release_record
from accounting.shares import share_free, share_opened, share_settle, shares, shares_committed
from accounting.verification import balances_rebuilt
from common.append_only import chained_models
from common.journal import facts_note, journal_read, journal_reset
from consent.models import Level, Study
from consent.selectors import epsilons_largest, policies_in_force
from consent.services import study_lock


@transaction.atomic
def gap_settle(*, study: Study, share: float | None = None) -> float:
    """Charge what may have been released between the backup and now, and unlock the study.

    Whatever held a share at the backup may have spent all of it since, and so may what was granted one since. Every
    account is charged up to the share of its cap that anybody can have come to by that: what a holder had not used of
    earlier shares was theirs to use later. Where only consents were lost nothing is charged.

    Args:
        study: A study whose database is older than the journal.
        share: The share of every cap that may have been granted since the backup. By default what the journal says was
            committed beyond what the database knows.

    Returns:
        The share of its largest cap that every account has come to; 0 where nothing was charged.
    """
    study = study_lock(study.pk)
    lost = missing_rows(study)
    if not lost:
        return 0.0
    # The book that the backup names has been replaced since; the charge files that it knows are all there.
    rebuilt = balances_rebuilt(study)
    last = Release.chain(study.pk).exclude(charges="").values_list("sequence", flat=True).last()
    if last is not None:
        book_write(study, rebuilt, last)
    reached = 0.0
    if share or {Release._meta.label_lower, ShareRecord._meta.label_lower} & set(lost):
        reached = _charge(study, rebuilt, _share_of_gap(study, share))
    heads = {}
    for model in chained_models():
        head = model.head(study.pk)
        if head.sequence:
            heads[model._meta.label_lower] = (head.sequence, head.hash)
    committed = shares_committed(study)
    transaction.on_commit(lambda: journal_reset(study.pk, heads))
    transaction.on_commit(lambda: facts_note(study.pk, share=committed))
    return reached


def _share_of_gap(study: Study, share: float | None) -> float:
    """Settle every share that was held at the backup as spent; returns what else may have been spent since."""
    if share is None:
        known = shares_committed(study)
        share = max(0.0, journal_read(study.pk)["facts"].get("share", known) - known)
    for subject, held in shares(study).items():
        if held.used is None:
            share_settle(study=study, subject=subject, used=held.granted)
            share += held.granted if held.limit is None else 0.0  # opened since, if at all
    return min(share, share_free(study))


def _charge(study: Study, before: Balances, share: float) -> float:
    """Give ``share`` to the gap and charge every account up to all that was opened; returns that share of its cap."""
    subject, purpose = uuid4(), gettext_noop("gap after a restore")
    reached = min(1.0, share_opened(study) + share)
    for kind in ShareRecord.Kind.values:
        limit = reached if kind == ShareRecord.Kind.OPENED else None
        ShareRecord.append(
            [ShareRecord(study_id=study.pk, subject=subject, purpose=purpose, kind=kind, share=share, limit=limit)]
        )
    largest = epsilons_largest(study)
    holders = np.array(sorted(largest), dtype=np.int64)
    limits = reached * caps_of([largest[holder] for holder in holders.tolist()], study.delta)
    promised = [policy.epsilon(level) for policy in policies_in_force(study) for level in Level.values]
    release_record(
        study=study,
        kind=Release.Kind.GAP,
        content={"share": share, "reached": reached},
        holders=holders,
        charges=np.maximum(limits - before.of(holders), 0.0),
        # From policies alone: who has which promise is nobody's to know.
        charge=reached * float(caps_of(max(promised), study.delta)) if promised else 0.0,
    )
    return reached
