"""ε policies: checks, proposals and approvals; also the approval of any proposal, which counts towards the quorum."""

from datetime import date, datetime

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from common.journal import note
from consent import selectors
from consent.models import (
    ConsentForm,
    ConsentFormProposal,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Level,
    Membership,
    Role,
    Study,
    study_lock,
)
from consent.permissions import second_person_check
from consent.promises.odds import name_overstates, right_guesses_in_100
from consent.selectors import epsilon_promised_largest
from consent.services.committee import (
    answer_day,
    approval_record,
    approvers_mail,
    harm_stated_check,
    not_rejected_check,
)
from consent.services.consent_forms import consent_form_approve
from consent.services.mail import holders_mail, mails_send
from consent.services.studies import study_asks_check, study_open_check
from consent.services.webhooks import event_send


def epsilon_policy_check(*, high: float, average: float, low: float) -> None:
    """Check that 0 < high < average < low ≤ the installation's cap.

    Raises:
        ValidationError: the values are out of order or above the cap.
    """
    if not 0 < high < average < low:
        raise ValidationError(
            _("The values must increase from high to low protection: 0 < ε(high) < ε(average) < ε(low).")
        )
    if low > settings.EPSILON_CAP:
        raise ValidationError(
            _(
                "ε at low protection is %(value)g, which is above this installation's limit of %(cap)g. "
                "Choose a smaller value."
            )
            % {"value": low, "cap": settings.EPSILON_CAP}
        )


def _name_reason(study: Study, *, high: float, average: float, low: float, reason: str) -> str:
    """Return the reason for keeping level names that overstate the protection; empty if none does.

    Raises:
        ValidationError: a reason is needed but missing.
    """
    epsilons = {Level.HIGH: high, Level.AVERAGE: average, Level.LOW: low}
    named = [
        str(level.label)
        for level, epsilon in epsilons.items()
        if name_overstates(level, right_guesses_in_100(epsilon, study.delta))
    ]
    if named and not reason.strip():
        message = _(
            "The odds are worse than these names suggest: %(levels)s. Choose a smaller ε, or explain why you are "
            "keeping the names. People read this when they choose a level."
        )
        raise ValidationError({"name_reason": message % {"levels": ", ".join(named)}})
    return reason.strip() if named else ""


def no_operator_check(study_id: int, acting_user: AbstractBaseUser) -> None:
    """Prevent operators, even superusers, from deciding on the study's ε. Raises ValidationError."""
    if Membership.objects.filter(study=study_id, user_id=acting_user.pk, role=Role.OPERATOR).exists():
        raise ValidationError(_("You are an operator of this study. Only the ethics committee can decide on its ε."))


@transaction.atomic
def epsilon_policy_propose(
    *,
    study: Study,
    acting_user: AbstractBaseUser,
    high: float,
    average: float,
    low: float,
    reason: str,
    name_reason: str = "",
    answer_by: date | None = None,
) -> EpsilonPolicy:
    """Propose an ε policy.

    Args:
        name_reason: why a level keeps its name although it promises more than its odds deliver; shown to people.
        answer_by: the last day for an answer; by default in two weeks.

    Raises:
        ValidationError: :func:`epsilon_policy_check` refuses the values, the reason is empty, a level's name promises
            too much without a reason, the day is out of range, or the study is a rehearsal.
    """
    study = study_lock(study.pk)
    study_asks_check(study)
    epsilon_policy_check(high=high, average=average, low=low)
    name_reason = _name_reason(study, high=high, average=average, low=low, reason=name_reason)
    answer_by = answer_day(answer_by)
    no_operator_check(study.pk, acting_user)
    latest = EpsilonPolicy.objects.filter(study=study).first()
    policy = EpsilonPolicy(
        study=study,
        version=latest.version + 1 if latest else 1,
        high=high,
        average=average,
        low=low,
        reason=reason.strip(),
        name_reason=name_reason,
        answer_by=answer_by,
        proposed_by_id=acting_user.pk,
    )
    EpsilonPolicy.append([policy])
    approvers_mail("policy_waiting", "consent.approve_epsilonpolicy", study=study, about=policy.pk, by=acting_user)
    event_send("policy.proposed", study, version=policy.version)
    return policy


