"""Ethics committee of a study: example of harm, quorum, conflicts of interest, approvals, remarks and deadlines.

If a deadline passes, the chair gets one email; nothing is decided by default.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent import selectors
from consent.languages import own_name
from consent.models import ConflictOfInterest, ConsentFormProposal, EpsilonPolicy, Mail, Remark, Role, Study, study_lock
from consent.models.studies import HARM_LENGTH
from consent.people.circumstances import day_of
from consent.permissions import SECOND_PERSON, accounts_are_linked, members_with_permission
from consent.selectors import forms_waiting, policies_waiting
from consent.services.mail import mails_send
from consent.services.studies import study_asks_check, study_update

#: Days that the ethics committee has by default, and the maximum that a proposal may give it.
ANSWER_DAYS, MOST_ANSWER_DAYS = 14, 365


def harm_stated_check(study: Study) -> None:
    """Refuse to open a study that has no example of harm for people to read. Raises ValidationError."""
    if not study.harm:
        raise ValidationError(
            _("The ethics committee has not written an example of harm yet. People read it when they choose a level.")
        )


@transaction.atomic
def harm_write(*, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str]) -> Study:
    """Write the study's example of harm. This is possible until people can decide.

    Args:
        texts: the example by language code, in each of the study's languages.

    Raises:
        ValidationError: a text is missing or too long, the study does not ask people, or they can already decide.
    """
    study = study_lock(study.pk)
    study_asks_check(study)
    first = settings.LANGUAGE_CODE
    missing = [code for code in study.languages if not texts.get(code, "").strip()]
    if missing:
        message = _("Write the example in every language of the study. Missing: %(names)s.")
        raise ValidationError(message % {"names": ", ".join(own_name(code) for code in missing)})
    if any(len(text.strip()) > HARM_LENGTH for text in texts.values()):
        message = _("Write at most %(longest)d characters, because people will read this on a phone.")
        raise ValidationError(message % {"longest": HARM_LENGTH})
    translations = {code: dict(facts) for code, facts in study.translations.items()}
    for code in (code for code in texts if code != first and texts[code].strip()):
        translations.setdefault(code, {})["harm"] = texts[code].strip()
    fields = {"harm": texts[first].strip(), "translations": translations}
    return study_update(study=study, acting_user=acting_user, **fields)


@transaction.atomic
def quorum_set(*, study: Study, acting_user: AbstractBaseUser, quorum: int) -> Study:
    """Set the number of people, besides the proposer, who have to approve a policy or a form.

    Raises:
        ValidationError: the number is not from 1 to 9, or a pending proposal requires a different number.
    """
    study = study_lock(study.pk)
    study_asks_check(study)
    if selectors.policies_waiting(study) or selectors.forms_waiting(study):
        raise ValidationError(
            _(
                "Another proposal is still pending under the current rule. Decide on it before you change how many "
                "approvals are required."
            )
        )
    return study_update(study=study, acting_user=acting_user, quorum=quorum)


@transaction.atomic
def conflict_declare(*, study: Study, acting_user: AbstractBaseUser, reason: str) -> ConflictOfInterest:
    """Declare a conflict of interest, after which ``acting_user`` can no longer approve anything in the study.

    Raises:
        ValidationError: the reason is missing, or the conflict is already declared.
    """
    study = study_lock(study.pk)
    if ConflictOfInterest.objects.filter(study=study, user_id=acting_user.pk).exists():
        raise ValidationError(_("You have already declared a conflict of interest in this study."))
    conflict = ConflictOfInterest(
        study=study, user_id=acting_user.pk, reason=reason.strip(), declared_at=timezone.now()
    )
    return ConflictOfInterest.append([conflict])[0]


def approvers_mail(kind: str, permission: str, *, study: Study, about: int, by: AbstractBaseUser) -> None:
    """Send an email to everyone who may approve a proposal, except its proposer ``by``."""
    approvers = members_with_permission(study, permission).exclude(pk=by.pk)
    mails_send(kind, approvers.values_list("pk", flat=True), study=study, about=about)


def approval_record(
    study: Study,
    proposal: EpsilonPolicy | ConsentFormProposal,
    acting_user: AbstractBaseUser,
    *,
    conditions: str,
    last: bool,
) -> Remark:
    """Append one person's approval. The caller holds the study's lock and has checked that this is a second person.

    Args:
        study: the study, as returned by the lock.
        proposal: the pending proposal.
        conditions: conditions of the approval; may be empty.
        last: whether this must be the last approval needed.

    Raises:
        ValidationError: the person has already approved it, possibly with another account that they control, or
            ``last`` is set but more people have to approve.
    """
    earlier = [remark.made_by_id for remark in selectors.approvals_of(proposal)]
    if acting_user.pk in earlier or any(accounts_are_linked(study, each, acting_user.pk) for each in earlier):
        message = _("You have already approved this, perhaps with another account. Another person must approve it.")
        raise ValidationError(message, code=SECOND_PERSON)
    if last and len(earlier) + 1 < study.quorum:
        raise ValidationError(
            _("%(given)d of %(quorum)d approvals so far. It takes effect after the last approval.")
            % {"given": len(earlier), "quorum": study.quorum}
        )
    about = {"policy": proposal} if isinstance(proposal, EpsilonPolicy) else {"form": proposal}
    remark = Remark(
        study_id=study.pk,
        kind=Remark.Kind.APPROVAL,
        text=conditions.strip(),
        made_by_id=acting_user.pk,
        made_at=timezone.now(),
        **about,
    )
    return Remark.append([remark])[0]


@transaction.atomic
def proposal_remark(
    *, proposal: EpsilonPolicy | ConsentFormProposal, acting_user: AbstractBaseUser, kind: str, text: str
) -> Remark:
    """Comment on a proposal or reject it, and record this.

    Args:
        proposal: an ε policy or a consent form that needs a second person.
        kind: one of :class:`consent.models.Remark.Kind`.
        text: the comment, or the reason.

    Raises:
        ValidationError: the text is missing, or the proposal is already decided.
    """
    if kind == Remark.Kind.APPROVAL or not text.strip():
        raise ValidationError(_("Write a comment, or your reason for rejecting the proposal."))
    study_lock(proposal.study_id)
    if not selectors.is_waiting(proposal):
        raise ValidationError(
            _("This proposal has already been decided. Make a new proposal if something needs to change.")
        )
    about = {"policy": proposal} if isinstance(proposal, EpsilonPolicy) else {"form": proposal}
    remark = Remark(
        study_id=proposal.study_id,
        kind=kind,
        text=text.strip(),
        made_by_id=acting_user.pk,
        made_at=timezone.now(),
        **about,
    )
    return Remark.append([remark])[0]


def not_rejected_check(**about: Any) -> None:
    """Refuse to approve a rejected proposal. Raises ValidationError."""
    if Remark.objects.filter(kind=Remark.Kind.REJECTION, **about).exists():
        raise ValidationError(_("This proposal was rejected. Make a new proposal that takes the reason into account."))


def answer_day(wish: date | None) -> date:
    """Return the deadline for an answer, by default in two weeks. Raises ValidationError if out of range."""
    today = day_of(timezone.now())
    day = wish or today + timedelta(days=ANSWER_DAYS)
    if not today <= day <= today + timedelta(days=MOST_ANSWER_DAYS):
        message = _("Enter today or a day within the next %(days)d days.")
        raise ValidationError(message % {"days": MOST_ANSWER_DAYS})
    return day


def overdue_mails_send() -> int:
    """Queue one email to each chair about each overdue proposal; return the number of emails."""
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
