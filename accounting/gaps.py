"""The gap that a restored backup leaves: charged to everybody, so that what was forgotten is paid for."""

from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils.translation import gettext_noop

from accounting.caps import caps_of
from accounting.models import Release, ShareRecord
from accounting.restores import missing_rows
from accounting.services import book_write, release_record
from accounting.shares import share_free, shares
from accounting.slacks import slacks_charged
from accounting.verification import balances_rebuilt
from common.append_only import chained_models
from common.journal import journal_read, journal_reset
from consent.models import ConsentEvent, Study
from consent.selectors import GRANTING
from consent.services import study_lock


@transaction.atomic
def gap_settle(*, study: Study, share: float | None = None) -> float:
    """Charge what may have been released between the backup and now, and unlock the study; returns the share charged.

    Args:
        study: A study whose database is older than the journal.
        share: The share of every cap that may have been used since the backup. By default what the journal says was
            committed beyond what the database knows.

    Returns:
        The share; 0 where the study is not locked.
    """
    study = study_lock(study.pk)
    if not missing_rows(study):
        return 0.0
    # The book that the backup names has been replaced since; the charge files that it knows are all there.
    rebuilt = balances_rebuilt(study)
    last = Release.chain(study.pk).exclude(charges="").values_list("sequence", flat=True).last()
    if last is not None:
        book_write(study, rebuilt, last)
    known = sum(given.committed for given in shares(study).values())
    if share is None:
        share = max(0.0, journal_read(study.pk)["facts"].get("share", known) - known)
    share = min(share, share_free(study))
    slack = slacks_charged(study)
    forgotten = max(0.0, journal_read(study.pk)["facts"].get("slack", slack) - slack)
    if share > 0 or forgotten > 0:
        _charge(study, share, forgotten)
    heads = {}
    for model in chained_models():
        head = model.head(study.pk)
        if head.sequence:
            heads[model._meta.label_lower] = (head.sequence, head.hash)
    transaction.on_commit(lambda: journal_reset(study.pk, heads))
    return share


def _charge(study: Study, share: float, slack: float) -> None:
    """Charge ``share`` of the largest cap that each holder ever had, and the ``slack`` of forgotten runs."""
    subject, purpose = uuid4(), gettext_noop("gap after a restore")
    for kind in ShareRecord.Kind.values:
        limit = 1.0 if kind == ShareRecord.Kind.OPENED else None
        ShareRecord.append(
            [ShareRecord(study_id=study.pk, subject=subject, purpose=purpose, kind=kind, share=share, limit=limit)]
        )
    largest: dict[int, float] = {}
    for event in ConsentEvent.objects.filter(study=study, kind__in=GRANTING).select_related("policy"):
        assert event.policy is not None, "who gives consent does so under a policy"
        largest[event.holder_id] = max(event.policy.epsilon(event.level), largest.get(event.holder_id, 0.0))
    holders = np.array(sorted(largest), dtype=np.int64)
    charges = share * caps_of([largest[holder] for holder in holders.tolist()], study.delta)
    release_record(
        study=study,
        kind=Release.Kind.GAP,
        content={"share": share} | ({"slack": slack} if slack else {}),
        holders=holders,
        charges=charges,
        charge=float(charges.max(initial=0.0)),
    )
