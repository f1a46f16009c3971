"""Write operations of the consent app: one transaction each, with the acting user."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from common.append_only import chains_begin
from consent import selectors
from consent.circumstances import answering_for, day_of, renew_by
from consent.erasures import withdrawals_follow
from consent.languages import own_name
from consent.locks import study_lock
from consent.mail import holders_mail, mails_send
from consent.models import (
    Answerer,
    ConsentEvent,
    ConsentForm,
    ConsentFormDraft,
    ConsentFormProposal,
    DataHolder,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Level,
    Membership,
    Remark,
    Renewal,
    Role,
    RoleChange,
    Study,
)
from consent.permissions import members_with_permission, roles_given_by
from consent.pseudonyms import holders_found
from consent.second_person import second_person_check
from consent.study_texts import texts_missing
from consent.webhooks import event_send

#: Short names that would hide a page of the site.
_RESERVED_SLUGS = frozenset({"new"})


def study_slug_check(slug: str) -> None:
    """Check that no page of the site has the address that a study of this short name would have.

    Raises:
        ValidationError: one has.
    """
    if slug in _RESERVED_SLUGS:
        raise ValidationError(_("This name is taken by the site itself. Choose another."))


@transaction.atomic
def study_create(
    *, acting_user: AbstractBaseUser, members: Iterable[tuple[AbstractBaseUser, str]] = (), **fields: Any
) -> Study:
    """A new study; the acting user becomes its operator and its data steward.

    Args:
        acting_user: Who creates it.
        members: Other people with the role that each of them gets.
        **fields: Of the study.

    Raises:
        ValidationError: by field, or a role that somebody cannot have.
        PermissionDenied: a role that operators do not give.
    """
    study = Study(**fields)
    try:
        study_slug_check(study.slug)
    except ValidationError as error:
        raise ValidationError({"slug": error}) from error
    study.full_clean()
    study.save()
    chains_begin(study.pk)
    for role in (Role.OPERATOR, Role.STEWARD):
        _membership_give(Membership(study=study, user_id=acting_user.pk, role=role), acting_user)
    for user, given in members:
        membership_add(study=study, user=user, role=given, acting_user=acting_user)
    return study


def study_asks_check(study: Study) -> None:
    """Refuse to ask people in a closed study, or in a rehearsal study, which keeps no accounts for them.

    Raises:
        ValidationError: the study asks nobody.
    """
    if study.rehearsal:
        raise ValidationError(_("A rehearsal study asks nobody. Set up another study for people's consents."))
    study_open_check(study)


def study_open_check(study: Study) -> None:
    """Refuse what a closed study does not do any more. Raises ValidationError."""
    if study.is_closed:
        raise ValidationError(_("This study is closed: it asks nobody, stores nothing new, and learns nothing more."))


#: What holders were told when they decided, and what their budgets rest on: fixed from the first decision on.
FIXED_BY_CONSENT = (
    "purpose",
    "controller",
    "data_categories",
    "recipients",
    "retention",
    "after_withdrawal",
    "lawful_basis",
    "jurisdiction",
    "after_death",
    "after_incapacity",
    "delta",
)


#: Of these a text or day that was stated cannot change; what was left open can be stated later.
STATED_ONCE = ("data_source", "retention_until")


def study_fixed(study: Study) -> list[str]:
    """Names of what cannot change any more since a holder has decided; of translations with their language."""
    if not ConsentEvent.objects.filter(study=study).exists():
        return []
    stated = [name for name in STATED_ONCE if getattr(study, name)]
    fixed = {*FIXED_BY_CONSENT, *STATED_ONCE}
    told = [(name, code) for code, texts in study.translations.items() for name in texts if name in fixed]
    return [*FIXED_BY_CONSENT, *stated, *(f"{name}_{code}" for name, code in told)]


def _relied_on(study: Study, fields: Mapping[str, Any]) -> list[str]:
    """Names of those of ``fields`` that would change what holders relied on when they decided.

    A translation can be added, and one that is there is as fixed as what it translates.
    """
    changed = [name for name in fields if name != "translations" and fields[name] != getattr(study, name)]
    fixed = [name for name in changed if name in FIXED_BY_CONSENT and name not in STATED_ONCE]
    fixed += [name for name in changed if name in STATED_ONCE and getattr(study, name)]
    for language, texts in study.translations.items() if "translations" in fields else ():
        for name, text in texts.items():
            now = fields["translations"].get(language, {}).get(name, "")
            if text != now and (name in FIXED_BY_CONSENT or name in STATED_ONCE):
                fixed.append(f"{name}_{language}")
    return fixed


@transaction.atomic
def study_update(*, study: Study, **fields: Any) -> Study:
    """Change the settings of a study.

    Raises:
        ValidationError: an invalid value, or a change of what holders relied on when they decided, or of whether the
            study is a rehearsal.
    """
    study = study_lock(study.pk)
    if fields.get("rehearsal", study.rehearsal) != study.rehearsal:
        message = _("Whether a study is a rehearsal is decided when it is set up. Set up another study instead.")
        raise ValidationError({"rehearsal": message})
    if ConsentEvent.objects.filter(study=study).exists():
        fixed = _relied_on(study, fields)
        if fixed:
            message = _(
                "Holders have decided on these words and this δ; they cannot change. Begin a new study instead."
            )
            known = {name if name in fields else "translations" for name in fixed}
            raise ValidationError(dict.fromkeys(sorted(known), message))
    for name, value in fields.items():
        setattr(study, name, value)
    study.full_clean()
    study.save()
    return study


@transaction.atomic
def membership_add(
    *, study: Study, user: AbstractBaseUser, role: str, acting_user: AbstractBaseUser | None
) -> Membership:
    """Give ``user`` a role in ``study``, on record; giving it again changes nothing.

    Args:
        study: The study.
        user: Who gets the role.
        role: One of :class:`Role`.
        acting_user: Who gives it; None for whoever administers the installation, at the command line.

    Returns:
        The membership.

    Raises:
        PermissionDenied: ``acting_user`` may not give this role.
        ValidationError: There is no such role, or ``user`` has one that excludes it.
    """
    _role_change_check(study, role, acting_user)
    study_lock(study.pk)
    membership = Membership.objects.filter(study=study, user_id=user.pk, role=role).first()
    if membership is None:
        membership = Membership(study=study, user_id=user.pk, role=role)
        _membership_give(membership, acting_user)
    return membership


@transaction.atomic
def membership_remove(*, membership: Membership, acting_user: AbstractBaseUser | None) -> None:
    """Take a role away, on record; a role that is gone already stays gone.

    Args:
        membership: The role.
        acting_user: Who takes it; None for whoever administers the installation, at the command line.

    Raises:
        PermissionDenied: ``acting_user`` may not take this role away.
        ValidationError: The study would be left without an operator.
    """
    _role_change_check(membership.study, membership.role, acting_user)
    study_lock(membership.study_id)
    if not Membership.objects.filter(pk=membership.pk).exists():
        return
    others = Membership.objects.filter(study_id=membership.study_id, role=Role.OPERATOR).exclude(pk=membership.pk)
    if membership.role == Role.OPERATOR and not others.exists():
        raise ValidationError(_("A study needs an operator. Give the role to somebody else first."))
    _role_change_record(membership, RoleChange.Kind.TAKEN, acting_user)
    membership.delete()


def _role_change_check(study: Study, role: str, acting_user: AbstractBaseUser | None) -> None:
    """Raise PermissionDenied unless ``acting_user`` may give the role and take it away."""
    if acting_user is not None and role not in roles_given_by(acting_user, study):
        raise PermissionDenied(f"User {acting_user.pk} may not change who is {role} of the study {study.slug}.")


def _membership_give(membership: Membership, acting_user: AbstractBaseUser | None) -> None:
    """Save a new membership and record it; the study's lock is held."""
    membership.full_clean()
    membership.save()
    _role_change_record(membership, RoleChange.Kind.GIVEN, acting_user)


