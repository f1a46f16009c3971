"""Every write of the consent app: one transaction each, with who did it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent import selectors
from consent.languages import own_name
from consent.models import (
    ConsentEvent,
    ConsentForm,
    ConsentFormDraft,
    DataHolder,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Level,
    Membership,
    Renewal,
    Role,
    Study,
)
from ipate_web.append_only import chains_begin


def study_lock(study_id: int) -> Study:
    """Take a study's lock: consent events, approvals, charges of one study happen one after the other.

    Call it first in a transaction. On PostgreSQL it is the study's row lock; on SQLite the immediate transaction
    (see the settings) already holds the whole database.
    """
    return Study.objects.select_for_update().get(pk=study_id)


@transaction.atomic
def study_create(*, acting_user: AbstractBaseUser, **fields: Any) -> Study:
    """A new study; the acting user becomes its operator. Raises ValidationError."""
    study = Study(**fields)
    study.full_clean()
    study.save()
    chains_begin(study.pk)
    membership_add(study=study, user=acting_user, role="operator")
    return study


#: What holders were told when they decided, and what their budgets rest on: fixed from the first decision on.
FIXED_BY_CONSENT = (
    "purpose",
    "controller",
    "data_categories",
    "recipients",
    "retention",
    "lawful_basis",
    "jurisdiction",
    "delta",
)


@transaction.atomic
def study_update(*, study: Study, **fields: Any) -> Study:
    """Change the basics of a study. Raises ValidationError where holders have relied on what would change."""
    study = study_lock(study.pk)
    if ConsentEvent.objects.filter(study=study).exists():
        fixed = [name for name in FIXED_BY_CONSENT if name in fields and fields[name] != getattr(study, name)]
        if fixed:
            told = _("Holders have decided on these words and this δ; they cannot change. Begin a new study instead.")
            raise ValidationError(dict.fromkeys(fixed, told))
    for name, value in fields.items():
        setattr(study, name, value)
    study.full_clean()
    study.save()
    return study


def membership_add(*, study: Study, user: AbstractBaseUser, role: str) -> Membership:
    """Give ``user`` a role in ``study``; giving it again changes nothing."""
    membership = Membership.objects.filter(study=study, user_id=user.pk, role=role).first()
    if membership is None:
        membership = Membership(study=study, user_id=user.pk, role=role)
        membership.full_clean()
        membership.save()
    return membership


@transaction.atomic
def membership_remove(*, membership: Membership) -> None:
    """Take a role away. Raises ValidationError where the study would be left without an operator."""
    study_lock(membership.study_id)
    others = Membership.objects.filter(study_id=membership.study_id, role=Role.OPERATOR).exclude(pk=membership.pk)
    if membership.role == Role.OPERATOR and not others.exists():
        raise ValidationError(_("A study needs an operator. Give the role to somebody else first."))
    membership.delete()


def _texts_given(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts that say something, with the line ends of Unix."""
    stripped = {language: text.replace("\r\n", "\n").strip() for language, text in texts.items()}
    return {language: text for language, text in stripped.items() if text}


