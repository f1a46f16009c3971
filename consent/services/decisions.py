"""Decisions of holders: consent given, refused or withdrawn; their drafts, and answers to the check questions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from common.models import locked
from consent import selectors
from consent.models import (
    AUTHORITIES,
    AnswerDraft,
    Answerer,
    CheckAnswers,
    ConsentEvent,
    ConsentForm,
    DataHolder,
    EpsilonPolicy,
    Level,
    Study,
    study_lock,
)
from consent.people.circumstances import answering_for, day_of, renew_by
from consent.services.erasures import withdrawn_records_erase
from consent.services.mail import holder_mail
from consent.services.studies import study_open_check
from consent.wording.third_person import gettext as _
from consent.wording.third_person import gettext_lazy

_PROMISE_CHANGED = gettext_lazy("The promise made to you has changed since you opened the form. Please read it again.")


@dataclass(frozen=True)
class Declaration:
    """Declaration by a person who decides for another: their authority (`Authority`) and the wording."""

    authority: str
    statement: str


def declaration_statement() -> str:
    """Return the statement that people who decide for another person must make, in the active language.

    The statement contains no name, because it is kept longer than the person's records.
    """
    return _(
        "I may decide about this person's records. I decide as the person would want it, as far as I know, and I "
        "have spoken with them about it, as far as that is possible."
    )


@dataclass(frozen=True)
class Decision:
    """Data of a decision, without its holder and time.

    Attributes:
        acting_user: the user who recorded it; None for the bearer of an invitation.
        channel: one of :class:`consent.models.ConsentEvent.Channel`.
        form: the version that they read, if any.
        declared: declaration of authority by a person who decides for the holder.
        text_read: code of the text of the form that they read; empty if unknown.
        talked: whether they stated that they had talked to someone about the decision.
        level: for a consent, one of :class:`consent.models.Level`.
        policy: for a consent, the policy that defines the level.
        epsilon_before: for a consent to weaker protection, ε of the promise that they gave up.
    """

    acting_user: AbstractBaseUser | None
    channel: str
    form: ConsentForm | None = None
    declared: Declaration | None = None
    text_read: str = ""
    talked: bool = False
    level: str = ""
    policy: EpsilonPolicy | None = None
    epsilon_before: float | None = None


@transaction.atomic
def consent_give(
    *,
    holder: DataHolder,
    level: str,
    form: ConsentForm,
    acting_user: AbstractBaseUser | None,
    policy: EpsilonPolicy | None = None,
    channel: str = ConsentEvent.Channel.FORM,
    accepts_weaker_than: float | None = None,
    declared: Declaration | None = None,
    text_read: str = "",
    talked: bool = False,
) -> ConsentEvent:
    """Record that a holder takes part at ``level``: a first consent, a new one, or a change.

    Other arguments are fields of :class:`Decision`.

    Args:
        policy: the policy whose odds they were shown; by default the policy in force.
        accepts_weaker_than: ε of the promise that they separately agreed to give up for a weaker one; None without such
            an agreement.

    Returns:
        The new event, or the current event if it is the same decision, is still valid, and would not be valid for
        longer if given now.

    Raises:
        ValidationError: the level is unknown, the form or policy is outdated, no policy is in force, no one can consent
            for the person, the person who answers cannot have the declared right, or the promise is weaker without
            agreement.
    """
    if level not in Level.values:
        raise ValidationError(_("Choose one of the three levels, or choose not to take part."))
    study = study_lock(holder.study_id)
    locked(holder)
    policy_in_force = _policy_for(study, form, policy)
    current = selectors.consent_current(holder)
    last = selectors.promise_last(holder) if current else None
    if accepts_weaker_than is not None and (last is None or last.epsilon != accepts_weaker_than):
        raise ValidationError(_PROMISE_CHANGED)
    weakens = last is not None and policy_in_force.epsilon(level) > last.epsilon
    if weakens and accepts_weaker_than is None:
        raise ValidationError(
            _("This protection is weaker than you were promised. It applies only if you agree to it separately."),
            code="weaker",
        )
    return _take_part(
        holder,
        current,
        Decision(
            acting_user=acting_user,
            channel=channel,
            form=form,
            declared=declared,
            text_read=text_read,
            talked=talked,
            level=level,
            policy=policy_in_force,
            epsilon_before=accepts_weaker_than if weakens else None,
        ),
    )


@transaction.atomic
def consent_keep(
    *,
    holder: DataHolder,
    epsilon: float,
    form: ConsentForm,
    acting_user: AbstractBaseUser | None,
    policy: EpsilonPolicy | None = None,
    channel: str = ConsentEvent.Channel.FORM,
    declared: Declaration | None = None,
    text_read: str = "",
    talked: bool = False,
) -> ConsentEvent:
    """Record that a holder takes part with the promise of their last consent, although its level has become weaker.

    The decision refers to the policy whose ε applies to that promise, so privacy groups, head counts, caps and plans
    already include the promise. ``epsilon`` is that of the promise that they were shown; everything else is as in
    :func:`consent_give`.
    """
    study = study_lock(holder.study_id)
    locked(holder)
    _policy_for(study, form, policy)
    last = selectors.promise_last(holder)
    if last is None or last.epsilon != epsilon:
        raise ValidationError(_PROMISE_CHANGED)
    return _take_part(
        holder,
        selectors.consent_current(holder),
        Decision(
            acting_user=acting_user,
            channel=channel,
            form=form,
            declared=declared,
            text_read=text_read,
            talked=talked,
            level=last.level,
            policy=last.policy,
        ),
    )


@transaction.atomic
def consent_refuse(
    *,
    holder: DataHolder,
    acting_user: AbstractBaseUser | None,
    form: ConsentForm | None = None,
    channel: str = ConsentEvent.Channel.FORM,
    keep: bool = False,
    text_read: str = "",
    talked: bool = False,
) -> ConsentEvent:
    """Record that a holder does not take part. A consent in force is withdrawn (see :func:`consent_withdraw`).

    Other arguments are fields of :class:`Decision`.

    Args:
        keep: when withdrawing a consent, whether they asked that their records be kept; if not, or if the study does
            not offer this, the records are erased.

    Returns:
        The new event, or the current event if they refused the same form before.
    """
    study = study_lock(holder.study_id)
    locked(holder)
    current = selectors.consent_current(holder)
    withdraws, answers = current is not None and current.grants, answering_for(holder).role
    same = (form.pk if form else None, answers)
    if current and not withdraws and (current.form_id, current.answered_by) == same:
        return current
    check_answers_forget([holder.pk])
    decision = Decision(acting_user=acting_user, channel=channel, form=form, text_read=text_read, talked=talked)
    event = _append(holder, ConsentEvent.Kind.WITHDRAWN if withdraws else ConsentEvent.Kind.REFUSED, answers, decision)
    if withdraws:
        withdrawn_records_erase(study, [holder.pk], keep=keep, acting_user=acting_user)
    return event


@transaction.atomic
def consent_withdraw(
    *,
    holder: DataHolder,
    acting_user: AbstractBaseUser | None,
    channel: str = ConsentEvent.Channel.FORM,
    keep: bool = False,
) -> ConsentEvent:
    """Withdraw a holder's consent, effective at once; arguments as in :func:`consent_refuse`.

    From then on :func:`consent.selectors.consent_snapshot` leaves the holder out: no batch asks them
    (``training.engine.questions.participants``), and before a vote opens, their teachers are retrained without them
    (``training.methods.pate_teachers.withdrawn_since_snapshot``). Their records are erased soon
    (``training.services.erasures.records_erase``). Earlier releases remain.

    Raises:
        ValidationError: the holder has no consent in force.
    """
    study_lock(holder.study_id)
    current = selectors.consent_current(holder)
    if current is None or not current.grants:
        raise ValidationError(_("There is no consent to withdraw."))
    return consent_refuse(holder=holder, acting_user=acting_user, channel=channel, keep=keep)


def _policy_for(study: Study, form: ConsentForm, policy: EpsilonPolicy | None) -> EpsilonPolicy:
    """Return the policy in force. Raises ValidationError if the form or a given ``policy`` is not in force."""
    study_open_check(study)
    if form != selectors.consent_form_in_force(study):
        raise ValidationError(_("The consent form has changed since you opened it. Please read the new version."))
    policy_in_force = selectors.policy_in_force(study)
    if policy_in_force is None:
        raise ValidationError(
            _("This study cannot accept consents yet, because its ethics committee has not approved a policy.")
        )
    if policy not in (None, policy_in_force):
        raise ValidationError(_("The levels have changed since you opened the form. Please read it again."))
    return policy_in_force


def _take_part(holder: DataHolder, current: ConsentEvent | None, decision: Decision) -> ConsentEvent:
    """Append a consent, or return the ``current`` event if it is the same and still valid."""
    assert decision.form is not None and decision.policy is not None
    answers = answering_for(holder)
    if not answers.consents:
        raise ValidationError(
            _(
                "We have recorded that this person cannot decide, but not who answers for them. Write to the study. "
                "You can withdraw at any time."
            )
        )
    declared = decision.declared
    if declared is not None and declared.authority not in AUTHORITIES.get(answers.role, ()):
        raise ValidationError(
            _("The person who answers for these records has changed since you opened the page. Open it again.")
        )
    now = timezone.now()
    renews = renew_by(decision.form, day_of(now))
    if renews is not None and renews <= now:
        raise ValidationError(_("Consent to this form is no longer valid. Wait for a new form."))
    same = (decision.level, decision.form.pk, decision.policy.pk, renews)
    is_same = current and (current.level, current.form_id, current.policy_id, current.renew_by) == same
    is_same = is_same and current and (declared is None or current.authority == declared.authority)
    if current and is_same and selectors.lapse_of(current) is None:
        return current
    kind = ConsentEvent.Kind.CHANGED if current and current.grants else ConsentEvent.Kind.GIVEN
    return _append(holder, kind, answers.role, decision)


def _append(holder: DataHolder, kind: str, answered_by: Answerer, decision: Decision) -> ConsentEvent:
    """Append the event of a decision to the study's chain; the caller holds the study's lock."""
    now = timezone.now()
    acting_user, declared = decision.acting_user, decision.declared
    event = ConsentEvent(
        study_id=holder.study_id,
        holder=holder,
        kind=kind,
        level=decision.level,
        form=decision.form,
        policy=decision.policy,
        channel=decision.channel,
        answered_by=answered_by,
        renew_by=renew_by(decision.form, day_of(now)),
        epsilon_before=decision.epsilon_before,
        authority=declared.authority if declared else "",
        statement=declared.statement if declared else "",
        text_read=decision.text_read,
        talked=decision.talked,
        recorded_by_id=acting_user.pk if acting_user else None,
        recorded_at=now,
    )
    ConsentEvent.append([event])
    holder_mail("receipt", holder)
    return event


# --- Unconfirmed answers and checks -----------------------------------------------------------------------------------


#: How long an answer is kept.
LASTS = timedelta(days=30)


def answer_draft_keep(*, holder: DataHolder, answer: Mapping[str, Any]) -> None:
    """Store the answer that a holder ticked, replacing an earlier one."""
    AnswerDraft.objects.update_or_create(holder=holder, defaults={"answer": dict(answer), "kept_at": timezone.now()})


def answer_draft_of(holder: DataHolder) -> dict[str, Any] | None:
    """Return the choice that a holder ticked but has not confirmed, or None."""
    draft = AnswerDraft.objects.filter(holder=holder).exclude(pk__in=_expired_drafts().values("pk")).first()
    return draft.answer if draft is not None else None


def answer_drafts_forget(holders: Collection[int]) -> None:
    """Delete the stored answers of the given holders."""
    AnswerDraft.objects.filter(holder__in=holders).delete()


def answer_drafts_sweep() -> None:
    """Delete answers that are too old, and those of people who have since decided otherwise, for example on paper."""
    _expired_drafts().delete()


def _expired_drafts() -> QuerySet[AnswerDraft]:
    decided = ConsentEvent.objects.filter(holder=OuterRef("holder"), recorded_at__gt=OuterRef("kept_at"))
    return AnswerDraft.objects.filter(Q(kept_at__lte=timezone.now() - LASTS) | Exists(decided))


@transaction.atomic
def check_answer_keep(*, holder: DataHolder, form: ConsentForm, place: int, right: bool) -> None:
    """Store whether a holder's first answer to a question was right. Later answers and counted people are ignored.

    This does not take the study's lock, because it decides nothing and many people answer at the same time.

    Args:
        place: the question's position in :data:`consent.promises.questions.KEYS`.
    """
    CheckAnswers.objects.get_or_create(holder=holder, form=form)
    row = CheckAnswers.objects.select_for_update().filter(holder=holder, form=form).first()
    bit = 1 << place
    if row is None or row.counted or row.answered & bit:
        return
    row.answered |= bit
    row.right |= bit if right else 0
    row.save(update_fields=["answered", "right"])


def check_answers_forget(holders: Collection[int]) -> None:
    """Delete the answers of holders who do not take part; the caller has opened a transaction."""
    CheckAnswers.objects.filter(holder__in=holders).delete()


def check_answers_supersede(form: ConsentForm) -> None:
    """Delete answers to earlier versions of the form; the caller has opened a transaction."""
    CheckAnswers.objects.filter(form__study=form.study_id).exclude(form=form).delete()


def check_answers_clear(form: ConsentForm) -> None:
    """Clear all answers to ``form`` after they were counted, including those of people who do not take part."""
    CheckAnswers.objects.filter(form=form, counted=False).update(answered=0, right=0, counted=True)
