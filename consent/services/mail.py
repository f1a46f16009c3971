"""Emails and news to people, and their addresses. Emails are stored, delivered with retries, and logged.

An email is a row with its recipient, kind and subject. Its text is written on delivery, so that no row, message or log
contains the text or its links. Emails go only to confirmed addresses, which belong to an account or were given by a
person without an account, because an email to a stranger's address would reveal whom a study asks. Every email to an
address that a person gave has a link for deleting the address. No email mentions a level, or whether a person takes
part.

News about results goes to everyone who has decided, regardless of the decision, except people who have withdrawn, whose
records were erased, or who are recorded as having died. People who cannot be reached by email get letters.

Until an address given by a person without an account is confirmed, it gets only the confirmation email. The person can
delete it on every page and from every email. It is deleted automatically once the person has an account, someone else
answers, the person's records are erased, or it was not confirmed in time.

Reminders to renew a decision go to everyone who has answered a form that asks for renewal, regardless of the answer,
except people who withdrew.
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

#: Number of delivery attempts, with doubling delays; about 17 hours in all.
TRIES = 10
#: After this time, another worker takes over an email from a worker that died.
_LEASE = timedelta(minutes=10)
_AT_ONCE = 500
#: Kind of email for each kind of news.
MAILS = {News.Kind.RESULT: "result_published", News.Kind.YEAR: "results_of_year"}


def confirmed_address(user_id: int) -> str:
    """Return the confirmed address for an account's emails; empty if there is none."""
    confirmed = EmailAddress.objects.filter(user_id=user_id, verified=True).order_by("-primary", "pk")
    return confirmed.values_list("email", flat=True).first() or ""


def _confirmed(mail: Mail) -> str:
    if mail.address is not None:
        return mail.address.email if mail.address.confirmed_at else ""
    assert mail.user is not None, "a database constraint ensures it"
    return confirmed_address(mail.user.pk) if mail.user.is_active else ""


@dataclass(frozen=True)
class MailKind:
    """Kind of email; its text is the component ``mail_<name>``, with the subject in the first line.

    Attributes:
        label: name in the record of emails.
        context: function that returns the template's context, except study and links; None if the email is obsolete.
        address: function that returns the recipient's address; empty if the email cannot be sent.
        language: function that returns the language of the page that requested the email; empty for the account's
            language.
        wish: name of the preference in :class:`consent.models.MailWishes` for getting this email.
    """

    name: str
    label: str | Promise
    context: Callable[[Mail], dict[str, Any] | None] = lambda mail: {}
    address: Callable[[Mail], str] = _confirmed
    language: Callable[[Mail], str] = lambda mail: ""
    wish: str = ""


KINDS: dict[str, MailKind] = {}


def kinds_register(*kinds: MailKind) -> None:
    """Register kinds of email. Called once, at start-up."""
    KINDS.update({kind.name: kind for kind in kinds})


def mails_send(kind: str, users: Iterable[int], *, study: Study | None = None, about: object = "") -> None:
    """Queue an email for each of ``users`` (ids) who wants it; it is delivered after the transaction has committed."""
    assert kind in KINDS, kind
    users = list(users)
    if users and (wish := KINDS[kind].wish):
        unwanted = set(MailWishes.objects.filter(**{wish: False}).values_list("user_id", flat=True))
        users = [user for user in users if user not in unwanted]
    mails = (Mail(user_id=user, kind=kind, study=study, about=str(about)) for user in users)
    if Mail.objects.bulk_create(mails, batch_size=2000):
        send("consent.tasks.mails_deliver")


def holders_reached(holders: QuerySet[DataHolder]) -> tuple[QuerySet[DataHolder], QuerySet[HolderAddress]]:
    """Return the given holders who have an account, and the confirmed addresses of the others."""
    left = HolderAddress.objects.filter(
        holder__in=holders.order_by(), holder__user=None, way=HolderAddress.Way.MAIL, confirmed_at__isnull=False
    )
    return holders.filter(user__isnull=False), left


