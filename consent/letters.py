"""Letters on paper to holders whom no mail reaches: what is due, and the letters with a new code each.

They go to those who have decided, whatever they decided: a list of letters tells nobody's choice. No letter tells of a
closed study or a new ε policy, as mails do; the page behind the link does. All but receipts carry a new link, which
replaces the earlier one; who has an account whose address is confirmed gets the mail instead. Printing is on record
(:class:`consent.models.Letter`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allauth.account.models import EmailAddress
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from consent.access import holder_level_access
from consent.circumstances import circumstances_last
from consent.invitations import IssuedInvitation, invitations_create
from consent.models import Circumstance, ConsentEvent, DataHolder, Invitation, Letter, Renewal, Study
from consent.receipts import receipt_copy_facts
from consent.services import study_lock
from consent.standing import REMINDED

#: So many letters are printed at once; more make a page that browsers print badly.
AT_ONCE = 500


@dataclass(frozen=True)
class Due:
    """Letter that is due: to whom, and the key of the row that it is about."""

    holder: DataHolder
    about: str


@dataclass(frozen=True)
class Printed:
    """Letter to print: with a new invitation, or the facts of a receipt."""

    kind: str
    holder: DataHolder
    issued: IssuedInvitation | None = None
    facts: Sequence[tuple[str, str]] = ()


def _unreached(study: Study) -> QuerySet[ConsentEvent]:
    """Last decisions of the holders whom no mail reaches."""
    confirmed = EmailAddress.objects.filter(user=OuterRef("holder__user"), verified=True, user__is_active=True)
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    last = ConsentEvent.objects.filter(study=study).filter(~Exists(later)).filter(~Exists(confirmed))
    return last.select_related("holder", "form").order_by("sequence")


def _new_form(study: Study) -> list[Due]:
    """Those who decided before the newest version that asks again was published."""
    asking = study.consent_forms.exclude(renewal=Renewal.NOT_ASKED).order_by("-version").first()
    if asking is None:
        return []
    decided = _unreached(study).filter(Q(form=None) | Q(form__version__lt=asking.version))
    return [Due(event.holder, str(asking.pk)) for event in decided.filter(recorded_at__lt=asking.published_at)]


def _renewal(study: Study) -> list[Due]:
    """Those whose decision is to be renewed soon, or was to be."""
    soon = _unreached(study).filter(renew_by__lte=timezone.now() + REMINDED)
    return [Due(event.holder, str(event.pk)) for event in soon]


def _answerer(study: Study) -> list[Due]:
    """Those for whom somebody else answers now, who has neither a link nor an account yet."""
    links = Invitation.objects.filter(holder=OuterRef("holder"), revoked_at=None)
    kinds = (Circumstance.Kind.PERSON, Circumstance.Kind.GUARDIAN, Circumstance.Kind.PROXY)
    waiting = circumstances_last(study).filter(~Exists(links), kind__in=kinds, holder__user=None)
    return [Due(circumstance.holder, str(circumstance.pk)) for circumstance in waiting.order_by("sequence")]


def _receipt(study: Study) -> list[Due]:
    """Those whose last decision was made on paper."""
    on_paper = _unreached(study).filter(channel=ConsentEvent.Channel.PAPER)
    return [Due(event.holder, str(event.pk)) for event in on_paper]


_DUE: dict[str, Callable[[Study], list[Due]]] = {
    Letter.Kind.NEW_FORM: _new_form,
    Letter.Kind.RENEWAL: _renewal,
    Letter.Kind.ANSWERER: _answerer,
    Letter.Kind.RECEIPT: _receipt,
}


def letters_due(study: Study, kind: str, *, again: bool = False) -> list[Due]:
    """Letters of one kind that are due, oldest cause first: those that were never printed, or all with ``again``.

    None where the study is closed, and none to whoever had their records erased: nobody knows who that is.
    """
    if study.is_closed:
        return []
    died = set(circumstances_last(study).filter(kind=Circumstance.Kind.DIED).values_list("holder_id", flat=True))
    due = [each for each in _DUE[kind](study) if each.holder.pk not in died and each.holder.erased_at is None]
    if again:
        return due
    printed = set(Letter.objects.filter(study=study, kind=kind).values_list("holder_id", "about"))
    return [each for each in due if (each.holder.pk, each.about) not in printed]


@transaction.atomic
def letters_print(*, study: Study, kind: str, acting_user: AbstractBaseUser, again: bool = False) -> list[Printed]:
    """Make the letters of one kind that are due, at most ``AT_ONCE``, on record.

    A new link replaces the earlier one. Receipts tell levels: each is a look at a choice, on record like any other.

    Args:
        study: the study.
        kind: one of :class:`consent.models.Letter.Kind`.
        acting_user: who prints them.
        again: also those that were printed before.
    """
    study_lock(study.pk)
    due = letters_due(study, kind, again=again)[:AT_ONCE]
    letters: list[Printed] = []
    if kind == Letter.Kind.RECEIPT:
        for each in due:
            reason = _("A receipt on paper was printed.")
            pseudonym = each.holder.pseudonym
            event = holder_level_access(study=study, pseudonym=pseudonym, acting_user=acting_user, reason=reason)
            assert event is not None, "a receipt is of a decision"
            letters.append(Printed(kind, each.holder, facts=receipt_copy_facts(event)))
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
