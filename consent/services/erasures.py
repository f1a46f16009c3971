"""Erasure of a holder's stored records: who asked for it, and whose records are still to be erased.

The worker that erases is sent for by name: what holds records stands above this app.
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
    """Append one row; the study's lock is held."""
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
    """Ask that the stored records of a holder who does not take part are erased; a worker does it soon.

    Args:
        acting_user: who asks: the holder's account or a data steward; None for the bearer of a link.
        reason: of a data steward, how the holder asked for it.

    Returns:
        Whether this is new: asking again before it is done changes nothing.

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
        requested_at: when an erasure was asked for that is not done yet.
        done_at: when they were erased.
        kept_at: when the holder answered that they stay stored, on withdrawing.
    """

    requested_at: datetime | None = None
    done_at: datetime | None = None
    kept_at: datetime | None = None


def erasure_state(holder: DataHolder) -> ErasureState:
    """State of the holder's stored records now."""
    if holder.pk in holders_waiting(holder.study):
        request = Disposal.objects.filter(holder=holder, kind=Disposal.Kind.ASKED).latest("sequence")
        return ErasureState(requested_at=request.recorded_at)
    decision = Disposal.objects.filter(holder=holder, kind=Disposal.Kind.KEPT).order_by("-sequence").first()
    return ErasureState(done_at=holder.erased_at, kept_at=decision.recorded_at if decision else None)


def withdrawn_records_erase(study: Study, holders: Collection[int], *, keep: bool, acting_user: Any) -> None:
    """Have records erased after withdrawals; the study's lock is held, the withdrawals are recorded.

    Without consent there is no legal basis for storing them (EDPB Guidelines 05/2020, paragraphs 117 to 119). They are
    kept only if the study gives holders that choice and the holder says so, which is recorded.

    Args:
        holders: ids of those who withdrew.
        keep: whether they said that their records stay stored.
    """
    keep = keep and study.after_withdrawal == AfterWithdrawal.ASKED
    for holder in DataHolder.objects.filter(pk__in=holders):
        if keep:
            disposal_record(study=study, kind=Disposal.Kind.KEPT, acting_user=acting_user, holder=holder)
        else:
            erasure_ask(holder=holder, acting_user=acting_user)


def holders_waiting(study: Study) -> set[int]:
    """Ids of holders who asked for erasure, still take no part, and whose records have not been erased since.

    This excludes holders who took part again before the erasure was done and then, when they withdrew again, asked for
    their records to be kept.
    """
    requests = set(_requests([study]).values_list("holder_id", flat=True))
    return requests - holders_granting(study, requests)


def _requests(studies: Collection[Study]) -> QuerySet[Disposal]:
    """Requests for erasure after which nothing was erased, and their holder did not say that the records stay."""
    rows = Disposal.objects.filter(study__in=studies, holder=OuterRef("holder"))
    kinds = (Disposal.Kind.ASKED, Disposal.Kind.ERASED)
    # By time, as what a restored backup had forgotten is recorded after what is newer.
    kept = Q(kind=Disposal.Kind.KEPT, recorded_at__gt=OuterRef("recorded_at"))
    later = rows.filter(kept | Q(kind__in=kinds, sequence__gt=OuterRef("sequence"))).order_by()
    return Disposal.objects.filter(~Exists(later), study__in=studies, kind=Disposal.Kind.ASKED).order_by()


@dataclass(frozen=True)
class ErasuresWaiting:
    """Erasures that wait in one study: ``number`` of people, and ``since`` when the first of them waits."""

    study_id: int
    number: int
    since: datetime


def erasures_waiting(studies: Collection[Study]) -> list[ErasuresWaiting]:
    """Erasures of :func:`holders_waiting` in each of some studies; studies without any are left out."""
    after = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    granting = ConsentEvent.objects.filter(~Exists(after), holder=OuterRef("holder"), kind__in=GRANTING)
    requests = _requests(studies).filter(~Exists(granting))
    counted = requests.values("study").annotate(number=Count("pk"), since=Min("recorded_at"))
    return [ErasuresWaiting(*row) for row in counted.values_list("study", "number", "since")]


def holders_granting(study: Study, holders: Collection[int]) -> set[int]:
    """Those of some holders whose last decision was to take part."""
    ids, granting = list(holders), set()
    for start in range(0, len(ids), _AT_ONCE):
        events = ConsentEvent.objects.filter(study=study, holder__in=ids[start : start + _AT_ONCE]).order_by()
        later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
        granting |= set(events.filter(~Exists(later), kind__in=GRANTING).values_list("holder_id", flat=True))
    return granting
