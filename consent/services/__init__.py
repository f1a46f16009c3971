"""Write operations of the consent app: one transaction each, with the acting user."""

from consent.locks import study_lock
from consent.services.consent_forms import (
    FOR_GOOD,
    Valid,
    consent_form_approve,
    consent_form_check,
    consent_form_draft_save,
    consent_form_propose,
    consent_form_publish,
    texts_digest,
)
from consent.services.decisions import consent_give, consent_refuse, consent_withdraw
from consent.services.holders import holder_link, holders_register, invitations_end
from consent.services.memberships import (
    membership_add,
    membership_remove,
    role_change_confirm,
    role_change_drop,
)
from consent.services.policies import epsilon_policy_approve, epsilon_policy_check, epsilon_policy_propose
from consent.services.remarks import proposal_remark
from consent.services.studies import (
    FIXED_BY_CONSENT,
    STATED_ONCE,
    is_study_fixed,
    study_asks_check,
    study_create,
    study_fixed,
    study_open_check,
    study_slug_check,
    study_update,
)

__all__ = [
    "FIXED_BY_CONSENT",
    "FOR_GOOD",
    "STATED_ONCE",
    "Valid",
    "consent_form_approve",
    "consent_form_check",
    "consent_form_draft_save",
    "consent_form_propose",
    "consent_form_publish",
    "consent_give",
    "consent_refuse",
    "consent_withdraw",
    "epsilon_policy_approve",
    "epsilon_policy_check",
    "epsilon_policy_propose",
    "holder_link",
    "holders_register",
    "invitations_end",
    "is_study_fixed",
    "membership_add",
    "membership_remove",
    "proposal_remark",
    "role_change_confirm",
    "role_change_drop",
    "study_asks_check",
    "study_create",
    "study_fixed",
    "study_lock",
    "study_open_check",
    "study_slug_check",
    "study_update",
    "texts_digest",
]
