"""Data holders: registration, links to accounts, changes in who answers, and access by staff.

The person who has a holder's link or account decides in the recorded role. When another person starts to answer, the
link and the account stop working, and that person gets their own invitation.
"""

import uuid
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

import numpy as np
from django.contrib.auth.models import AbstractBaseUser, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from numpy.typing import NDArray

from common.bulk import missing_insert
from common.identities import spelling
from common.models import locked
from common.progress import Progress, silent
from consent.models import Circumstance, ConsentEvent, DataHolder, Invitation, LevelAccess, Mail, Study, study_lock
from consent.people.circumstances import REPRESENTED, circumstance_last, circumstances_ended, day_of
from consent.people.pseudonyms import holder_named, holders_by_pseudonym, spelling_fault
from consent.selectors import consent_current
from consent.services.changes import changes_recorded
from consent.services.decisions import answer_drafts_forget
from consent.services.mail import addresses_forget, mails_send
from consent.services.studies import study_open_check

_AT_ONCE = 500
#: Number of pseudonyms that are looked up and registered per batch.
_REGISTERED_AT_ONCE = 2000
_KIND = Circumstance.Kind
#: Recorded reason for a change that takes place on a date without anyone acting.
_DAY_CAME = "until"
#: Kinds of circumstance in which the holder has their own link.
_OWN = (_KIND.PERSON, _KIND.INCAPABLE)


@transaction.atomic
def holders_register(*, study: Study, pseudonyms: Iterable[str]) -> dict[str, int]:
    """Register a holder for every new pseudonym, under its canonical spelling.

    People whose records were erased are found by the commitment to their pseudonym, and keep their account.

    Returns:
        The holder id of every pseudonym, in the spelling that was passed.

    Raises:
        ValidationError: the study is closed, the key to erased pseudonyms is missing, or a pseudonym is invalid.
    """
    study_open_check(study_lock(study.pk))
    return _register(study, list(dict.fromkeys(pseudonyms)))


@transaction.atomic
def owners_register(*, study: Study, pseudonyms: Sequence[str], progress: Progress = silent) -> NDArray[np.int64]:
    """Register holders like :func:`holders_register`, in batches, so that millions of records take little memory.

    Args:
        pseudonyms: the pseudonym of each record's owner.
        progress: called with the number of records done and the total.

    Returns:
        (N,) the holder id of each record.

    Raises:
        ValidationError: as in :func:`holders_register`.
    """
    study_open_check(study_lock(study.pk))
    owners = np.empty(len(pseudonyms), np.int64)
    is_empty = not DataHolder.objects.filter(study=study).exists()
    for start in range(0, len(owners), _REGISTERED_AT_ONCE):
        names = pseudonyms[start : start + _REGISTERED_AT_ONCE]
        ids = _register(study, list(dict.fromkeys(names)), is_empty=is_empty)
        owners[start : start + len(names)] = [ids[name] for name in names]
        progress(start + len(names), len(owners))
    return owners


def _register(study: Study, pseudonyms: Sequence[str], *, is_empty: bool = False) -> dict[str, int]:
    """Register a holder for every new pseudonym, and return all ids by pseudonym; ``is_empty`` if all are new."""
    known = {} if is_empty else holders_by_pseudonym(study, pseudonyms)
    names = [name for name in pseudonyms if name not in known]
    if faults := [fault for name in names if (fault := spelling_fault(name))]:
        raise ValidationError(faults)
    spelled, now = {name: spelling(name) for name in names}, timezone.now()
    made: dict[str, int] = {}
    new = list(dict.fromkeys(spelled.values()))
    for start in range(0, len(new), _REGISTERED_AT_ONCE):
        some = new[start : start + _REGISTERED_AT_ONCE]
        columns: dict[str, list[Any]] = {
            "study": [study.pk] * len(some),
            "pseudonym": some,
            "public_id": [uuid.uuid4() for _each in some],
            "created_at": [now] * len(some),
        }
        made.update(missing_insert(DataHolder, columns, ("pseudonym", "id")))
    known |= {name: made[each] for name, each in spelled.items() if each in made}
    return known | holders_by_pseudonym(study, [name for name in names if name not in known])


@transaction.atomic
def holder_link(
    *, holder: DataHolder, user: AbstractBaseUser | None, acting_user: AbstractBaseUser | None = None
) -> DataHolder:
    """Link a holder to the account that decides for them, or remove the link, and record this.

    Emails, including a requested reminder, then go to the account; an address that the holder gave is deleted.

    Args:
        user: the account, or None.
        acting_user: member of staff who links it; None if the holder does.

    Raises:
        ValidationError: the account already decides for another holder of the study.
    """
    locked(holder)
    linked = user.pk if user else None
    if holder.user_id != linked:
        holder.linked_at = timezone.now() if user else None
    holder.user_id = linked
    holder.full_clean()
    with changes_recorded([holder], acting_user=acting_user):
        holder.save()
    if linked is not None:
        waiting = Mail.objects.filter(address__holder=holder, state=Mail.State.WAITING)
        waiting.exclude(kind="address_left").update(address=None, user_id=linked)
        addresses_forget(holders=[holder.pk])
    return holder