def _role_change_record(membership: Membership, kind: str, acting_user: AbstractBaseUser | None) -> None:
    change = RoleChange(
        study_id=membership.study_id,
        user_id=membership.user_id,
        role=membership.role,
        kind=kind,
        changed_by_id=acting_user.pk if acting_user else None,
        changed_at=timezone.now(),
    )
    RoleChange.append([change])


def _texts_given(texts: Mapping[str, str]) -> dict[str, str]:
    """Non-empty texts, with Unix line ends."""
    stripped = {language: text.replace("\r\n", "\n").strip() for language, text in texts.items()}
    return {language: text for language, text in stripped.items() if text}


def texts_digest(texts: Mapping[str, str]) -> str:
    """SHA-256 of the canonical JSON of a form's texts, in hexadecimal.

    >>> texts_digest({"en": "Hello"})[:8]
    'c7eafa31'
    """
    return hashlib.sha256(json.dumps(texts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@transaction.atomic
def consent_form_draft_save(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str]
) -> ConsentFormDraft:
    """Save ``texts`` as the study's draft, in place of the one before. A draft may be unfinished."""
    study_lock(study.pk)
    draft, _created = ConsentFormDraft.objects.update_or_create(
        study=study,
        defaults={"texts": _texts_given(texts), "saved_by_id": acting_user.pk, "saved_at": timezone.now()},
    )
    return draft


@dataclass(frozen=True)
class Valid:
    """Time for which a consent to a version counts: so many months, up to a day and with it, or for good."""

    months: int | None = None
    until: date | None = None

    @classmethod
    def of(cls, form: ConsentForm | ConsentFormProposal) -> "Valid":
        return cls(form.valid_months, form.valid_until)


FOR_GOOD = Valid()


@transaction.atomic
def consent_form_publish(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str], valid: Valid = FOR_GOOD
) -> ConsentForm:
    """Publish the next version of a study's consent form, which asks nobody again and never changes afterwards.

    Args:
        study: the study.
        acting_user: who publishes it.
        texts: Markdown by language code.
        valid: how long a consent to it counts.

    Raises:
        ValidationError: what :func:`consent_form_check` refuses, or the study is a rehearsal.
    """
    study_asks_check(study)
    study = study_lock(study.pk)
    texts = consent_form_check(study, texts, valid)
    return _form_append(study, texts, acting_user, renewal=Renewal.NOT_ASKED, valid=valid)


