"""Reminders before a decision is to be renewed, and those that people ask for who decide later.

The first go to everyone who has answered a form that asks for renewal, regardless of the answer, so that no mail
reveals who takes part. People who withdrew get none.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import CharField, Exists, OuterRef, Q
from django.db.models.functions import Cast
from django.utils import timezone

from common.models import locked
from consent.models import ConsentEvent, DataHolder, HolderAddress, Mail, study_lock
from consent.people.circumstances import ends_with_form
from consent.promises.standing import REMINDED
from consent.services.mail import holder_mail, holders_reached

KIND = "renewal"
#: Kind of the mail that somebody asked for who decides later.
LATER = "decide_later"


def reminders_send() -> int:
    """Queue one email for each last decision that is due for renewal soon, if its holder can be reached by email.

    No email is queued if a new decision would not be valid for longer: that needs a new form, which has its own email.

    Returns:
        The number of mails.
    """
    now = timezone.now()
    soon = ConsentEvent.objects.filter(renew_by__gt=now, renew_by__lte=now + REMINDED, study__closed_at=None)
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    mine = Q(user=OuterRef("holder__user")) | Q(address__holder=OuterRef("holder"))
    reminded = Mail.objects.filter(mine, kind=KIND, about=OuterRef("key"))
    reached = Q(holder__user__isnull=False) | Q(holder__address__confirmed_at__isnull=False)
    due = soon.annotate(key=Cast("pk", CharField())).filter(
        reached, ~Exists(later), ~Exists(reminded), ~ends_with_form()
    )
    due = due.select_related("holder", "study").order_by("pk")
    for event in due:
        holder_mail(KIND, event.holder, about=event.pk)
    return len(due)


def is_reached(holder: DataHolder) -> bool:
    """Whether a holder has an account, or left an address that is confirmed."""
    return any(each.exists() for each in holders_reached(DataHolder.objects.filter(pk=holder.pk)))


@transaction.atomic
def reminder_ask(*, holder: DataHolder, days: int) -> datetime:
    """Schedule one mail that reminds a holder to decide, replacing any earlier one; this does not count as a decision.

    It goes to their account, or to the address they left. Nothing is sent if that address has not been confirmed by
    then, if they have already decided, or if the study is closed.

    Returns:
        When it is sent.
    """
    due_at = timezone.now() + timedelta(days=days)
    study_lock(holder.study_id)
    locked(holder)
    address = HolderAddress.objects.filter(holder=holder).first()
    reader: dict[str, Any] = {"user_id": holder.user_id} if holder.user_id else {"address": address}
    mine = Mail.objects.filter(kind=LATER, study=holder.study_id, state=Mail.State.WAITING, **reader)
    mine.delete()
    Mail.objects.create(kind=LATER, study=holder.study, due_at=due_at, **reader)
    return due_at