def mails_to_holders(kind: str, holders: QuerySet[DataHolder], study: Study, *, about: object = "") -> None:
    """Queue an email for each of the given holders of a study: to their account, or to the address that they gave."""
    accounts, left = holders_reached(holders)
    users = accounts.order_by("pk").values_list("user_id", flat=True).iterator(chunk_size=2000)
    mails_send(kind, (user for user in users if user is not None), study=study, about=about)
    mails = (Mail(address=address, kind=kind, study=study, about=str(about)) for address in left.order_by("pk"))
    if Mail.objects.bulk_create(mails, batch_size=2000):
        send("consent.tasks.mails_deliver")


def holder_mail(kind: str, holder: DataHolder, *, about: object = "") -> None:
    """Queue an email for one holder; see :func:`mails_to_holders`."""
    mails_to_holders(kind, DataHolder.objects.filter(pk=holder.pk), holder.study, about=about)


def mail_holders(mail: Mail) -> QuerySet[DataHolder]:
    """Return the holders in an email's study for whom its reader decides."""
    if mail.address is not None:
        return DataHolder.objects.filter(pk=mail.address.holder_id)
    if mail.study_id is None or mail.user_id is None:
        return DataHolder.objects.none()
    return DataHolder.objects.filter(study_id=mail.study_id, user_id=mail.user_id)


def holders_mail(kind: str, study: Study, *, about: object = "", wishing: bool = False) -> None:
    """Queue an email to everyone whom a study asks and who can be reached by email, regardless of their decision.

    Args:
        about: key of the row that the email is about.
        wishing: whether to include only people who want to hear about uses.
    """
    holders = DataHolder.objects.filter(study=study)
    if wishing:
        holders = holders.filter(user__mail_wishes__uses=True)
    mails_to_holders(kind, holders, study, about=about)


def mail_wishes(user: AbstractBaseUser) -> MailWishes:
    """Return an account's email preferences; if none are saved, they have the active language."""
    return MailWishes.objects.filter(user_id=user.pk).first() or MailWishes(
        user_id=user.pk, language=translation.get_language() or settings.LANGUAGE_CODE
    )


def language_note(user: AbstractBaseUser) -> None:
    """Store the active language for emails to an account that has no preferences yet."""
    wishes = mail_wishes(user)
    if wishes.pk is None:
        wishes.save()


def mail_render(mail: Mail) -> EmailMessage | None:
    """Return the email to deliver, in its reader's language; None if it has no address or is obsolete."""
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
    """Return the link for confirming and deleting an address that a holder gave. The link is not stored."""
    return settings.SITE_URL.rstrip("/") + reverse("address", args=[_signer().sign(address.key)])


def address_by_link(token: str) -> HolderAddress | None:
    """Return the address of a link; None if the link is invalid or the address was deleted."""
    try:
        key = _signer().unsign(token)
    except BadSignature:
        return None
    return HolderAddress.objects.filter(key=key, way=HolderAddress.Way.MAIL).select_related("holder__study").first()


def _signer() -> Signer:
    return Signer(salt="consent.services.mail.address")


def _voice(mail: Mail) -> AbstractContextManager[None]:
    """Use the third person for an email whose reader decides for exactly one other person in the study."""
    holders = list(mail_holders(mail)[:2]) if mail.study_id else []
    if len(holders) == 1 and answering_for(holders[0]).represents:
        return in_third_person(holders[0].known_as)
    return nullcontext()


def mails_deliver() -> None:
    """Deliver the emails that are due; failed deliveries are retried later."""
    due = Mail.objects.filter(state=Mail.State.WAITING, due_at__lte=timezone.now()).order_by("due_at")
    for pk in list(due.values_list("pk", flat=True)[:_AT_ONCE]):
        _deliver(pk)
    if due.exists():
        send("consent.tasks.mails_deliver")