@transaction.atomic
def consent_form_propose(
    *, study: Study, acting_user: AbstractBaseUser, texts: Mapping[str, str], renewal: str, valid: Valid = FOR_GOOD
) -> ConsentFormProposal:
    """Propose a version that asks those who consented again; a second person publishes it.

    Args:
        study: the study.
        acting_user: who proposes it.
        texts: Markdown by language code.
        renewal: ASKED or REQUIRED, see :class:`consent.models.Renewal`.
        valid: how long a consent to it counts.

    Raises:
        ValidationError: what :func:`consent_form_check` refuses, no earlier version, or the study is a rehearsal.
    """
    study_asks_check(study)
    study = study_lock(study.pk)
    texts = consent_form_check(study, texts, valid)
    latest = selectors.consent_form_in_force(study)
    if latest is None:
        raise ValidationError(_("Nobody has consented to a version before this one, so nobody can be asked again."))
    proposal = ConsentFormProposal(
        study=study,
        follows=latest.version,
        texts=texts,
        digest=texts_digest(texts),
        renewal=renewal,
        valid_months=valid.months,
        valid_until=valid.until,
        proposed_by_id=acting_user.pk,
        proposed_at=timezone.now(),
    )
    ConsentFormProposal.append([proposal])
    ConsentFormDraft.objects.filter(study=study).delete()
    approvers = members_with_permission(study, "consent.approve_consentform").exclude(pk=acting_user.pk)
    mails_send("form_waiting", approvers.values_list("pk", flat=True), study=study, about=proposal.pk)
    event_send("form.proposed", study, follows=proposal.follows)
    return proposal


@transaction.atomic
def consent_form_approve(*, proposal: ConsentFormProposal, acting_user: AbstractBaseUser) -> ConsentForm:
    """Approve a proposed version as a second person, which publishes it.

    Raises:
        ValidationError: the approver proposed it, the proposer's account is gone, it was published or rejected, or a
            newer version has been published since.
    """
    study = study_lock(proposal.study_id)
    study_open_check(study)
    second_person_check(
        proposal.proposed_by_id,
        acting_user,
        own=_("A form that asks people again is published by a second person, not by the one who proposed it."),
    )
    _not_rejected_check(form=proposal)
    latest = selectors.consent_form_in_force(study)
    if latest is None or latest.version != proposal.follows:
        raise ValidationError(_("Another version has been published since. Propose this one again if it is needed."))
    valid = Valid.of(proposal)
    texts = consent_form_check(study, proposal.texts, valid)
    return _form_append(study, texts, acting_user, renewal=proposal.renewal, valid=valid, proposal=proposal)


