"""Mail to the people of accounts: put down where its cause is, delivered by a worker, tried again, on record.

A mail is a row that says to whom, which kind and about what. Its words are written when it is delivered, so that no
row, message or log holds them, nor the links that some of them carry. It goes to a confirmed address alone: a mail to
somebody else's address would tell them who is asked by a study. No mail tells a level, or whether somebody takes part.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.mail import EmailMessage
from django.db.models import F
from django.template.loader import render_to_string
from django.utils import timezone, translation
from django.utils.functional import Promise

from common.dispatch import send
from consent.models import DataHolder, Mail, MailWishes, Study

logger = logging.getLogger(__name__)

#: So often a mail is tried, each time after twice the wait; about 17 hours.
TRIES = 10
#: A worker that died while it delivered a mail leaves it to the next after so long.
_LEASE = timedelta(minutes=10)
_AT_ONCE = 500


def confirmed_address(user_id: int) -> str:
    """The confirmed address to which an account's mail goes; empty if there is none."""
    confirmed = EmailAddress.objects.filter(user_id=user_id, verified=True).order_by("-primary", "pk")
    return confirmed.values_list("email", flat=True).first() or ""


def _confirmed(mail: Mail) -> str:
    return confirmed_address(mail.user_id) if mail.user.is_active else ""


@dataclass(frozen=True)
class MailKind:
    """Kind of mail: its words are the template ``mail/<name>.txt``, of which the first line is the subject.

    Attributes:
        label: for the record of mails.
        context: returns what the template needs, besides study and links; None: there is nothing to say any more.
        address: returns where the mail goes, empty for nowhere.
        wish: name of the field of :class:`consent.models.MailWishes` with which somebody can do without it.
    """

    name: str
    label: str | Promise
    context: Callable[[Mail], dict[str, Any] | None] = lambda mail: {}
    address: Callable[[Mail], str] = _confirmed
    wish: str = ""


KINDS: dict[str, MailKind] = {}


def kinds_register(*kinds: MailKind) -> None:
    """Register kinds of mail, once, at start-up."""
    KINDS.update({kind.name: kind for kind in kinds})


def mails_send(kind: str, users: Iterable[int], *, study: Study | None = None, about: object = "") -> None:
    """Put down a mail for each of ``users`` (ids) who wants it, delivered once the transaction has committed."""
    assert kind in KINDS, kind
    if wish := KINDS[kind].wish:
        unwanted = set(MailWishes.objects.filter(**{wish: False}).values_list("user_id", flat=True))
        users = (user for user in users if user not in unwanted)
    mails = (Mail(user_id=user, kind=kind, study=study, about=str(about)) for user in users)
    if Mail.objects.bulk_create(mails, batch_size=2000):
        send("consent.tasks.mails_deliver")


def holders_mail(kind: str, study: Study, *, about: object = "", wishing: bool = False) -> None:
    """Put down a mail for everybody with an account whose records a study asks for, whatever they decided.

    Args:
        kind: the kind of mail.
        study: the study.
        about: key of the row that it is about.
        wishing: only to those who wish to hear of uses.
    """
    holders = DataHolder.objects.filter(study=study, user__isnull=False).order_by("pk")
    if wishing:
        holders = holders.filter(user__mail_wishes__uses=True)
    mails_send(kind, holders.values_list("user_id", flat=True).iterator(chunk_size=2000), study=study, about=about)


def mail_wishes(user: AbstractBaseUser) -> MailWishes:
    """Wishes of an account about its mails; until they are saved, in the language of this moment."""
    return MailWishes.objects.filter(user_id=user.pk).first() or MailWishes(
        user_id=user.pk, language=translation.get_language() or settings.LANGUAGE_CODE
    )


def language_note(user: AbstractBaseUser) -> None:
    """Remember the language of this moment for mails to an account that has no wishes yet."""
    wishes = mail_wishes(user)
    if wishes.pk is None:
        wishes.save()


def mail_render(mail: Mail) -> EmailMessage | None:
    """The mail as it is delivered, in its reader's language; None without an address, or if nothing is to be said."""
    kind = KINDS[mail.kind]
    address = kind.address(mail)
    language = MailWishes.objects.filter(user_id=mail.user_id).values_list("language", flat=True).first()
    with translation.override(language or settings.LANGUAGE_CODE):
        context = kind.context(mail) if address else None
        if context is None:
            return None
        words = render_to_string(f"mail/{kind.name}.txt", {"study": mail.study, "site": settings.SITE_URL, **context})
    subject, _, body = words.strip().partition("\n")
    return EmailMessage(
        subject.strip(), body.strip() + "\n", to=[address], headers={"Auto-Submitted": "auto-generated"}
    )


def mails_deliver() -> None:
    """Deliver the mails that are due; one that fails is due again later."""
    due = Mail.objects.filter(state=Mail.State.WAITING, due_at__lte=timezone.now()).order_by("due_at")
    for pk in list(due.values_list("pk", flat=True)[:_AT_ONCE]):
        _deliver(pk)
    if due.exists():
        send("consent.tasks.mails_deliver")


def _deliver(pk: int) -> None:
    now = timezone.now()
    mine = Mail.objects.filter(pk=pk, state=Mail.State.WAITING)
    if not mine.filter(due_at__lte=now).update(due_at=now + _LEASE, tries=F("tries") + 1):
        return  # another worker has it
    mail = Mail.objects.select_related("study", "user").get(pk=pk)
    try:
        message = mail_render(mail)
        if message is None:
            mine.update(state=Mail.State.DROPPED)
            return
        message.send()
    except Exception as error:  # whatever is wrong with one mail must not keep the others waiting
        fault = type(error).__name__
        # The class alone: an error's words can hold the address and the mail.
        logger.warning("Mail %s (%s) was not delivered at try %s: %s.", pk, mail.kind, mail.tries, fault)
        if mail.tries >= TRIES:
            mine.update(state=Mail.State.FAILED, fault=fault)
        else:
            mine.update(due_at=timezone.now() + timedelta(minutes=2 ** (mail.tries - 1)), fault=fault)
    else:
        mine.update(state=Mail.State.SENT, sent_at=timezone.now(), fault="")
