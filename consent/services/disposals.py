"""Erasure of stored records and the end of a study, with a log of requests and actions.

Other apps erase the records that they store (``training.services.erasures``); this app erases scans of letters and
pseudonyms. Decisions, forms and accounts stay, because they prove what was agreed and spent but do not name anyone.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import CharField, Value
from django.db.models.functions import Cast, Concat
from django.utils import timezone
from numpy.typing import NDArray

from consent.models import ConsentEvent, DataHolder, Disposal, Invitation, Mail, Study
from consent.people import pseudonyms
from consent.services.changes import changes_recorded
from consent.services.decisions import answer_drafts_forget, check_answers_forget
from consent.services.erasures import disposal_record, holders_granting, holders_waiting
from consent.services.mail import addresses_sweep
from consent.services.paper import scan_delete


def unstorable_holders(study: Study, holders: NDArray[np.int64]) -> set[int]:
    """Return holders whose records must not be stored: they were or will be erased, with no consent since."""
    gone = _among(holders, _erased(study) | holders_waiting(study))
    return gone - holders_granting(study, gone)


def _erased(study: Study) -> set[int]:
    return set(DataHolder.objects.filter(study=study, erased_at__isnull=False).values_list("pk", flat=True))


def _among(holders: NDArray[np.int64], ids: Collection[int]) -> set[int]:
    some = np.fromiter(ids, np.int64, len(ids))
    return set(some[np.isin(some, holders)].tolist())


def holders_erased_once(study_id: int) -> set[int]:
    """Return the ids of all holders whose records were ever erased. Results derived from them cannot be recomputed."""
    rows = Disposal.objects.filter(study=study_id, kind=Disposal.Kind.ERASED)
    return set(rows.values_list("holder_id", flat=True))


def holders_erase(study: Study, rows: Mapping[int, int]) -> None:
    """Erase holders' scans and pseudonyms and record that all their data are erased. The caller holds the study's lock.

    Args:
        rows: holder id → number of erased rows in private datasets.
    """
    pseudonyms.key_make(study)
    check_answers_forget(list(rows))
    answer_drafts_forget(list(rows))
    now = timezone.now()
    holders = list(DataHolder.objects.filter(pk__in=list(rows)))
    done = []
    names = pseudonyms.commitment(study, [holder.pseudonym for holder in holders])
    for holder, name in zip(holders, names, strict=True):
        files = scans_erase(study, {holder.pk})
        if holder.erased_at is None:
            holder.pseudonym, holder.erased_at = name, now
            holder.save(update_fields=["pseudonym", "erased_at"])
        done.append(
            Disposal(
                study_id=study.pk,
                kind=Disposal.Kind.ERASED,
                holder=holder,
                rows=rows[holder.pk],
                files=files,
                recorded_at=now,
            )
        )
    Disposal.append(done)
    addresses_sweep(study=study)


def scans_erase(study: Study, holders: Collection[int] | None = None) -> int:
    """Delete the given holders' scans of letters, or all scans, after the commit; return their number.

    A scan of several people's letters is kept as long as one of them needs it.
    """
    scans = ConsentEvent.objects.filter(study=study).exclude(evidence="").order_by()
    if holders is None:
        mine, others = set(scans.values_list("evidence", flat=True)), set()
    else:
        mine = set(scans.filter(holder__in=holders).values_list("evidence", flat=True))
        kept = scans.filter(evidence__in=mine, holder__erased_at=None).exclude(holder__in=holders)
        others = set(kept.values_list("evidence", flat=True))
    gone = sorted(mine - others)
    for digest in gone:
        transaction.on_commit(partial(scan_delete, study, digest))
    return len(gone)


def returned_records_log(study: Study, pseudonyms: Sequence[str], owners: NDArray[np.int64], refused: set[int]) -> None:
    """Record that records of erased holders who have since consented are stored again.

    Args:
        pseudonyms: the pseudonym of each record's owner.
        owners: (N,) the holder id of each record's owner.
        refused: ids of holders whose records are not stored.
    """
    returning = _among(owners, _erased(study) - refused)
    places = np.flatnonzero(np.isin(owners, list(returning))).tolist() if returning else []
    names = {pseudonyms[place]: int(owners[place]) for place in places}
    back = {pk: pseudonym for pseudonym, pk in names.items()}
    for holder in DataHolder.objects.filter(study=study, erased_at__isnull=False):
        if holder.pk in back:
            holder.pseudonym, holder.erased_at = back[holder.pk], None
            holder.save(update_fields=["pseudonym", "erased_at"])


def study_close_record(
    *, study: Study, acting_user: AbstractBaseUser | None, reason: str, erase_after: Any = None
) -> Study:
    """Close a study and log it. The caller holds the study's lock, and nothing in the study is in progress.

    Args:
        acting_user: the user who closes it; None if its end date was reached.
        reason: the reason, which holders read.
        erase_after: the last day on which records are stored; not after the day announced to holders.
    """
    study.closed_at = timezone.now()
    study.retention_until = erase_after or study.retention_until
    with changes_recorded([study], acting_user=acting_user):
        study.save(update_fields=["closed_at", "retention_until"])
    # If a restored backup lacks this day, this row closes the study again.
    last = study.retention_until.isoformat() if study.retention_until else ""
    disposal_record(study=study, kind=Disposal.Kind.CLOSED, acting_user=acting_user, subject=last, reason=reason)
    return study


def people_forget(study: Study) -> None:
    """Remove every link between a study's holders and people; the caller holds the study's lock.

    Pseudonyms are replaced by meaningless numbers, and their key is deleted. Links stop working. Accounts are detached
    from the study, and so are emails that have been delivered.
    """
    mark = Concat(Value("erased:"), Cast("public_id", CharField()))
    linked = DataHolder.objects.filter(study=study, user__isnull=False)
    with changes_recorded(linked, acting_user=None):
        DataHolder.objects.filter(study=study).update(pseudonym=mark, erased_at=timezone.now(), user=None)
    invitations = Invitation.objects.filter(study=study)
    with changes_recorded(invitations, acting_user=None):
        invitations.delete()
    Mail.objects.filter(study=study).exclude(state=Mail.State.WAITING).delete()
    addresses_sweep(study=study)
    transaction.on_commit(lambda: pseudonyms.key_delete(study))