def consent_form_check(study: Study, texts: Mapping[str, str], valid: Valid = FOR_GOOD) -> dict[str, str]:
    """Texts that can follow the version in force, without empty ones.

    Raises:
        ValidationError: no text in the site's first language or in one of the study's languages, the same texts and
            validity as the version in force, a change in some languages only, or a validity that is over already.
    """
    if valid.until is not None and valid.until <= day_of(timezone.now()):
        raise ValidationError({"valid_until": _("Nobody could consent to it any more. Choose a later day.")})
    texts = _texts_given(texts)
    if settings.LANGUAGE_CODE not in texts:
        raise ValidationError({"texts": _("The form needs a text in English.")})
    missing = _names(code for code in study.languages if code not in texts)
    if missing:
        raise ValidationError(
            {"texts": _("The study promises a text in %(languages)s, too. Write it first.") % {"languages": missing}}
        )
    untold = texts_missing(study)
    if untold:
        message = _(
            "The study's own texts (title, purpose and so on) are missing in %(languages)s. Write them in the study's "
            "settings first."
        )
        raise ValidationError({"texts": message % {"languages": _names(untold)}})
    latest = selectors.consent_form_in_force(study)
    if latest is None:
        return texts
    if latest.digest == texts_digest(texts) and valid == Valid.of(latest):
        raise ValidationError({"texts": _("This is what the version in force says. Change it, then publish.")})
    kept = [code for code in texts if code in latest.texts]
    changed = [code for code in kept if texts[code] != latest.texts[code]]
    if changed and len(changed) < len(kept):
        message = _(
            "The text in %(changed)s has changed, that in %(same)s has not: people would read different things. Make "
            "the same change in every language."
        )
        same = _names(code for code in kept if code not in changed)
        raise ValidationError({"texts": message % {"changed": _names(changed), "same": same}})
    return texts


def _names(codes: Iterable[str]) -> str:
    return ", ".join(own_name(code) for code in codes)


def _form_append(
    study: Study,
    texts: dict[str, str],
    acting_user: AbstractBaseUser,
    *,
    renewal: str,
    valid: Valid,
    proposal: ConsentFormProposal | None = None,
) -> ConsentForm:
    """Append the next version; the study's lock is held and the texts are checked."""
    latest = selectors.consent_form_in_force(study)
    form = ConsentForm(
        study=study,
        version=latest.version + 1 if latest else 1,
        texts=texts,
        digest=texts_digest(texts),
        renewal=renewal,
        valid_months=valid.months,
        valid_until=valid.until,
        proposal=proposal,
        proposed_by_id=proposal.proposed_by_id if proposal else None,
        published_by_id=acting_user.pk,
        published_at=timezone.now(),
    )
    ConsentForm.append([form])
    if proposal is None:
        ConsentFormDraft.objects.filter(study=study).delete()
    holders_mail("new_form", study, about=form.pk)
    if form.proposed_by_id is not None:
        mails_send("form_approved", [form.proposed_by_id], study=study, about=form.pk)
    event_send("form.published", study, version=form.version)
    return form


@transaction.atomic
def proposal_remark(
    *, proposal: EpsilonPolicy | ConsentFormProposal, acting_user: AbstractBaseUser, kind: str, text: str
) -> Remark:
    """Comment on a proposal or reject it, on record.

    Args:
        proposal: an ε policy or a consent form that waits for a second person.
        acting_user: who remarks.
        kind: one of :class:`consent.models.Remark.Kind`.
        text: the comment, or the reason.

    Raises:
        ValidationError: no text, or the proposal was decided already.
    """
    study_lock(proposal.study_id)
    if not selectors.is_waiting(proposal):
        raise ValidationError(_("This proposal is decided already. Propose anew if something has to change."))
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


def _not_rejected_check(**about: Any) -> None:
    """Refuse to approve what was rejected. Raises ValidationError."""
    if Remark.objects.filter(kind=Remark.Kind.REJECTION, **about).exists():
        raise ValidationError(_("This proposal was rejected. Propose anew, with what the reason asks for."))


