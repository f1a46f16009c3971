"""Day until which an answer to a proposal is wanted; one mail to the chair once it is over. Silence decides nothing."""

from datetime import date, timedelta

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from consent.circumstances import day_of
from consent.models import ConsentFormProposal, EpsilonPolicy, Mail, Role, Study
from consent.selectors import forms_waiting, policies_waiting
from consent.services.mail import mails_send

#: Days that the ethics committee has by default, and the most that a proposal gives it.
ANSWER_DAYS, MOST_ANSWER_DAYS = 14, 365


def answer_day(wish: date | None) -> date:
    """Day until which an answer is wanted: ``wanted``, or in two weeks. Raises ValidationError out of the range."""
    today = day_of(timezone.now())
    day = wish or today + timedelta(days=ANSWER_DAYS)
    if not today <= day <= today + timedelta(days=MOST_ANSWER_DAYS):
        message = _("Give a day from today on, at most %(days)d days ahead.")
        raise ValidationError(message % {"days": MOST_ANSWER_DAYS})
    return day


def overdue_mails_send() -> int:
    """Put down one mail to each chair about each proposal that still waits after its day; return how many."""
    today, sent = day_of(timezone.now()), 0
    for study in Study.objects.filter(closed_at=None).order_by("pk"):
        waiting: list[EpsilonPolicy | ConsentFormProposal] = [*policies_waiting(study), *forms_waiting(study)]
        for proposal in waiting:
            if proposal.answer_by is None or proposal.answer_by >= today:
                continue
            kind = "policy_overdue" if isinstance(proposal, EpsilonPolicy) else "form_overdue"
            chairs = get_user_model().objects.filter(
                memberships__study=study, memberships__role=Role.CHAIR, is_active=True
            )
            recipients = Mail.objects.filter(kind=kind, about=str(proposal.pk)).values("user")
            new = list(chairs.exclude(pk__in=recipients).values_list("pk", flat=True))
            if new:
                mails_send(kind, new, study=study, about=proposal.pk)
            sent += len(new)
    return sent