def _deliver(pk: int) -> None:
    now = timezone.now()
    mine = Mail.objects.filter(pk=pk, state=Mail.State.WAITING)
    if not mine.filter(due_at__lte=now).update(due_at=now + _LEASE, tries=F("tries") + 1):
        return  # another worker is delivering it
    mail = Mail.objects.select_related("study", "user", "address").get(pk=pk)
    try:
        message = mail_render(mail)
        if message is None:
            mine.update(state=Mail.State.DROPPED)
            return
        message.send()
    except Exception as error:  # a problem with one email must not delay the others
        fault = type(error).__name__
        # Only log the class, because an error's message can contain the address and the text.
        logger.warning("Mail %s (%s) was not delivered (attempt %s): %s.", pk, mail.kind, mail.tries, fault)
        if mail.tries >= TRIES:
            mine.update(state=Mail.State.FAILED, fault=fault)
        else:
            mine.update(
                due_at=timezone.now() + timedelta(seconds=pause_after(mail.tries, least=60, most=86_400)), fault=fault
            )
    else:
        mine.update(state=Mail.State.SENT, sent_at=timezone.now(), fault="")


def news_readers(studies: Collection[Study]) -> QuerySet[ConsentEvent]:
    """Return the last decisions of the people who get news."""
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    died = circumstances_last(*studies).filter(holder=OuterRef("holder"), kind=Circumstance.Kind.DIED)
    decided = ConsentEvent.objects.filter(study__in=studies, holder__erased_at=None)
    return decided.filter(~Q(kind=ConsentEvent.Kind.WITHDRAWN), ~Exists(later), ~Exists(died))


@transaction.atomic
def news_send(*, study: Study, kind: str, about: str = "") -> News | None:
    """Record news, and queue an email for everyone who wants it and can be reached by email.

    Args:
        kind: one of :class:`consent.models.News.Kind`.
        about: key of the result, if the news is about a result.

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


#: How long an address may wait for its confirmation.
WAITS = timedelta(days=7)
#: Largest number of confirmation emails per day for one holder, and to one address.
_IN_A_DAY = 5


def address_leave(*, holder: DataHolder, email: str) -> HolderAddress:
    """Store an address at which a holder without an account wants to get emails, and send it a confirmation email.

    A requested reminder to decide goes to this address and replaces an earlier reminder.

    Raises:
        ValidationError: the holder has an account, or too many such emails were sent in a day.
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
    """Record that a holder without an account wants letters, or no news, and delete any address that they gave.

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
    """Confirm an address for the person who reads its emails, unless it was deleted or confirmed before."""
    waiting = HolderAddress.objects.select_for_update().filter(pk=address.pk, confirmed_at=None)
    if waiting.exists():
        with changes_recorded([address], acting_user=None):
            address.confirmed_at = timezone.now()
            address.save(update_fields=["confirmed_at"])


@transaction.atomic
def addresses_forget(*, holders: Collection[int]) -> None:
    """Delete the addresses and preferences that holders of one study gave, with the emails to them, and log this."""
    rows = HolderAddress.objects.filter(holder__in=list(holders))
    with changes_recorded(rows, acting_user=None):
        rows.delete()


def addresses_sweep(*, study: Study | None = None) -> int:
    """Delete addresses not confirmed in time, and addresses of people whose records were erased, after notifying them.

    An address given after the erasure stays, because its holder takes part again or wants to hear about the study.

    Args:
        study: only the addresses of this study, whose lock the caller holds; all by default.

    Returns:
        The number of deleted addresses.
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
#: Kind of email requested by people who want to decide later.
LATER = "decide_later"


def reminders_send() -> int:
    """Queue one email for each decision that is due for renewal soon, if its holder can be reached by email.

    No email is queued if a new decision would not be valid for longer. In that case, a new form is needed, which has
    its own email.

    Returns:
        The number of emails.
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
    """Return whether a holder has an account, or gave an address that is confirmed."""
    return any(each.exists() for each in holders_reached(DataHolder.objects.filter(pk=holder.pk)))


@transaction.atomic
def reminder_ask(*, holder: DataHolder, days: int) -> datetime:
    """Schedule one email that reminds a holder to decide, replacing any earlier reminder. This is not a decision.

    The email goes to their account, or to the address that they gave. Nothing is sent if that address has not been
    confirmed by then, if they have already decided, or if the study is closed.

    Returns:
        The time at which it will be sent.
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
