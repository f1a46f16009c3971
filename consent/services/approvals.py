"""Approval of a proposal by one person of as many as the study's quorum says."""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from consent import selectors
from consent.models import ConsentForm, ConsentFormProposal, EpsilonPolicy, EpsilonPolicyApproval, study_lock
from consent.second_person import second_person_check
from consent.services.committee import approval_record
from consent.services.consent_forms import consent_form_approve
from consent.services.policies import epsilon_policy_approve, no_operator_check
from consent.services.studies import study_open_check


@transaction.atomic
def proposal_approve(
    *,
    proposal: EpsilonPolicy | ConsentFormProposal,
    acting_user: AbstractBaseUser,
    conditions: str = "",
    effective_from: datetime | None = None,
) -> EpsilonPolicyApproval | ConsentForm | None:
    """Approve an ε policy or a consent form; with the last approval that the quorum asks for, it counts.

    Args:
        proposal: the proposal.
        acting_user: the approver, not the proposer.
        conditions: of the approval, on record and shown to operators; empty if there are none.
        effective_from: of a policy, the moment from which it counts; what the last one says is taken.

    Returns:
        The approval or the published version; None where more people have to approve.

    Raises:
        ValidationError: what :func:`epsilon_policy_approve` and :func:`consent_form_approve` refuse.
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
        raise ValidationError(_("This proposal is decided already. Propose anew if something has to change."))
    if isinstance(proposal, EpsilonPolicy):
        no_operator_check(study.pk, acting_user)
    own = _("It is approved by other people, not by the one who proposed it.")
    second_person_check(study, proposal.proposed_by_id, acting_user, own=own)
    approval_record(study, proposal, acting_user, conditions=conditions, last=False)
    return None