def texts_digest(texts: Mapping[str, str]) -> str:
    """SHA-256 of the canonical JSON of the texts of a form, in hexadecimal.

    >>> texts_digest({"en": "Hello"})[:8]
    'c7eafa31'
    """
    return hashlib.sha256(json.dumps(texts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@transaction.atomic
def consent_form_draft_save(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str]
) -> ConsentFormDraft:
    """Keep ``texts`` as the study's draft, in place of the one before. A draft may be unfinished."""
    study_lock(study.pk)
    draft, _created = ConsentFormDraft.objects.update_or_create(
        study=study,
        defaults={"texts": _texts_given(texts), "saved_by_id": acting_user.pk, "saved_at": timezone.now()},
    )
    return draft


@transaction.atomic
def consent_form_publish(
    *,
    study: Study,
    acting_user: AbstractBaseUser,
    texts: Mapping[str, str],
    renewal: str = Renewal.NOT_ASKED,
) -> ConsentForm:
    """Publish the next version of a study's consent form: Markdown by language code. It never changes afterwards.

    ``renewal`` is what it means for those who consented to an earlier version. Raises ValidationError without a text in
    the site's first language and each that the study promises, or where the version in force says the same.
    """
    texts = _texts_given(texts)
    if settings.LANGUAGE_CODE not in texts:
        raise ValidationError({"texts": _("The form needs a text in English.")})
    study = study_lock(study.pk)
    missing = ", ".join(own_name(code) for code in study.languages if code not in texts)
    if missing:
        raise ValidationError(
            {"texts": _("The study promises a text in %(languages)s, too. Write it first.") % {"languages": missing}}
        )
    latest = selectors.consent_form_in_force(study)
    digest = texts_digest(texts)
    if latest and latest.digest == digest:
        raise ValidationError({"texts": _("This is what the version in force says. Change it, then publish.")})
    form = ConsentForm(
        study=study,
        version=latest.version + 1 if latest else 1,
        texts=texts,
        digest=digest,
        renewal=renewal,
        published_by_id=acting_user.pk,
        published_at=timezone.now(),
    )
    ConsentForm.append([form])
    ConsentFormDraft.objects.filter(study=study).delete()
    return form


def epsilon_policy_check(*, high: float, average: float, low: float) -> None:
    """May these ε be proposed: 0 < high < average < low ≤ the installation's cap? Raises ValidationError."""
    if not 0 < high < average < low:
        raise ValidationError(
            _("The values must rise from high to low protection: 0 < ε(high) < ε(average) < ε(low). Reorder them.")
        )
    if low > settings.EPSILON_CAP:
        raise ValidationError(
            _("ε at low protection is %(value)g, above this installation's cap of %(cap)g. Choose a smaller value.")
            % {"value": low, "cap": settings.EPSILON_CAP}
        )


@transaction.atomic
def epsilon_policy_propose(
    *, study: Study, acting_user: AbstractBaseUser, high: float, average: float, low: float, reason: str
) -> EpsilonPolicy:
    """Propose ε values, see :func:`epsilon_policy_check`. Raises ValidationError."""
    epsilon_policy_check(high=high, average=average, low=low)
    study_lock(study.pk)
    latest = EpsilonPolicy.objects.filter(study=study).first()
    policy = EpsilonPolicy(
        study=study,
        version=latest.version + 1 if latest else 1,
        high=high,
        average=average,
        low=low,
        reason=reason.strip(),
        proposed_by_id=acting_user.pk,
    )
    return EpsilonPolicy.append([policy])[0]


@transaction.atomic
def epsilon_policy_approve(
    *, policy: EpsilonPolicy, acting_user: AbstractBaseUser, effective_from: datetime | None = None
) -> EpsilonPolicyApproval:
    """Put a policy in force, from now or a later moment. Another person than its proposer must do it."""
    study_lock(policy.study_id)
    if policy.proposed_by_id == acting_user.pk:
        raise ValidationError(_("A policy is approved by a second person, not by the one who proposed it."))
    if EpsilonPolicyApproval.objects.filter(policy=policy).exists():
        raise ValidationError(_("This policy is already approved."))
    newer = EpsilonPolicyApproval.objects.filter(policy__study_id=policy.study_id, policy__version__gt=policy.version)
    if newer.exists():
        raise ValidationError(_("A newer policy is already approved. Propose these values again as a new version."))
    now = timezone.now()
    approval = EpsilonPolicyApproval(
        policy=policy,
        proposed_by_id=policy.proposed_by_id,
        approved_by_id=acting_user.pk,
        approved_at=now,
        effective_from=max(effective_from or now, now),
    )
    return EpsilonPolicyApproval.append([approval])[0]


@transaction.atomic
def holders_register(*, study: Study, pseudonyms: Iterable[str]) -> dict[str, int]:
    """Make sure that every pseudonym has a holder. Returns pseudonym → holder id for all of them."""
    pseudonyms = list(dict.fromkeys(pseudonyms))
    new = (DataHolder(study_id=study.pk, pseudonym=pseudonym) for pseudonym in pseudonyms)
    DataHolder.objects.bulk_create(new, batch_size=2000, ignore_conflicts=True)
    ids: dict[str, int] = {}
    for start in range(0, len(pseudonyms), 2000):
        found = DataHolder.objects.filter(study=study, pseudonym__in=pseudonyms[start : start + 2000])
        ids.update(found.order_by().values_list("pseudonym", "pk"))
    return ids


@transaction.atomic
def holder_link(*, holder: DataHolder, user: AbstractBaseUser) -> DataHolder:
    """Let ``user`` decide for ``holder``."""
    holder.user_id = user.pk
    holder.full_clean()
    holder.save()
    return holder


def _decide(
    *,
    holder: DataHolder,
    kind: str,
    acting_user: AbstractBaseUser | None,
    channel: str,
    level: str = "",
    form: ConsentForm | None = None,
    policy: EpsilonPolicy | None = None,
) -> ConsentEvent:
    """Append one event; the study's lock is held."""
    event = ConsentEvent(
        study_id=holder.study_id,
        holder=holder,
        kind=kind,
        level=level,
        form=form,
        policy=policy,
        channel=channel,
        recorded_by_id=acting_user.pk if acting_user else None,
        recorded_at=timezone.now(),
    )
    return ConsentEvent.append([event])[0]


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
    """Record that the holder, having read ``form``, takes part at ``level``: a first consent, a new one, or a change.

    ``policy`` is the one whose odds they were shown; without it, the one in force. Giving what already stands changes
    nothing. Raises ValidationError when form or policy are no longer those in force, or when no ε policy is.
    """
    if level not in Level.values:
        raise ValidationError(_("Choose one of the three levels, or that you do not take part."))
    study = study_lock(holder.study_id)
    if form != selectors.consent_form_in_force(study):
        raise ValidationError(_("The consent form has changed since you opened it. Please read the new one."))
    policy_in_force = selectors.policy_in_force(study)
    if policy_in_force is None:
        raise ValidationError(_("This study cannot take consents yet: its ethics committee has approved no policy."))
    if policy not in (None, policy_in_force):
        raise ValidationError(_("What the levels mean has changed since you opened the form. Please read it again."))
    current = selectors.consent_current(holder)
    if current and (current.level, current.form_id, current.policy_id) == (level, form.pk, policy_in_force.pk):
        return current
    kind = ConsentEvent.Kind.CHANGED if current and current.grants else ConsentEvent.Kind.GIVEN
    return _decide(
        holder=holder,
        kind=kind,
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
) -> ConsentEvent:
    """Record that the holder does not take part. Where consent stood, this is its withdrawal.

    Refusing the same form again changes nothing.
    """
    study_lock(holder.study_id)
    current = selectors.consent_current(holder)
    if current and not current.grants and current.form_id == (form.pk if form else None):
        return current
    withdraws = current is not None and current.grants
    kind = ConsentEvent.Kind.WITHDRAWN if withdraws else ConsentEvent.Kind.REFUSED
    return _decide(holder=holder, kind=kind, acting_user=acting_user, channel=channel, form=form)


@transaction.atomic
def consent_withdraw(
    *, holder: DataHolder, acting_user: AbstractBaseUser | None, channel: str = ConsentEvent.Channel.FORM
) -> ConsentEvent:
    """Withdraw the holder's consent; it counts from this moment. Raises ValidationError where none stands."""
    study_lock(holder.study_id)
    current = selectors.consent_current(holder)
    if current is None or not current.grants:
        raise ValidationError(_("There is no consent to withdraw."))
    return _decide(holder=holder, kind=ConsentEvent.Kind.WITHDRAWN, acting_user=acting_user, channel=channel)
