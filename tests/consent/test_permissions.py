"""Role permissions, repeated independently of the table under test, so that a change is deliberate."""

import pytest
from django.contrib.auth.models import AnonymousUser, User

from consent import services
from consent.models import Study
from consent.permissions import ROLE_PERMISSIONS, studies_with_permission, study_permissions
from tests import factories

ALL = {"operator", "steward", "committee", "chair", "auditor", "researcher"}
STAFF = ALL - {"researcher"}
TABLE = {
    "consent.view_dashboard": STAFF,
    "consent.view_group_sizes": {"steward", "auditor"},
    "consent.change_study": {"operator"},
    "consent.close_study": {"operator"},
    "consent.erase_records": {"steward"},
    "consent.manage_members": {"operator"},
    "consent.manage_webhooks": {"operator"},
    "consent.appoint_committee": {"chair"},
    "consent.confirm_roles": {"committee", "chair", "auditor"},
    "consent.invite_holders": {"steward"},
    "consent.record_paper_consents": {"steward"},
    "consent.record_circumstances": {"steward"},
    "consent.view_circumstance": {"steward", "auditor"},
    "consent.view_holder_level": {"steward"},
    "consent.view_levelaccess": {"steward", "auditor"},
    "consent.check_receipt": {"steward", "auditor"},
    "consent.view_rolechange": {"committee", "chair", "auditor"},
    "consent.view_configurationchange": {"committee", "chair", "auditor"},
    "consent.view_sealedchange": {"auditor"},
    "consent.publish_consentform": {"operator", "committee", "chair"},
    "consent.approve_consentform": {"committee", "chair"},
    "consent.export_consents": {"auditor"},
    "consent.propose_epsilonpolicy": {"committee", "chair"},
    "consent.approve_epsilonpolicy": {"committee", "chair"},
    "training.view_run": ALL,
    "training.import_dataset": {"steward"},
    "training.state_provenance": {"operator", "steward"},
    "training.remove_dataset": {"steward"},
    "training.withdraw_model": {"operator"},
    "training.propose_run": {"operator", "researcher"},
    "training.approve_run": {"operator"},
    "training.cancel_run": {"operator"},
    "training.manage_alliances": {"operator"},
    "training.use_student": {"operator", "researcher"},
    "accounting.view_ledger": STAFF,
}


def test_the_table_is_complete() -> None:
    assert set().union(*ROLE_PERMISSIONS.values()) == set(TABLE)


@pytest.mark.parametrize("role", sorted(ALL))
def test_a_role_allows_in_its_study_what_the_table_says(study: Study, hanna: User, role: str) -> None:
    elsewhere = factories.study_create("elsewhere")
    services.membership_add(study=study, user=hanna, role=role, acting_user=None)
    for permission, roles in TABLE.items():
        assert hanna.has_perm(permission, study) is (role in roles), permission
        assert (study in studies_with_permission(hanna, permission)) is (role in roles), permission
        assert not hanna.has_perm(permission, elsewhere), permission
        assert not hanna.has_perm(permission), permission
        assert elsewhere not in studies_with_permission(hanna, permission), permission
    assert study_permissions(hanna, study) == {permission for permission, roles in TABLE.items() if role in roles}


def test_two_roles_add_up_and_list_a_study_once(study: Study, holder, hanna: User) -> None:
    for role in ("researcher", "committee"):
        services.membership_add(study=study, user=hanna, role=role, acting_user=None)
    assert hanna.has_perm("training.propose_run", study)
    assert hanna.has_perm("consent.approve_epsilonpolicy", study)
    assert list(studies_with_permission(hanna, "consent.view_dashboard")) == [study]
    assert hanna.has_perm("consent.view_dashboard", holder), "of an object as in its study"


def test_strangers_holders_and_closed_accounts_may_nothing(study: Study, holder, hanna: User) -> None:
    closed = factories.user_create("closed", is_active=False)
    services.membership_add(study=study, user=closed, role="operator", acting_user=None)
    for user in (AnonymousUser(), hanna, closed):
        assert not any(user.has_perm(permission, study) for permission in TABLE)


def test_a_superuser_may_everything(study: Study) -> None:
    root = factories.user_create("root", is_superuser=True)
    assert study_permissions(root, study) == set(TABLE)
    assert study in studies_with_permission(root, "consent.view_dashboard")
