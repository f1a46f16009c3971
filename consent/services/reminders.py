"""Reminders before a decision is to be renewed.

They go to whoever has answered a form that asks for renewal, whatever they answered: no mail tells who takes part. Who
withdrew gets none.
"""

from django.db.models import CharField, Exists, OuterRef
from django.db.models.functions import Cast
from django.utils import timezone

from consent.models import ConsentEvent, Mail
from consent.services.mail import mails_send
from consent.standing import REMINDED

KIND = "renewal"


def reminders_send() -> int:
    """Put down a mail for each account whose last decision is to be renewed soon, once for each decision.

    Returns:
        The number of mails.
    """
    now = timezone.now()
    soon = ConsentEvent.objects.filter(
        renew_by__gt=now, renew_by__lte=now + REMINDED, holder__user__isnull=False, study__closed_at=None
    )
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    reminded = Mail.objects.filter(kind=KIND, user=OuterRef("holder__user"), about=OuterRef("key"))
    due = soon.annotate(key=Cast("pk", CharField())).filter(~Exists(later), ~Exists(reminded))
    due = due.select_related("holder", "study").order_by("pk")
    for event in due:
        assert event.holder.user_id is not None, "only those with an account are reminded by mail"
        mails_send(KIND, [event.holder.user_id], study=event.study, about=event.pk)
    return len(due)
