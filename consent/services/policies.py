"""ε policies: checked, proposed and approved."""

from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from common.journal import note
from consent.locks import study_lock
from consent.models import EpsilonPolicy, EpsilonPolicyApproval, Membership, Role, Study
from consent.permissions import members_with_permission
from consent.second_person import second_person_check
from consent.selectors import epsilon_promised_largest
from consent.services.mail import holders_mail, mails_send
from consent.services.remarks import not_rejected_check
from consent.services.studies import study_asks_check, study_open_check
from consent.services.webhooks import event_send


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
    study = study_lock(policy.study_id)
    study_open_check(study)
    _no_operator_check(study.pk, acting_user)
    second_person_check(
        policy.study,
        policy.proposed_by_id,
        acting_user,
        own=_("A policy is approved by a second person, not by the one who proposed it."),
    )
    not_rejected_check(policy=policy)
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
    # A restored backup may forget the policy, and what was charged under it.
    note(study.pk, facts={"epsilon": epsilon_promised_largest(study)})
    holders_mail("new_policy", policy.study, about=policy.pk)
    assert policy.proposed_by_id is not None, "a second person was checked for"
    mails_send("policy_approved", [policy.proposed_by_id], study=policy.study, about=policy.pk)
    event_send("policy.approved", policy.study, version=policy.version)
    return approval
