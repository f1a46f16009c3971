"""Reminders before a decision is to be renewed, and those that people ask for who decide later.

The first go to whoever has answered a form that asks for renewal, whatever they answered: no mail tells who takes
part. Who withdrew gets none.
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
    """Put down a mail for whoever mails reach and whose last decision is to be renewed soon, once for each.

    None where a new decision would count no longer: what helps there is a new form, which has a mail of its own.

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
    """Put down one mail that reminds a holder to decide, in place of an earlier one; it is no decision.

    It goes to the account, or to the address that they left: if that is not confirmed by then, nothing is sent, and
    neither is once they have decided, or the study is closed.

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
