"""Mail and news to people: stored with their cause, delivered by a worker, tried again, and logged.

A mail is a row with its recipient, kind and subject. Its text is written on delivery, so that no row, message or log
contains it, nor the links in it. It goes only to a confirmed address, of an account or left by a person without one,
because a mail to a stranger's address would reveal who is asked by a study. Every mail to an address that was left has
a link that deletes the address. No mail mentions a level, or whether a person takes part.

News about results goes to everyone who has decided, regardless of the decision, unless they have withdrawn, had their
records erased, or are recorded as having died. People whom no email reaches get it as letters.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.mail import EmailMessage
from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.functional import Promise

from common.jobs import send
from common.templatetags.components import component_render
from consent.models import (
    Circumstance,
    ConsentEvent,
    DataHolder,
    HolderAddress,
    Mail,
    MailWishes,
    News,
    Study,
    study_lock,
)
from consent.people.circumstances import answering_for, circumstances_last
from consent.wording.third_person import in_third_person

logger = logging.getLogger(__name__)

#: So often a mail is tried, each time after twice the wait; about 17 hours.
TRIES = 10
#: A worker that died while it delivered a mail leaves it to the next after so long.
_LEASE = timedelta(minutes=10)
_AT_ONCE = 500
#: Kind of mail of each kind of news.
MAILS = {News.Kind.RESULT: "result_published", News.Kind.YEAR: "results_of_year"}


def confirmed_address(user_id: int) -> str:
    """The confirmed address to which an account's mail goes; empty if there is none."""
    confirmed = EmailAddress.objects.filter(user_id=user_id, verified=True).order_by("-primary", "pk")
    return confirmed.values_list("email", flat=True).first() or ""


def _confirmed(mail: Mail) -> str:
    if mail.address is not None:
        return mail.address.email if mail.address.confirmed_at else ""
    assert mail.user is not None, "the database sees to it"
    return confirmed_address(mail.user.pk) if mail.user.is_active else ""


@dataclass(frozen=True)
class MailKind:
    """Kind of mail: its text is the component ``mail_<name>``, whose first line is the subject.

    Attributes:
        label: for the record of mails.
        context: returns what the template needs, besides study and links; None if there is no longer anything to say.
        address: returns the address to which the mail goes; empty if it goes nowhere.
        language: returns the language of the page on which it was asked for; empty: the account's.
        wish: name of the field of :class:`consent.models.MailWishes` with which people choose whether to get it.
    """

    name: str
    label: str | Promise
    context: Callable[[Mail], dict[str, Any] | None] = lambda mail: {}
    address: Callable[[Mail], str] = _confirmed
    language: Callable[[Mail], str] = lambda mail: ""
    wish: str = ""


KINDS: dict[str, MailKind] = {}


def kinds_register(*kinds: MailKind) -> None:
    """Register kinds of mail, once, at start-up."""
    KINDS.update({kind.name: kind for kind in kinds})


def mails_send(kind: str, users: Iterable[int], *, study: Study | None = None, about: object = "") -> None:
    """Queue an email for each of ``users`` (ids) who wants it, to be delivered once the transaction has committed."""
    assert kind in KINDS, kind
    users = list(users)
    if users and (wish := KINDS[kind].wish):
        unwanted = set(MailWishes.objects.filter(**{wish: False}).values_list("user_id", flat=True))
        users = [user for user in users if user not in unwanted]
    mails = (Mail(user_id=user, kind=kind, study=study, about=str(about)) for user in users)
    if Mail.objects.bulk_create(mails, batch_size=2000):
        send("consent.tasks.mails_deliver")


def holders_reached(holders: QuerySet[DataHolder]) -> tuple[QuerySet[DataHolder], QuerySet[HolderAddress]]:
    """Those of some holders who have an account, and the confirmed addresses of the others."""
    left = HolderAddress.objects.filter(
        holder__in=holders.order_by(), holder__user=None, way=HolderAddress.Way.MAIL, confirmed_at__isnull=False
    )
    return holders.filter(user__isnull=False), left


def mails_to_holders(kind: str, holders: QuerySet[DataHolder], study: Study, *, about: object = "") -> None:
    """Put down a mail for each of some holders of a study: to their account, or to the address that they left."""
    accounts, left = holders_reached(holders)
    users = accounts.order_by("pk").values_list("user_id", flat=True).iterator(chunk_size=2000)
    mails_send(kind, (user for user in users if user is not None), study=study, about=about)
    mails = (Mail(address=address, kind=kind, study=study, about=str(about)) for address in left.order_by("pk"))
    if Mail.objects.bulk_create(mails, batch_size=2000):
        send("consent.tasks.mails_deliver")


def holder_mail(kind: str, holder: DataHolder, *, about: object = "") -> None:
    """Put down a mail for one holder; see :func:`mails_to_holders`."""
    mails_to_holders(kind, DataHolder.objects.filter(pk=holder.pk), holder.study, about=about)


