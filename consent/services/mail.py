"""Mail and news to people: stored with their cause, delivered by a worker, tried again, and logged; their addresses.

A mail is a row with its recipient, kind and subject. Its text is written on delivery, so that no row, message or log
contains it, nor the links in it. It goes only to a confirmed address, of an account or left by a person without one,
because a mail to a stranger's address would reveal who is asked by a study. Every mail to an address that was left has
a link that deletes the address. No mail mentions a level, or whether a person takes part.

News about results goes to everyone who has decided, regardless of the decision, unless they have withdrawn, had their
records erased, or are recorded as having died. People whom no email reaches get it as letters.

An address that a person without an account leaves gets only the mail that asks for its confirmation. It is deleted by
its holder on every page and from every mail, and automatically once the holder has an account, someone else answers,
their records are erased, or it was not confirmed in time.

Reminders to renew a decision go to everyone who has answered a form that asks for renewal, regardless of the answer.
People who withdrew get none.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.db.models import CharField, Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Cast
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.functional import Promise
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from common.backoff import pause_after
from common.jobs import send
from common.models import locked
from common.templatetags.components import component_render
from common.throttle import Counter, TooManyTriesError, attempt_begin, keyed_hash
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
from consent.models.addresses import new_key
from consent.people.circumstances import REMINDED, answering_for, circumstances_last, ends_with_form
from consent.services.changes import changes_recorded
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
            mine.update(
                due_at=timezone.now() + timedelta(seconds=pause_after(mail.tries, least=60, most=86_400)), fault=fault
            )
    else:
        mine.update(state=Mail.State.SENT, sent_at=timezone.now(), fault="")


def news_readers(studies: Collection[Study]) -> QuerySet[ConsentEvent]:
    """Last decisions of the people who get news."""
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    died = circumstances_last(*studies).filter(holder=OuterRef("holder"), kind=Circumstance.Kind.DIED)
    decided = ConsentEvent.objects.filter(study__in=studies, holder__erased_at=None)
    return decided.filter(~Q(kind=ConsentEvent.Kind.WITHDRAWN), ~Exists(later), ~Exists(died))


@transaction.atomic
def news_send(*, study: Study, kind: str, about: str = "") -> News | None:
    """Record news, and queue an email for everybody whom email reaches and who wants it.

    Args:
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


# --- Addresses of holders without an account --------------------------------------------------------------------------


#: So long an address waits for its confirmation.
WAITS = timedelta(days=7)
#: So many confirmations are sent in a day for one holder, and to one address.
_IN_A_DAY = 5


def address_leave(*, holder: DataHolder, email: str) -> HolderAddress:
    """Keep an address to which a holder without an account wishes mails, and send it a mail that asks to confirm it.

    A reminder to decide that they asked for goes to it and replaces an earlier one.

    Raises:
        ValidationError: the holder has an account, or too many such mails were sent in a day.
    """
    email = email.strip().lower()
    subjects = (str(holder.pk), email)
    day = timedelta(days=1)
    try:
        attempt_begin([Counter(keyed_hash("address left", each), _IN_A_DAY, day) for each in subjects])
    except TooManyTriesError as error:
        raise ValidationError(_("Too many confirmation emails were sent. Try again tomorrow.")) from error
    with transaction.atomic():
        reminders = list(Mail.objects.filter(address__holder=holder, kind="decide_later", state=Mail.State.WAITING))
        address = _kept(holder, HolderAddress.Way.MAIL, email)
        for each in reminders:
            each.pk, each.address = None, address
        Mail.objects.bulk_create(reminders)
        Mail.objects.create(address=address, kind="address_left")
        send("consent.tasks.mails_deliver")
    return address


@transaction.atomic
def way_wish(*, holder: DataHolder, way: str) -> HolderAddress:
    """Keep that a holder without an account wishes letters, or no news; an address that they left is deleted.

    Args:
        way: ``LETTER`` or ``NOTHING`` of :class:`consent.models.HolderAddress.Way`.

    Raises:
        ValidationError: the holder has an account.
    """
    return _kept(holder, way, "")


def _kept(holder: DataHolder, way: str, email: str) -> HolderAddress:
    study_lock(holder.study_id)
    if locked(holder).user_id is not None:
        raise ValidationError(_("You have an account, so emails go to its address."))
    addresses_forget(holders=[holder.pk])
    address = HolderAddress(
        study_id=holder.study_id, holder=holder, way=way, email=email, key=new_key(), language=get_language() or ""
    )
    with changes_recorded([address], acting_user=None):
        address.save()
    return address


@transaction.atomic
def address_confirm(*, address: HolderAddress) -> None:
    """Confirm an address for the person who reads its mails, unless it was deleted or confirmed before."""
    waiting = HolderAddress.objects.select_for_update().filter(pk=address.pk, confirmed_at=None)
    if waiting.exists():
        with changes_recorded([address], acting_user=None):
            address.confirmed_at = timezone.now()
            address.save(update_fields=["confirmed_at"])


@transaction.atomic
def addresses_forget(*, holders: Collection[int]) -> None:
    """Delete what holders of one study left, with the mails to it, and log it."""
    rows = HolderAddress.objects.filter(holder__in=list(holders))
    with changes_recorded(rows, acting_user=None):
        rows.delete()


def addresses_sweep(*, study: Study | None = None) -> int:
    """Delete addresses that nobody confirmed in time, and those of whom everything is erased, once they are told so.

    One that was left after the erasure stays: its holder takes part again, or wants to hear of the study.

    Args:
        study: of this study alone; its lock is held.

    Returns:
        The number of addresses.
    """
    waiting = Mail.objects.filter(address=OuterRef("pk"), state=Mail.State.WAITING)
    late = Q(way=HolderAddress.Way.MAIL, confirmed_at=None, left_at__lte=timezone.now() - WAITS)
    over = HolderAddress.objects.filter(late | (Q(holder__erased_at__gte=F("left_at")) & ~Exists(waiting)))
    of_studies: dict[int, list[int]] = defaultdict(list)
    for study_id, holder in (over.filter(study=study) if study else over).values_list("study", "holder"):
        of_studies[study_id].append(holder)
    for holders in of_studies.values():
        addresses_forget(holders=holders)
    return sum(map(len, of_studies.values()))


# --- Reminders --------------------------------------------------------------------------------------------------------


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