@transaction.atomic
def invitations_end(
    *, holders: Sequence[int], acting_user: AbstractBaseUser | None, account: AbstractBaseUser | None = None
) -> None:
    """End the valid invitations of holders of one study, and record this.

    Args:
        holders: ids of the holders.
        acting_user: member of staff who ends them; None at the command line, when a date ends them, or if the holder
            does.
        account: the holder's account, which is known to work.
    """
    by = account or acting_user
    for start in range(0, len(holders), _AT_ONCE):
        valid = Invitation.objects.filter(holder__in=holders[start : start + _AT_ONCE], revoked_at=None)
        with changes_recorded(valid, acting_user=acting_user):
            valid.update(revoked_at=timezone.now(), revoked_by=by.pk if by else None)


@transaction.atomic
def circumstance_record(
    *,
    study: Study,
    pseudonym: str,
    kind: str,
    until: date | None = None,
    reason: str,
    acting_user: AbstractBaseUser | None,
) -> Circumstance:
    """Record who answers for a holder from now on, or that the holder has died or can no longer decide.

    Args:
        kind: one of :class:`consent.models.Circumstance.Kind`.
        until: the first day on which a guardian or proxy no longer answers (required for a guardian).
        reason: how this is known; kept with the record.
        acting_user: the user who records it; None from the command line.

    Returns:
        The new record, or the last record if it is the same.

    Raises:
        ValidationError: the pseudonym is unknown, the reason is empty, the day is missing, not allowed or past, or the
            circumstance cannot follow the last one.
    """
    study_lock(study.pk)
    holder = holder_named(study, pseudonym)
    _day_check(kind, until)
    last = circumstance_last(holder)
    before, until_before = (last.kind, last.until) if last else (_KIND.PERSON, None)
    if (before, until_before) == (kind, until) and last is not None:
        return last
    if before == _KIND.DIED and kind != _KIND.PERSON:
        message = _(
            "We have recorded that this person has died. If that is a mistake, first record that they answer "
            "for themselves."
        )
        raise ValidationError({"kind": message})
    if kind == _KIND.INCAPABLE and before in REPRESENTED:
        raise ValidationError(
            {
                "kind": _(
                    "Another person already answers for these records. If that has changed, record who answers now."
                )
            }
        )
    return circumstance_append(_new(holder, kind, until, reason, acting_user))


def _day_check(kind: str, until: date | None) -> None:
    if kind not in REPRESENTED:
        if until is not None:
            raise ValidationError(
                {"until": _("You can set an end date only for a guardian or a proxy. Leave the date empty.")}
            )
    elif until is None and kind == _KIND.GUARDIAN:
        raise ValidationError(
            {"until": _("Enter the day on which the person comes of age and decides for themselves.")}
        )
    elif until is not None and until <= day_of(timezone.now()):
        raise ValidationError(
            {"until": _("This day is in the past. Record that the person answers for themselves instead.")}
        )


def _new(
    holder: DataHolder, kind: str, until: date | None, reason: str, acting_user: AbstractBaseUser | None
) -> Circumstance:
    return Circumstance(
        study_id=holder.study_id,
        holder=holder,
        kind=kind,
        until=until,
        reason=reason.strip(),
        recorded_by_id=acting_user.pk if acting_user else None,
        recorded_at=timezone.now(),
    )


def circumstance_append(record: Circumstance) -> Circumstance:
    """Append a record, ending the link and account of a person who no longer answers. The caller holds the lock."""
    holder, last = record.holder, circumstance_last(record.holder)
    before = last.kind if last else _KIND.PERSON
    Circumstance.append([record])
    if record.kind != before and not (record.kind in _OWN and before in _OWN):
        by = record.recorded_by_id
        acting_user = User.objects.filter(pk=by).first() if by is not None else None
        invitations_end(holders=[holder.pk], acting_user=acting_user)
        addresses_forget(holders=[holder.pk])
        answer_drafts_forget([holder.pk])
        if holder.user_id is not None:
            mails_send("handed_over", [holder.user_id], study=holder.study)
            holder_link(holder=holder, user=None, acting_user=acting_user)
    return record


@transaction.atomic
def handover_record(holder: DataHolder) -> None:
    """Record, unless already recorded, that a guardian or proxy no longer answers because their last day has passed."""
    study_lock(holder.study_id)
    last = circumstances_ended(timezone.now()).filter(holder=holder).first()
    if last is not None:
        circumstance_append(_new(DataHolder.objects.get(pk=holder.pk), _KIND.PERSON, None, _DAY_CAME, None))


def is_handover(record: Circumstance) -> bool:
    """Return whether a circumstance was recorded by :func:`handover_record`."""
    return record.recorded_by_id is None and record.reason == _DAY_CAME


def handovers_record() -> None:
    """Record the handover of all holders whose guardian or proxy no longer answers."""
    for circumstance in circumstances_ended(timezone.now()):
        handover_record(circumstance.holder)


@transaction.atomic
def holder_level_access(
    *, study: Study, pseudonym: str, acting_user: AbstractBaseUser, reason: str
) -> ConsentEvent | None:
    """Record a staff member's access to a holder's choice, then return the choice.

    Args:
        reason: why the access is necessary; kept with the record.

    Returns:
        The holder's last consent event, or None if there is none.

    Raises:
        ValidationError: no holder in the study has this pseudonym, or the reason is empty.
    """
    study_lock(study.pk)
    holder = holder_named(study, pseudonym)
    look = LevelAccess(
        study=study, holder=holder, reason=reason.strip(), seen_by_id=acting_user.pk, seen_at=timezone.now()
    )
    LevelAccess.append([look])
    return consent_current(holder)