def mail_holders(mail: Mail) -> QuerySet[DataHolder]:
    """Holders of a mail's study whom its reader decides for."""
    if mail.address is not None:
        return DataHolder.objects.filter(pk=mail.address.holder_id)
    if mail.study_id is None or mail.user_id is None:
        return DataHolder.objects.none()
    return DataHolder.objects.filter(study_id=mail.study_id, user_id=mail.user_id)


def holders_mail(kind: str, study: Study, *, about: object = "", wishing: bool = False) -> None:
    """Queue an email for everybody whose records a study asks for and whom email reaches, regardless of their decision.

    Args:
        kind: the kind of mail.
        study: the study.
        about: key of the row that it is about.
        wishing: only to people who want to hear of uses.
    """
    holders = DataHolder.objects.filter(study=study)
    if wishing:
        holders = holders.filter(user__mail_wishes__uses=True)
    mails_to_holders(kind, holders, study, about=about)


def mail_wishes(user: AbstractBaseUser) -> MailWishes:
    """Wishes of an account about its mails; until they are saved, in the language of this moment."""
    return MailWishes.objects.filter(user_id=user.pk).first() or MailWishes(
        user_id=user.pk, language=translation.get_language() or settings.LANGUAGE_CODE
    )


def language_note(user: AbstractBaseUser) -> None:
    """Store the current language for emails to an account that has no preferences yet."""
    wishes = mail_wishes(user)
    if wishes.pk is None:
        wishes.save()


def mail_render(mail: Mail) -> EmailMessage | None:
    """The mail as it is delivered, in its reader's language; None without an address, or if there is nothing to say."""
    kind = KINDS[mail.kind]
    address = kind.address(mail)
    wished, headers, left = "", {"Auto-Submitted": "auto-generated"}, ""
    if mail.address is not None:
        wished, left = mail.address.language, address_link(mail.address)
        headers |= {"List-Unsubscribe": f"<{left}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    elif mail.user_id is not None:
        wished = MailWishes.objects.filter(user_id=mail.user_id).values_list("language", flat=True).first() or ""
    with translation.override(kind.language(mail) or wished or settings.LANGUAGE_CODE), _voice(mail):
        context = kind.context(mail) if address else None
        if context is None:
            return None
        everything = {"study": mail.study, "site": settings.SITE_URL, "left": left, **context}
        words = component_render(f"mail_{kind.name}", autoescape=False, **everything)
    subject, _, body = words.strip().partition("\n")
    return EmailMessage(subject.strip(), body.strip() + "\n", to=[address], headers=headers)


def address_link(address: HolderAddress) -> str:
    """Return the link that confirms and deletes an address that was left. It is stored nowhere."""
    return settings.SITE_URL.rstrip("/") + reverse("address", args=[_signer().sign(address.key)])


def address_by_link(token: str) -> HolderAddress | None:
    """Address of a link; None once it was deleted, and of what no link has."""
    try:
        key = _signer().unsign(token)
    except BadSignature:
        return None
    return HolderAddress.objects.filter(key=key, way=HolderAddress.Way.MAIL).select_related("holder__study").first()


def _signer() -> Signer:
    return Signer(salt="consent.services.mail.address")


def _voice(mail: Mail) -> AbstractContextManager[None]:
    """Third person for a mail whose reader decides for another person, and for nobody else in the study."""
    holders = list(mail_holders(mail)[:2]) if mail.study_id else []
    if len(holders) == 1 and answering_for(holders[0]).represents:
        return in_third_person(holders[0].known_as)
    return nullcontext()


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
    mail = Mail.objects.select_related("study", "user", "address").get(pk=pk)
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


def news_readers(studies: Collection[Study]) -> QuerySet[ConsentEvent]:
    """Last decisions of the people who get news."""
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    died = circumstances_last(*studies).filter(holder=OuterRef("holder"), kind=Circumstance.Kind.DIED)
    decided = ConsentEvent.objects.filter(study__in=studies, holder__erased_at=None)
    return decided.filter(~Q(kind=ConsentEvent.Kind.WITHDRAWN), ~Exists(later), ~Exists(died))


@transaction.atomic
def news_tell(*, study: Study, kind: str, about: str = "") -> News | None:
    """Record news, and queue an email for everybody whom email reaches and who wants it.

    Args:
        study: the study.
        kind: one of :class:`consent.models.News.Kind`.
        about: key of the result, of news about one.

    Returns:
        The news; None if the study is closed, or this news was already sent.
    """
    study = study_lock(study.pk)
    earlier = News.objects.filter(study=study, kind=kind, about=about) if about else News.objects.none()
    if study.is_closed or earlier.exists():
        return None
    news = News.objects.create(study=study, kind=kind, about=about, published_at=timezone.now())
    readers = DataHolder.objects.filter(pk__in=news_readers([study]).values("holder"))
    mails_to_holders(MAILS[News.Kind(kind)], readers, study, about=news.pk)
    return news
