"""Write operations of the consent app. Each runs in one transaction and names the acting user."""

from consent.models import study_lock
from consent.services.committee import conflict_declare, harm_write, proposal_remark, quorum_set
from consent.services.consent_forms import (
    FOR_GOOD,
    Valid,
    consent_form_approve,
    consent_form_correct,
    consent_form_draft_save,
    consent_form_propose,
    corrections_publish,
    draft_facts,
    form_digest,
)
from consent.services.decisions import (
    check_answer_keep,
    check_answers_clear,
    consent_give,
    consent_keep,
    consent_refuse,
    consent_withdraw,
)
from consent.services.holders import holder_link, holders_register, owners_register
from consent.services.memberships import (
    Appointment,
    membership_add,
    membership_remove,
    people_appoint,
    role_change_confirm,
    role_change_drop,
)
from consent.services.policies import (
    epsilon_policy_approve,
    epsilon_policy_check,
    epsilon_policy_propose,
    proposal_approve,
)
from consent.services.studies import (
    are_facts_fixed,
    is_study_fixed,
    study_asks_check,
    study_begin,
    study_create,
    study_fixed,
    study_open_check,
    study_slug_check,
    study_update,
)
