"""Records of who answers for a holder; links and accounts are handed over with them.

Whoever has the link or the account of a holder decides in the role that is on record. When somebody else answers from
now on, both end, and whoever answers gets an invitation of their own.
"""

from datetime import date

from django.contrib.auth.models import AbstractBaseUser, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent.circumstances import REPRESENTED, circumstance_last, circumstances_over, day_of
from consent.models import Circumstance, DataHolder, Study, study_lock
from consent.pseudonyms import holder_named
from consent.services.addresses import addresses_forget
from consent.services.answer_drafts import answer_drafts_forget
from consent.services.holders import holder_link, invitations_end
from consent.services.mail import mails_send

_KIND = Circumstance.Kind
#: Reason on record where a day came, and nobody recorded anything.
_DAY_CAME = "until"
#: Kinds under which the person has their own link.
_OWN = (_KIND.PERSON, _KIND.INCAPABLE)


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
    """Record who answers for a holder from now on, or that they have died or can no longer decide.

    Args:
        study: the study.
        pseudonym: the holder's pseudonym.
        kind: one of :class:`consent.models.Circumstance.Kind`.
        until: the first day on which a guardian (who needs one) or proxy no longer answers.
        reason: how it is known; kept with the record.
        acting_user: who records it; None from the command line.

    Returns:
        The record; the last one if it says the same.

    Raises:
        ValidationError: an unknown pseudonym, an empty reason, a day that is missing, out of place or over, or a
            circumstance that cannot follow the last one.
    """
    study_lock(study.pk)
    holder = holder_named(study, pseudonym)
    _day_check(kind, until)
    last = circumstance_last(holder)
    before, until_before = (last.kind, last.until) if last else (_KIND.PERSON, None)
    if (before, until_before) == (kind, until) and last is not None:
        return last
    if before == _KIND.DIED and kind != _KIND.PERSON:
        message = _("It is on record that this person has died. If that was a mistake, record first that they answer.")
        raise ValidationError({"kind": message})
    if kind == _KIND.INCAPABLE and before in REPRESENTED:
        raise ValidationError({"kind": _("Somebody else answers for this person already. Record who does now.")})
    return circumstance_append(_new(holder, kind, until, reason, acting_user))


def _day_check(kind: str, until: date | None) -> None:
    if kind not in REPRESENTED:
        if until is not None:
            raise ValidationError({"until": _("Only a guardian or a proxy answers until a day. Leave it empty.")})
    elif until is None and kind == _KIND.GUARDIAN:
        raise ValidationError({"until": _("Say from which day on the person decides: when they come of age.")})
    elif until is not None and until <= day_of(timezone.now()):
        raise ValidationError({"until": _("This day is not to come. Record that the person answers instead.")})


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
    """Append a record, and end link and account of whoever answers no longer; the study's lock is held."""
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
def hand_over(holder: DataHolder) -> None:
    """Record that the day came on which a guardian or proxy no longer answers, if it did and nobody has; idempotent."""
    study_lock(holder.study_id)
    last = circumstances_over(timezone.now()).filter(holder=holder).first()
    if last is not None:
        circumstance_append(_new(DataHolder.objects.get(pk=holder.pk), _KIND.PERSON, None, _DAY_CAME, None))


def is_day_come(record: Circumstance) -> bool:
    """Whether a circumstance was recorded by :func:`hand_over`."""
    return record.recorded_by_id is None and record.reason == _DAY_CAME


def hand_overs() -> None:
    """Hand over all holders whose guardian or proxy no longer answers from today on."""
    for circumstance in circumstances_over(timezone.now()):
        hand_over(circumstance.holder)
