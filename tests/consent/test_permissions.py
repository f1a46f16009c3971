"""Role permissions, repeated independently of the table under test, and what the admin leaves to whom."""

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, User
from django.test import Client
from django.urls import reverse

from consent import services
from consent.models import DataHolder, Study
from consent.permissions import ROLE_PERMISSIONS, studies_with_permission, study_permissions
from tests import factories
from tests.consent.conftest import Decide
from tests.factories import user_create
from tests.pages import as_

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


@pytest.mark.parametrize("role", sorted(ALL))
def test_a_role_allows_in_its_study_what_the_table_says(study: Study, hanna: User, role: str) -> None:
    assert set().union(*ROLE_PERMISSIONS.values()) == set(TABLE)
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


def test_strangers_holders_and_closed_accounts_may_nothing_and_superusers_all(study, holder, hanna) -> None:
    closed = user_create("closed", is_active=False)
    services.membership_add(study=study, user=closed, role="operator", acting_user=None)
    for user in (AnonymousUser(), hanna, closed):
        assert not any(user.has_perm(permission, study) for permission in TABLE)
    root = user_create("root", is_superuser=True)
    assert study_permissions(root, study) == set(TABLE)
    assert study in studies_with_permission(root, "consent.view_dashboard")


@pytest.fixture
def admin(db: None) -> Client:
    return as_(user_create("root", is_superuser=True, is_staff=True))


def test_append_only_rows_are_read_only(admin: Client, holder: DataHolder, give: Decide) -> None:
    give(holder, "HIGH")
    for name in ("consentform", "epsilonpolicy", "epsilonpolicyapproval", "consentevent", "rolechange", "membership"):
        rows, base = apps.get_model("consent", name).objects, f"admin:consent_{name}"
        pk = rows.first().pk
        change, delete = (reverse(f"{base}_{act}", args=[pk]) for act in ("change", "delete"))
        listed, add = reverse(f"{base}_changelist"), reverse(f"{base}_add")
        assert [admin.get(page).status_code for page in (listed, change, add)] == [200, 200, 403], name
        assert [admin.post(page, {"post": "yes"}).status_code for page in (change, delete)] == [403, 403], name
        admin.post(listed, {"action": "delete_selected", "_selected_action": [pk], "post": "yes"})
        assert rows.filter(pk=pk).exists(), name
    for repaired in (holder, holder.study):
        page = reverse(f"admin:consent_{repaired._meta.model_name}_change", args=[repaired.pk])
        assert 'name="_save"' in admin.get(page).text


def test_nothing_leads_from_a_holder_to_their_choice(admin: Client, holder: DataHolder) -> None:
    """One person's level is looked up where every look is on record."""
    form = holder.study.consent_forms.get()
    event = services.consent_give(holder=holder, level="HIGH", form=form, acting_user=holder.user)
    pages = {name: reverse(f"admin:consent_{name}_changelist") for name in ("consentevent", "dataholder")}
    shown = admin.get(reverse("admin:consent_consentevent_change", args=[event.pk])).text
    assert "HIGH" in shown or "high protection" in shown
    assert not [secret for secret in (holder.pseudonym, holder.user.username, event.hash) if secret in shown]
    for name, sought in (
        ("consentevent", {"holder": holder.pk}),
        ("consentevent", {"holder__id__exact": holder.pk}),
        ("consentevent", {"recorded_by": holder.user.pk}),
        ("consentevent", {"study__consent_events__holder": holder.pk}),
        ("dataholder", {"consent_events": event.pk}),
        ("dataholder", {"spending__history": 1}),
    ):
        assert admin.get(pages[name], sought).status_code == 400, sought
    for name in pages:
        assert len(admin.get(pages[name], {"study__id__exact": holder.study_id}).context["cl"].queryset) == 1
    page = admin.get(reverse("admin:consent_dataholder_delete", args=[holder.pk]))
    assert page.status_code == 403, "the question names what would be lost"
    chosen = {"action": "delete_selected", "_selected_action": [holder.pk]}
    assert "high" not in admin.post(pages["dataholder"], chosen, follow=True).text.lower()