def epsilon_policy_check(*, high: float, average: float, low: float) -> None:
    """Validate 0 < high < average < low ≤ the installation's cap.

    Raises:
        ValidationError: the values are out of order or above the cap.
    """
    if not 0 < high < average < low:
        raise ValidationError(
            _("The values must rise from high to low protection: 0 < ε(high) < ε(average) < ε(low). Reorder them.")
        )
    if low > settings.EPSILON_CAP:
        raise ValidationError(
            _("ε at low protection is %(value)g, above this installation's cap of %(cap)g. Choose a smaller value.")
            % {"value": low, "cap": settings.EPSILON_CAP}
        )


def _no_operator_check(study_id: int, acting_user: AbstractBaseUser) -> None:
    """Keep operators away from the study's ε, were they superusers. Raises ValidationError."""
    if Membership.objects.filter(study=study_id, user_id=acting_user.pk, role=Role.OPERATOR).exists():
        raise ValidationError(_("You are an operator of this study. Its ε is for the ethics committee to decide."))


@transaction.atomic
def epsilon_policy_propose(
    *, study: Study, acting_user: AbstractBaseUser, high: float, average: float, low: float, reason: str
) -> EpsilonPolicy:
    """Propose an ε policy.

    Raises:
        ValidationError: values that :func:`epsilon_policy_check` refuses, an empty reason, or a rehearsal study.
    """
    study_asks_check(study)
    epsilon_policy_check(high=high, average=average, low=low)
    study_lock(study.pk)
    _no_operator_check(study.pk, acting_user)
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
    EpsilonPolicy.append([policy])
    approvers = members_with_permission(study, "consent.approve_epsilonpolicy").exclude(pk=acting_user.pk)
    mails_send("policy_waiting", approvers.values_list("pk", flat=True), study=study, about=policy.pk)
    event_send("policy.proposed", study, version=policy.version)
    return policy


@transaction.atomic
def epsilon_policy_approve(
    *, policy: EpsilonPolicy, acting_user: AbstractBaseUser, effective_from: datetime | None = None
) -> EpsilonPolicyApproval:
    """Approve a policy, effective at once or from a later moment.

    Args:
        policy: the proposal.
        acting_user: the approver, not the proposer.
        effective_from: the moment from which it counts; at once if None or past.

    Raises:
        ValidationError: the approver proposed it or operates the study, the proposer's account is gone, it is already
            approved or rejected, or a newer one is approved.
    """
    study_open_check(study_lock(policy.study_id))
    _no_operator_check(policy.study_id, acting_user)
    second_person_check(
        policy.proposed_by_id,
        acting_user,
        own=_("A policy is approved by a second person, not by the one who proposed it."),
    )
    _not_rejected_check(policy=policy)
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
    EpsilonPolicyApproval.append([approval])
    holders_mail("new_policy", policy.study, about=policy.pk)
    assert policy.proposed_by_id is not None, "a second person was checked for"
    mails_send("policy_approved", [policy.proposed_by_id], study=policy.study, about=policy.pk)
    event_send("policy.approved", policy.study, version=policy.version)
    return approval


@transaction.atomic
def holders_register(*, study: Study, pseudonyms: Iterable[str]) -> dict[str, int]:
    """Register a holder for every pseudonym that has none.

    Whoever had their records erased is found by the commitment to their pseudonym, and keeps their account.

    Returns:
        The holder id of every pseudonym.

    Raises:
        ValidationError: the study is closed, or the key to erased pseudonyms is missing.
    """
    study_open_check(study)
    pseudonyms = list(dict.fromkeys(pseudonyms))
    known = holders_found(study, pseudonyms)
    names = [pseudonym for pseudonym in pseudonyms if pseudonym not in known]
    new = (DataHolder(study_id=study.pk, pseudonym=name) for name in names)
    DataHolder.objects.bulk_create(new, batch_size=2000, ignore_conflicts=True)
    return known | holders_found(study, names)


@transaction.atomic
def holder_link(*, holder: DataHolder, user: AbstractBaseUser | None) -> DataHolder:
    """Link a holder to the account that decides for them, or to none any more.

    Raises:
        ValidationError: the account already decides for another holder of the study.
    """
    linked = user.pk if user else None
    if holder.user_id != linked:
        holder.linked_at = timezone.now() if user else None
    holder.user_id = linked
    holder.full_clean()
    holder.save()
    return holder


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