@transaction.atomic
def epsilon_policy_approve(
    *,
    policy: EpsilonPolicy,
    acting_user: AbstractBaseUser,
    effective_from: datetime | None = None,
    conditions: str = "",
) -> EpsilonPolicyApproval:
    """Give the last approval that a policy needs, so that it takes effect immediately or later.

    Args:
        effective_from: when it takes effect; at once if None or earlier than now.
        conditions: recorded conditions of the approval; may be empty.

    Raises:
        ValidationError: the approver proposed the policy, operates the study or has a conflict of interest, the
            proposer's account has been deleted, the policy is already approved or rejected, a newer policy is approved,
            more people have to approve, or the study has no example of harm.
    """
    study = study_lock(policy.study_id)
    study_open_check(study)
    no_operator_check(study.pk, acting_user)
    second_person_check(
        policy.study,
        policy.proposed_by_id,
        acting_user,
        own=_("You proposed this policy, so a second person must approve it."),
    )
    not_rejected_check(policy=policy)
    if EpsilonPolicyApproval.objects.filter(policy=policy).exists():
        raise ValidationError(_("This policy has already been approved."))
    harm_stated_check(study)
    newer = EpsilonPolicyApproval.objects.filter(policy__study_id=policy.study_id, policy__version__gt=policy.version)
    if newer.exists():
        raise ValidationError(
            _("A newer policy has already been approved. Propose these values again as a new version.")
        )
    approval_record(study, policy, acting_user, conditions=conditions, last=True)
    now = timezone.now()
    approval = EpsilonPolicyApproval(
        policy=policy,
        proposed_by_id=policy.proposed_by_id,
        approved_by_id=acting_user.pk,
        approved_at=now,
        effective_from=max(effective_from or now, now),
    )
    EpsilonPolicyApproval.append([approval])
    # A restored backup may lack the policy, but charges under it remain.
    note(study.pk, facts={"epsilon": epsilon_promised_largest(study)})
    holders_mail("new_policy", policy.study, about=policy.pk)
    assert policy.proposed_by_id is not None, "the check requires a second person"
    mails_send("policy_approved", [policy.proposed_by_id], study=policy.study, about=policy.pk)
    event_send("policy.approved", policy.study, version=policy.version)
    return approval


@transaction.atomic
def proposal_approve(
    *,
    proposal: EpsilonPolicy | ConsentFormProposal,
    acting_user: AbstractBaseUser,
    conditions: str = "",
    effective_from: datetime | None = None,
) -> EpsilonPolicyApproval | ConsentForm | None:
    """Approve an ε policy or a consent form. It takes effect with the last approval that the quorum requires.

    Args:
        conditions: conditions of the approval, recorded and shown to operators; may be empty.
        effective_from: for a policy, when it takes effect; the last approver's choice applies.

    Returns:
        The approval or the published version; None if more people have to approve.

    Raises:
        ValidationError: as in :func:`epsilon_policy_approve` and :func:`consent_form_approve`.
    """
    study = study_lock(proposal.study_id)
    if selectors.approvals_of(proposal).count() + 1 >= study.quorum:
        if isinstance(proposal, EpsilonPolicy):
            return epsilon_policy_approve(
                policy=proposal, acting_user=acting_user, effective_from=effective_from, conditions=conditions
            )
        return consent_form_approve(proposal=proposal, acting_user=acting_user, conditions=conditions)
    study_open_check(study)
    if not selectors.is_waiting(proposal):
        raise ValidationError(
            _("This proposal has already been decided. Make a new proposal if something needs to change.")
        )
    if isinstance(proposal, EpsilonPolicy):
        no_operator_check(study.pk, acting_user)
    own = _("You proposed this, so other people must approve it.")
    second_person_check(study, proposal.proposed_by_id, acting_user, own=own)
    approval_record(study, proposal, acting_user, conditions=conditions, last=False)
    return None
