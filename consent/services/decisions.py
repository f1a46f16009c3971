"""Decisions of holders: consent given, refused or withdrawn."""

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent import selectors
from consent.circumstances import answering_for, day_of, renew_by
from consent.locks import study_lock
from consent.models import Answerer, ConsentEvent, ConsentForm, DataHolder, EpsilonPolicy, Level
from consent.services.erasures import withdrawals_follow
from consent.services.mail import mails_send
from consent.services.studies import study_open_check


def _decide(
    *,
    holder: DataHolder,
    kind: str,
    answered_by: Answerer,
    acting_user: AbstractBaseUser | None,
    channel: str,
    level: str = "",
    form: ConsentForm | None = None,
    policy: EpsilonPolicy | None = None,
) -> ConsentEvent:
    """Append one consent event of whoever answers for the holder; the caller holds the study's lock."""
    now = timezone.now()
    event = ConsentEvent(
        study_id=holder.study_id,
        holder=holder,
        kind=kind,
        level=level,
        form=form,
        policy=policy,
        channel=channel,
        answered_by=answered_by,
        renew_by=renew_by(form, day_of(now)),
        recorded_by_id=acting_user.pk if acting_user else None,
        recorded_at=now,
    )
    ConsentEvent.append([event])
    if holder.user_id is not None:
        mails_send("receipt", [holder.user_id], study=event.study)
    return event


@transaction.atomic
def consent_give(
    *,
    holder: DataHolder,
    level: str,
    form: ConsentForm,
    acting_user: AbstractBaseUser | None,
    policy: EpsilonPolicy | None = None,
    channel: str = ConsentEvent.Channel.FORM,
) -> ConsentEvent:
    """Record that a holder takes part at ``level``: a first consent, a new one, or a change.

    Args:
        holder: the holder.
        level: one of :class:`consent.models.Level`.
        form: the version that they read.
        acting_user: who recorded it; None for the bearer of an invitation.
        policy: the policy whose odds they were shown; the one in force by default.
        channel: one of :class:`consent.models.ConsentEvent.Channel`.

    Returns:
        The new event, or the current one if it says the same, counts, and would count no longer if given again.

    Raises:
        ValidationError: an unknown level, an outdated form or policy, no policy in force, or nobody who can consent for
            the person.
    """
    if level not in Level.values:
        raise ValidationError(_("Choose one of the three levels, or that you do not take part."))
    study = study_lock(holder.study_id)
    study_open_check(study)
    if form != selectors.consent_form_in_force(study):
        raise ValidationError(_("The consent form has changed since you opened it. Please read the new one."))
    policy_in_force = selectors.policy_in_force(study)
    if policy_in_force is None:
        raise ValidationError(_("This study cannot take consents yet: its ethics committee has approved no policy."))
    if policy not in (None, policy_in_force):
        raise ValidationError(_("What the levels mean has changed since you opened the form. Please read it again."))
    answers = answering_for(holder)
    if not answers.consents:
        raise ValidationError(
            _(
                "It is on record that this person cannot decide, and nobody else is on record who answers for them. "
                "Write to the study. Withdrawing is possible at any time."
            )
        )
    now = timezone.now()
    renews = renew_by(form, day_of(now))
    if renews is not None and renews <= now:
        raise ValidationError(_("Consents to this form counted until a day that is over. Wait for a new form."))
    current = selectors.consent_current(holder)
    same = (level, form.pk, policy_in_force.pk, renews)
    is_same = current and (current.level, current.form_id, current.policy_id, current.renew_by) == same
    if current and is_same and selectors.lapse_of(current) is None:
        return current
    kind = ConsentEvent.Kind.CHANGED if current and current.grants else ConsentEvent.Kind.GIVEN
    return _decide(
        holder=holder,
        kind=kind,
        answered_by=answers.role,
        acting_user=acting_user,
        channel=channel,
        level=level,
        form=form,
        policy=policy_in_force,
    )


@transaction.atomic
def consent_refuse(
    *,
    holder: DataHolder,
    acting_user: AbstractBaseUser | None,
    form: ConsentForm | None = None,
    channel: str = ConsentEvent.Channel.FORM,
    erase: bool = False,
) -> ConsentEvent:
    """Record that a holder does not take part; a standing consent is withdrawn.

    Args:
        holder: the holder.
        acting_user: who recorded it; None for the bearer of an invitation.
        form: the version that they read.
        channel: one of :class:`consent.models.ConsentEvent.Channel`.
        erase: of a standing consent that is withdrawn, whether their stored records are to be erased.

    Returns:
        The new event, or the current one if they refused the same form before.
    """
    study = study_lock(holder.study_id)
    current = selectors.consent_current(holder)
    answered_by = answering_for(holder).role
    same = (form.pk if form else None, answered_by)
    if current and not current.grants and (current.form_id, current.answered_by) == same:
        return current
    withdraws = current is not None and current.grants
    kind = ConsentEvent.Kind.WITHDRAWN if withdraws else ConsentEvent.Kind.REFUSED
    event = _decide(
        holder=holder, kind=kind, answered_by=answered_by, acting_user=acting_user, channel=channel, form=form
    )
    if withdraws:
        withdrawals_follow(study, [holder.pk], erase=erase, acting_user=acting_user)
    return event


@transaction.atomic
def consent_withdraw(
    *,
    holder: DataHolder,
    acting_user: AbstractBaseUser | None,
    channel: str = ConsentEvent.Channel.FORM,
    erase: bool = False,
) -> ConsentEvent:
    """Withdraw a holder's consent, effective at once.

    Args:
        holder: the holder.
        acting_user: who recorded it; None for the bearer of an invitation.
        channel: one of :class:`consent.models.ConsentEvent.Channel`.
        erase: whether their stored records are to be erased; where the study promises that, they are anyway.

    Raises:
        ValidationError: the holder has no consent in force.
    """
    study = study_lock(holder.study_id)
    current = selectors.consent_current(holder)
    if current is None or not current.grants:
        raise ValidationError(_("There is no consent to withdraw."))
    event = _decide(
        holder=holder,
        kind=ConsentEvent.Kind.WITHDRAWN,
        answered_by=answering_for(holder).role,
        acting_user=acting_user,
        channel=channel,
    )
    withdrawals_follow(study, [holder.pk], erase=erase, acting_user=acting_user)
    return event
