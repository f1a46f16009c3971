"""Erasure of holders' stored records: requests, and the records that are still to be erased.

The task that erases records is called by name, because the code that stores records is in a layer above this app.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from common.jobs import send
from common.models import locked
from consent.models import AfterWithdrawal, ConsentEvent, DataHolder, Disposal, Study, study_lock
from consent.selectors import GRANTING, consent_current

_AT_ONCE = 500


def disposal_record(*, study: Study, kind: str, acting_user: AbstractBaseUser | None, **fields: Any) -> Disposal:
    """Append one row to the log of disposals; the caller holds the study's lock."""
    row = Disposal(
        study_id=study.pk,
        kind=kind,
        recorded_by_id=acting_user.pk if acting_user else None,
        recorded_at=timezone.now(),
        **fields,
    )
    return Disposal.append([row])[0]


@transaction.atomic
def erasure_ask(*, holder: DataHolder, acting_user: AbstractBaseUser | None, reason: str = "") -> bool:
    """Request the erasure of the stored records of a holder who does not take part; a worker carries it out soon.

    Args:
        acting_user: the holder's account or a data steward; None for the bearer of a link.
        reason: for a data steward, how the holder requested the erasure.

    Returns:
        Whether the request is new; repeating it before the erasure has no effect.

    Raises:
        ValidationError: the holder takes part.
    """
    study = study_lock(holder.study_id)
    locked(holder)
    current = consent_current(holder)
    if current is not None and current.grants:
        raise ValidationError(_("You take part, so your records are in use. Withdraw first; then they will be erased."))
    if holder.pk in holders_waiting(study):
        return False
    disposal_record(study=study, kind=Disposal.Kind.ASKED, acting_user=acting_user, holder=holder, reason=reason)
    send("training.tasks.records_erase", study.pk)
    return True


@dataclass(frozen=True)
class ErasureState:
    """State of a holder's stored records.

    Attributes:
        requested_at: when an erasure that is still pending was requested.
        done_at: when they were erased.
        kept_at: when the holder chose, while withdrawing, that the records stay stored.
    """

    requested_at: datetime | None = None
    done_at: datetime | None = None
    kept_at: datetime | None = None


def erasure_state(holder: DataHolder) -> ErasureState:
    """Return the current state of the holder's stored records."""
    if holder.pk in holders_waiting(holder.study):
        request = Disposal.objects.filter(holder=holder, kind=Disposal.Kind.ASKED).latest("sequence")
        return ErasureState(requested_at=request.recorded_at)
    decision = Disposal.objects.filter(holder=holder, kind=Disposal.Kind.KEPT).order_by("-sequence").first()
    return ErasureState(done_at=holder.erased_at, kept_at=decision.recorded_at if decision else None)


def withdrawn_records_erase(study: Study, holders: Collection[int], *, keep: bool, acting_user: Any) -> None:
    """Request the erasure of records after recorded withdrawals; the caller holds the study's lock.

    Without consent there is no legal basis for storing records (EDPB Guidelines 05/2020, paragraphs 117 to 119).
    Records are kept only if the study offers this choice and the holder makes it, which is recorded.

    Args:
        holders: ids of the holders who withdrew.
        keep: whether they chose that their records stay stored.
    """
    keep = keep and study.after_withdrawal == AfterWithdrawal.ASKED
    for holder in DataHolder.objects.filter(pk__in=holders):
        if keep:
            disposal_record(study=study, kind=Disposal.Kind.KEPT, acting_user=acting_user, holder=holder)
        else:
            erasure_ask(holder=holder, acting_user=acting_user)


def holders_waiting(study: Study) -> set[int]:
    """Return the ids of holders who requested erasure, have not taken part since, and are waiting for it.

    This excludes holders who took part again before the erasure and then asked to keep their records when they withdrew
    again.
    """
    requests = set(_requests([study]).values_list("holder_id", flat=True))
    return requests - holders_granting(study, requests)


def _requests(studies: Collection[Study]) -> QuerySet[Disposal]:
    """Return requests after which nothing was erased and the holder did not choose to keep the records."""
    rows = Disposal.objects.filter(study__in=studies, holder=OuterRef("holder"))
    kinds = (Disposal.Kind.ASKED, Disposal.Kind.ERASED)
    # Compared by time, because rows lost in a restore are recorded after newer ones.
    kept = Q(kind=Disposal.Kind.KEPT, recorded_at__gt=OuterRef("recorded_at"))
    later = rows.filter(kept | Q(kind__in=kinds, sequence__gt=OuterRef("sequence"))).order_by()
    return Disposal.objects.filter(~Exists(later), study__in=studies, kind=Disposal.Kind.ASKED).order_by()


@dataclass(frozen=True)
class ErasuresWaiting:
    """Pending erasures in one study: their ``number``, and the time of the oldest one (``since``)."""

    study_id: int
    number: int
    since: datetime


def erasures_waiting(studies: Collection[Study]) -> list[ErasuresWaiting]:
    """Return the erasures of :func:`holders_waiting` for each given study, omitting studies without any."""
    if not Disposal.objects.filter(study__in=studies, kind=Disposal.Kind.ASKED).exists():
        return []
    after = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    granting = ConsentEvent.objects.filter(~Exists(after), holder=OuterRef("holder"), kind__in=GRANTING)
    requests = _requests(studies).filter(~Exists(granting))
    counted = requests.values("study").annotate(number=Count("pk"), since=Min("recorded_at"))
    return [ErasuresWaiting(*row) for row in counted.values_list("study", "number", "since")]


def holders_granting(study: Study, holders: Collection[int]) -> set[int]:
    """Return the given holders whose last decision was to take part."""
    ids, granting = list(holders), set()
    for start in range(0, len(ids), _AT_ONCE):
        events = ConsentEvent.objects.filter(study=study, holder__in=ids[start : start + _AT_ONCE]).order_by()
        later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
        granting |= set(events.filter(~Exists(later), kind__in=GRANTING).values_list("holder_id", flat=True))
    return granting
