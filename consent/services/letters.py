"""Paper letters to holders who cannot be reached by email: letters that are due, their new codes, and the letterhead.

Letters go to everyone who has decided, regardless of the decision, so that a list of letters does not reveal any
choice. Unlike emails, letters do not announce the closing of a study or a new ε policy; the linked page does. People
who have withdrawn do not get news about results. All letters except receipts contain a new link, which replaces the
earlier one. People with a confirmed email address (an account's, or one that they gave) get an email instead. Printing
is recorded (:class:`consent.models.Letter`).
"""

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any

from allauth.account.models import EmailAddress
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.db.models import (
    Case,
    CharField,
    Count,
    DateTimeField,
    Exists,
    ExpressionWrapper,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from common.reading import UnreadableError, picture_redraw
from consent.models import (
    Circumstance,
    ConsentEvent,
    ConsentForm,
    DataHolder,
    HolderAddress,
    Invitation,
    Letter,
    Letterhead,
    News,
    Renewal,
    Study,
    study_lock,
)
from consent.people.circumstances import REMINDED, circumstances_last, ends_with_form
from consent.services.changes import changes_recorded
from consent.services.holders import holder_level_access
from consent.services.invitations import IssuedInvitation, invitations_create

#: Largest number of letters printed at once; browsers print longer pages badly.
AT_ONCE = 500
#: Maximum size of a logo: bytes as uploaded, bytes as stored, and pixels of its longer side.
MOST_BYTES, MOST_STORED, MOST_PIXELS = 500_000, 60_000, 1_600
#: Longer side of a stored logo in pixels; enough for 5 cm on paper.
_STORED_PIXELS = 600


@dataclass(frozen=True)
class Due:
    """Letter that is due, with its recipient and the key of its subject's row."""

    holder: DataHolder
    about: str


@dataclass(frozen=True)
class Printed:
    """Letter to print, with a new invitation or, for a receipt, the decision."""

    kind: str
    holder: DataHolder
    issued: IssuedInvitation | None = None
    event: ConsentEvent | None = None


@dataclass(frozen=True)
class LettersWaiting:
    """Letters that are due in one study and were never printed: their ``number``, and when the first one became due."""

    study_id: int
    number: int
    since: datetime


class ContactWay(models.TextChoices):
    """Ways of informing people about decisions and news."""

    ACCOUNT = "account", gettext_lazy("emails to the account")
    ADDRESS = "address", gettext_lazy("emails to an address they gave us")
    UNCONFIRMED = "unconfirmed", gettext_lazy("letters, until their email address is confirmed")
    WISH = "wish", gettext_lazy("letters, including receipts, at their request")
    NO_NEWS = "no_news", gettext_lazy("only letters that ask for a decision, at their request")
    LETTER = "letter", gettext_lazy("letters, because they gave no email address")


def people_by_way(study: Study, name: str = "") -> QuerySet[DataHolder]:
    """Return people whom a study asks and whose pseudonym contains ``name``; those whose letter came back come first.

    Their `ContactWay` is ``way``, and ``returned_at`` is when a letter came back. This depends only on accounts,
    preferences and returned letters, not on anyone's decision.
    """
    address = HolderAddress.objects.filter(holder=OuterRef("pk"))
    way = Case(
        When(Exists(_confirmed("user")), then=Value(ContactWay.ACCOUNT)),
        When(Exists(address.filter(confirmed_at__isnull=False)), then=Value(ContactWay.ADDRESS)),
        When(Q(user__isnull=False) | Exists(address.filter(way="mail")), then=Value(ContactWay.UNCONFIRMED)),
        When(Exists(address.filter(way="letter")), then=Value(ContactWay.WISH)),
        When(Exists(address.filter(way="nothing")), then=Value(ContactWay.NO_NEWS)),
        default=Value(ContactWay.LETTER),
    )
    people = DataHolder.objects.filter(study=study, erased_at=None, pseudonym__icontains=name)
    link = Invitation.objects.filter(holder=OuterRef("pk"), revoked_at=None)
    people = people.annotate(way=way, returned_at=Subquery(link.values("returned_at")))
    return people.order_by(F("returned_at").desc(nulls_last=True), "pseudonym")


def _confirmed(user: str) -> QuerySet[EmailAddress]:
    """Return the confirmed email addresses of the account in the field ``user`` of the outer query."""
    return EmailAddress.objects.filter(user=OuterRef(user), verified=True, user__is_active=True)


def _unreached(studies: Collection[Study]) -> QuerySet[ConsentEvent]:
    """Return the last decisions of living holders who cannot be reached by email and whose records were not erased."""
    died = circumstances_last(*studies).filter(holder=OuterRef("holder"), kind=Circumstance.Kind.DIED)
    left = HolderAddress.objects.filter(holder=OuterRef("holder"), confirmed_at__isnull=False)
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    return (
        ConsentEvent.objects.filter(study__in=studies, holder__erased_at=None)
        .filter(~Exists(later))
        .filter(~Exists(_confirmed("holder__user")), ~Exists(left), ~Exists(died))
    )


def _new_form(studies: Collection[Study], decisions: QuerySet[ConsentEvent]) -> QuerySet[ConsentEvent]:
    """Return decisions made before the publication of the newest version that requires a new answer."""
    asking: dict[int, ConsentForm] = {}
    current: dict[int, list[int]] = {}
    forms = ConsentForm.objects.filter(study__in=studies).only("study", "renewal", "published_at")
    for form in forms.order_by("version"):
        if form.renewal != Renewal.NOT_ASKED:
            asking[form.study_id], current[form.study_id] = form, []
        current.setdefault(form.study_id, []).append(form.pk)
    return _before(asking, decisions.exclude(form__in=chain.from_iterable(current.values())))


def _renewal(studies: Collection[Study], decisions: QuerySet[ConsentEvent]) -> QuerySet[ConsentEvent]:
    """Return decisions whose renewal is possible and due soon or overdue."""
    limited = Q(valid_months__isnull=False) | Q(valid_until__isnull=False)
    if not ConsentForm.objects.filter(limited, study__in=studies).exists():
        return ConsentEvent.objects.none()
    begins = ExpressionWrapper(F("renew_by") - REMINDED, DateTimeField())
    soon = decisions.filter(~ends_with_form(), renew_by__lte=timezone.now() + REMINDED)
    return _about_itself(soon, begins)


def _answerer(studies: Collection[Study], _decisions: QuerySet[ConsentEvent]) -> QuerySet[Circumstance]:
    """Return people whose new answerer has neither a link nor an account yet."""
    kinds = (Circumstance.Kind.PERSON, Circumstance.Kind.GUARDIAN, Circumstance.Kind.PROXY)
    if not Circumstance.objects.filter(study__in=studies, kind__in=kinds).exists():
        return Circumstance.objects.none()
    links = Invitation.objects.filter(holder=OuterRef("holder"), revoked_at=None)
    people = circumstances_last(*studies).filter(kind__in=kinds, holder__user=None, holder__erased_at=None)
    return _about_itself(people.filter(~Exists(links)), F("recorded_at"))


def _receipt(_studies: Collection[Study], decisions: QuerySet[ConsentEvent]) -> QuerySet[ConsentEvent]:
    """Return last decisions made on paper, or by people who want letters."""
    wished = Q(holder__in=HolderAddress.objects.filter(way=HolderAddress.Way.LETTER).values("holder"))
    written = Q(channel=ConsentEvent.Channel.PAPER)
    return _about_itself(decisions.filter(wished | written), F("recorded_at"))


def _news(studies: Collection[Study], decisions: QuerySet[ConsentEvent]) -> QuerySet[ConsentEvent]:
    """Return decisions made before the latest news about results, except by people who withdrew or declined news."""
    last = {news.study_id: news for news in News.objects.filter(study__in=studies).order_by("published_at", "pk")}
    refused = HolderAddress.objects.filter(holder=OuterRef("holder"), way=HolderAddress.Way.NOTHING)
    return _before(last, decisions.filter(~Q(kind=ConsentEvent.Kind.WITHDRAWN), ~Exists(refused)))


def _before(newest: Mapping[int, ConsentForm | News], events: QuerySet[ConsentEvent]) -> QuerySet[ConsentEvent]:
    """Return decisions made before ``newest``, by study. Dates are literals, as a subquery would run for each row."""
    if not newest:
        return events.none()
    published = [(Q(study=study), row) for study, row in newest.items()]
    return events.filter(reduce(or_, (of & Q(recorded_at__lt=row.published_at) for of, row in published))).annotate(
        about=Case(*(When(of, then=Value(str(row.pk))) for of, row in published), output_field=CharField()),
        due_at=Case(*(When(of, then=Value(row.published_at)) for of, row in published), output_field=DateTimeField()),
    )


def _about_itself(rows: QuerySet[Any], due_at: Combinable) -> QuerySet[Any]:
    return rows.annotate(about=Cast("pk", CharField()), due_at=due_at)


_DUE: dict[str, Callable[[Collection[Study], QuerySet[ConsentEvent]], QuerySet[Any]]] = {
    Letter.Kind.NEW_FORM: _new_form,
    Letter.Kind.RENEWAL: _renewal,
    Letter.Kind.ANSWERER: _answerer,
    Letter.Kind.RECEIPT: _receipt,
    Letter.Kind.NEWS: _news,
}


def _due(studies: Collection[Study], kinds: Iterable[str], *, again: bool = False) -> Iterator[QuerySet[Any]]:
    """Yield, for each kind of letter, the rows that a letter is due for.

    Each row has a holder, the key of the row that the letter is ``about``, and the time when it became due.
    """
    decisions = _unreached(studies)
    printed = Letter.objects.filter(study=OuterRef("study"), holder=OuterRef("holder"), about=OuterRef("about"))
    # A letter is created right after its link, so if the letter was returned, so was the link.
    links = Invitation.objects.filter(holder=OuterRef("holder"), created_at__lte=OuterRef("made_at"))
    returned = links.order_by("-created_at", "-pk").values("returned_at")[:1]
    printed = printed.alias(returned=Subquery(returned)).filter(returned=None)
    for kind in kinds:
        rows = _DUE[kind](studies, decisions)
        yield rows if again or rows.query.is_empty() else rows.filter(~Exists(printed.filter(kind=kind)))


def letters_due(study: Study, kind: str, *, again: bool = False) -> list[Due]:
    """Return due letters of one kind that were never printed (with ``again``, all of them), oldest first.

    No letters are due if the study is closed. None are due to people whose records were erased, because their names are
    unknown.
    """
    if study.is_closed:
        return []
    (rows,) = _due([study], [kind], again=again)
    return [Due(row.holder, row.about) for row in rows.select_related("holder").order_by("sequence")]


def letters_waiting(studies: Collection[Study]) -> list[LettersWaiting]:
    """Return the letters of every kind that are due in each of the given studies, omitting studies without any."""
    waiting: dict[int, LettersWaiting] = {}
    open_ones = [study for study in studies if not study.is_closed]
    for due in _due(open_ones, Letter.Kind if open_ones else ()):
        if due.query.is_empty():
            continue
        counted = due.order_by().values("study").annotate(number=Count("pk"), since=Min("due_at"))
        for study_id, number, since in counted.values_list("study", "number", "since"):
            earlier = waiting.get(study_id, LettersWaiting(study_id, 0, since))
            waiting[study_id] = LettersWaiting(study_id, earlier.number + number, min(earlier.since, since))
    return list(waiting.values())


@transaction.atomic
def letters_print(*, study: Study, kind: str, acting_user: AbstractBaseUser, again: bool = False) -> list[Printed]:
    """Create due letters of one kind, at most ``AT_ONCE``, and log them.

    A new link replaces the earlier one. Receipts show levels, so each one is logged as access to a choice.

    Args:
        kind: one of :class:`consent.models.Letter.Kind`.
        again: whether to include letters that were printed before.
    """
    study_lock(study.pk)
    due = letters_due(study, kind, again=again)[:AT_ONCE]
    letters: list[Printed] = []
    if kind == Letter.Kind.RECEIPT:
        for each in due:
            reason = _("A paper receipt was printed.")
            pseudonym = each.holder.pseudonym
            event = holder_level_access(study=study, pseudonym=pseudonym, acting_user=acting_user, reason=reason)
            assert event is not None, "a receipt belongs to a decision"
            letters.append(Printed(kind, each.holder, event=event))
    else:
        names = [each.holder.pseudonym for each in due]
        issued = invitations_create(study=study, acting_user=acting_user, pseudonyms=names, replace=True)
        links = {new.pseudonym: new for new in issued}
        letters = [Printed(kind, each.holder, links[each.holder.pseudonym]) for each in due]
    now = timezone.now()
    Letter.objects.bulk_create(
        Letter(study=study, holder=each.holder, kind=kind, about=each.about, made_by_id=acting_user.pk, made_at=now)
        for each in due
    )
    return letters


def letterhead_of(study: Study) -> Letterhead:
    """Return the letterhead of a study, or an empty, unsaved letterhead."""
    return Letterhead.objects.filter(study=study).first() or Letterhead(study=study)


def logo_read(content: bytes) -> str:
    """Return a logo for storage, in base64, redrawn from a PNG's pixels to remove all other content of the file.

    Raises:
        ValidationError: the file is not a PNG, or is too large.
    """
    wrong = ValidationError(
        _("The logo must be a PNG image of at most 500 kB, and at most 1,600 pixels wide and high.")
    )
    if len(content) > MOST_BYTES:
        raise wrong
    try:
        drawn = picture_redraw(content, most_pixels=MOST_PIXELS, pixels=_STORED_PIXELS)
    except UnreadableError:
        raise wrong from None
    if len(drawn) > MOST_STORED:
        raise ValidationError(
            _("The logo has too much detail. Use a drawing with few colours instead of a photograph.")
        )
    return base64.b64encode(drawn).decode()


@transaction.atomic
def letterhead_save(
    *, study: Study, texts: Mapping[str, Mapping[str, str]], logo: str, acting_user: AbstractBaseUser | None
) -> Letterhead:
    """Save the words and the logo of a study's letters, and record this.

    Args:
        texts: language → text → words; empty texts are left out.
        logo: result of :func:`logo_read`; empty for no logo.
        acting_user: the user who saves them; None at the command line.
    """
    study = study_lock(study.pk)
    head = letterhead_of(study)
    fields = {
        code: {name: words[name].strip() for name in Letterhead.TEXTS if words.get(name, "").strip()}
        for code, words in texts.items()
    }
    head.texts, head.logo = {code: words for code, words in fields.items() if words}, logo
    with changes_recorded([head], acting_user=acting_user):
        head.save()
    return head
