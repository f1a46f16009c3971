"""Roles: who assigns them, which take a second person, incompatible roles, and a record of every change."""

from html import unescape

import pytest
from allauth.account.models import EmailAddress
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.test import Client
from django.urls import reverse

from consent import services
from consent.models import AccountChange, DataHolder, Membership, Role, RoleChange, Study
from consent.permissions import ROLE_PERMISSIONS, studies_with_permission, study_permissions
from consent.selectors import role_faults
from consent.services.accounts import account_create, administrator_set
from tests import factories
from tests.consent.conftest import Decide
from tests.factories import user_create
from tests.pages import as_, url
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_approve, run_draft, study_with_table
from tests.training.test_concurrency import at_once
from training.models import Run

pytestmark = pytest.mark.django_db

#: Pairs of roles that one person cannot have, repeated independently of the table under test.
EXCLUSIVE = {
    *(frozenset({"auditor", other}) for other in ("operator", "steward", "committee", "chair", "researcher")),
    *(frozenset({"committee", other}) for other in ("operator", "steward", "chair")),
    *(frozenset({"chair", other}) for other in ("operator", "steward")),
    frozenset({"steward", "researcher"}),
}


def give(study: Study, user: User, role: str, acting_user: User | None = None) -> Membership | None:
    return services.membership_add(study=study, user=user, role=role, acting_user=acting_user)


def latest(study: Study) -> RoleChange:
    return RoleChange.chain(study.pk).filter(kind__in=RoleChange.PROPOSALS).last()


def confirm(study: Study, person: User) -> None:
    services.role_change_confirm(proposal=latest(study), acting_user=person)


def record(study: Study) -> list[tuple[str, str, str]]:
    """Return person, role and change, in the order in which they were recorded."""
    names = dict(User.objects.values_list("pk", "username"))
    rows = RoleChange.chain(study.pk).values_list("user_id", "role", "kind")
    return [(names.get(user, "gone"), role, kind) for user, role, kind in rows]


def roles_of(user: User, **study: Study) -> set[str]:
    return set(user.memberships.filter(**study).values_list("role", flat=True))


@pytest.fixture
def chair(study: Study) -> User:
    chair = user_create("clara")
    give(study, chair, "chair")
    return chair


@pytest.fixture
def root(db: None) -> User:
    return user_create("root", is_superuser=True, is_staff=True)


GIVES = {
    "olga": {"operator", "steward", "auditor", "researcher"},
    "clara": {"committee", "chair"},
    **{role: set() for role in ("steward", "committee", "auditor", "researcher", "nobody")},
}


def test_a_role_needs_an_entitled_proposer_and_a_second_person(study: Study, chair: User) -> None:
    second = user_create("second")
    give(study, second, "auditor")
    for giver, roles in GIVES.items():
        acting = user_create(giver)
        if giver in Role.values:
            give(study, acting, giver)
        for role in Role.values:
            user = user_create(f"{role} by {giver}")
            if role not in roles:
                with pytest.raises(PermissionDenied):
                    give(study, user, role, acting)
                membership = give(study, user, role)
                with pytest.raises(PermissionDenied):
                    services.membership_remove(membership=membership, acting_user=acting)
                assert roles_of(user) == {role}
                continue
            assert give(study, user, role, acting) is None
            assert give(study, user, role, acting) is None, "only one pending proposal"
            assert roles_of(user) == set()
            confirm(study, second)
            assert roles_of(user) == {role}
            assert services.membership_remove(membership=user.memberships.get(), acting_user=acting) is False
            assert roles_of(user) == {role}
            confirm(study, second)
            assert roles_of(user) == set()
            kinds = ("to_give", "given", "to_take", "taken")
            assert record(study)[-4:] == [(user.username, role, kind) for kind in kinds]
            last = RoleChange.chain(study.pk).last()
            assert (last.proposed_by, last.changed_by) == (acting, second)
    assert list(RoleChange.chain_faults(study.pk)) == list(role_faults(study)) == []
    with pytest.raises(PermissionDenied):
        give(factories.study_create("elsewhere"), second, "committee", chair)


def test_a_superuser_who_has_no_role_in_the_study_gives_any_to_others(study: Study, chair: User, root: User) -> None:
    for role in Role.values:
        user = user_create(f"new {role}")
        services.membership_remove(membership=give(study, user, role, root), acting_user=root)
        assert record(study)[-2:] == [(user.username, role, "given"), (user.username, role, "taken")]
        assert give(study, root, role, root) is None, "but not to themself"


@pytest.mark.parametrize("first", Role.values)
def test_incompatible_roles_are_refused(study: Study, root: User, first: str) -> None:
    elsewhere = factories.study_create("elsewhere")
    for second in Role.values:
        person = user_create(f"{first} and {second}")
        give(study, person, first, root)
        if frozenset({first, second}) not in EXCLUSIVE:
            give(study, person, second, root)
            assert roles_of(person) == {first, second}
            continue
        with pytest.raises(ValidationError, match="Committee members and auditors cannot be operators or data"):
            give(study, person, second, root)
        with pytest.raises(IntegrityError), transaction.atomic():
            Membership.objects.bulk_create([Membership(study=study, user=person, role=second)])
        give(elsewhere, person, second)  # in another study they may
        with pytest.raises(IntegrityError), transaction.atomic():
            Membership.objects.filter(user=person, study=elsewhere).update(study=study)
        assert (roles_of(person, study=study), roles_of(person, study=elsewhere)) == ({first}, {second})
    if first == "auditor":
        page = as_(root).post(reverse("staff:members", args=[study.slug]), {"username": person, "role": second})
        assert page.status_code == 422
        assert "Committee members and auditors cannot be operators or data" in page.text


@pytest.mark.django_db(transaction=True)
def test_one_of_two_exclusive_roles_given_at_once_is_refused() -> None:
    study, hanna = factories.study_create(), user_create("hanna")
    roles = ("operator", "committee", "chair", "auditor") * 2
    outcomes = at_once([lambda role=role: give(study, hanna, role) for role in roles])
    given = {outcome.role for outcome in outcomes if isinstance(outcome, Membership)}
    assert len(given) == 1
    assert roles_of(hanna) == given
    assert all(isinstance(outcome, Membership | ValidationError) for outcome in outcomes)
    assert record(study)[2:] == [("hanna", given.pop(), "given")]
    assert list(RoleChange.chain_faults(study.pk)) == []


def test_a_superuser_who_operates_a_study_cannot_decide_on_epsilon(study: Study, root: User) -> None:
    carla, values = user_create("carla"), {"high": 0.5, "average": 1, "low": 2, "reason": "Less."}
    policy = services.epsilon_policy_propose(study=study, acting_user=carla, **values)
    give(study, root, "operator")
    with pytest.raises(ValidationError, match="Only the ethics committee can decide on its ε"):
        services.epsilon_policy_approve(policy=policy, acting_user=root)
    with pytest.raises(ValidationError, match="Only the ethics committee can decide on its ε"):
        services.epsilon_policy_propose(study=study, acting_user=root, **values)
    carla.delete()
    with pytest.raises(ValidationError, match="Propose it again"):
        services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))


def test_a_new_study_begins_its_record_with_who_created_it(study: Study, hanna: User) -> None:
    olga = user_create("olga")
    changes = [(change.user, change.role, change.kind, change.changed_by) for change in RoleChange.chain(study.pk)]
    assert changes[0] == (olga, "operator", "given", olga)
    memberships = [give(study, hanna, "auditor") for _ in range(2)]
    with pytest.raises(ProtectedError):
        hanna.delete()
    for membership in memberships:
        services.membership_remove(membership=membership, acting_user=None)
    assert record(study)[2:] == [("hanna", "auditor", "given"), ("hanna", "auditor", "taken")], "once each"
    assert list(RoleChange.chain_faults(study.pk)) == list(role_faults(study)) == []


def test_the_record_is_for_those_who_oversee(study: Study, root: User) -> None:
    gone = user_create("gone")
    give(study, gone, "auditor", root)
    services.membership_remove(membership=gone.memberships.get(), acting_user=None)
    number = gone.pk
    gone.delete()
    for role, sees in (("auditor", True), ("committee", True), ("chair", True), ("operator", False)):
        reader = user_create(f"reading {role}")
        give(study, reader, role)
        page = unescape(as_(reader).get(reverse("staff:members", args=[study.slug])).text)
        for part in ("Role history", f"deleted account {number}", "the site's administrators"):
            assert (part in page) is sees, role


def test_a_role_given_behind_the_record_is_found(study: Study, hanna: User) -> None:
    Membership.objects.bulk_create([Membership(study=study, user=hanna, role="chair")])
    assert list(role_faults(study)) == [f"user {hanna.pk} is chair, but no record shows who gave the role."]
    Membership.objects.filter(study=study).delete()
    begins, ends = f"user {user_create('olga').pk} was recorded as", "and no record shows who removed it."
    lacking = [f"{begins} {role}, but lacks the role, {ends}" for role in ("operator", "steward")]
    assert list(role_faults(study)) == lacking


@pytest.fixture
@built_once
def watched() -> Study:
    return factories.members_add(study_with_table(), clara="chair", carla="committee", aud="auditor")


@pytest.fixture
def otto(watched: Study) -> User:
    """Return an operator who is not a data steward."""
    return factories.member(watched, "otto", "operator")


def administrator(watched: Study, name: str, role: str, makes: str) -> tuple[User, User]:
    """Return an installation administrator with a role, and an account that they created."""
    user = factories.member(watched, name, role)
    administrator_set(user=user, appointed=True, acting_user=None)
    fields = {"first_name": "P.", "last_name": "U.", "email": f"{makes}@example.org"}
    return user, account_create(username=makes, acting_user=user, **fields)


def test_supervisors_cannot_give_themselves_a_role(watched: Study) -> None:
    clara, carla = user_create("clara"), user_create("carla")
    factories.member(watched, "new", "committee", clara)
    with pytest.raises(ValidationError, match="You proposed this yourself"):
        confirm(watched, clara)
    new = factories.member(watched, "rita", "researcher", user_create("olga"))
    factories.member(watched, "carla", "researcher", user_create("olga"))
    with pytest.raises(ValidationError, match="You cannot confirm your own role"):
        confirm(watched, carla)
    assert roles_of(new) == set()


def test_giving_up_takes_one_person_but_the_last_stay(watched: Study, otto: User) -> None:
    clara, olga = user_create("clara"), user_create("olga")
    with pytest.raises(ValidationError, match="at least one person with the role “chair of the ethics committee”"):
        services.membership_remove(membership=clara.memberships.get(), acting_user=clara)
    assert services.membership_remove(membership=otto.memberships.get(), acting_user=otto)
    with pytest.raises(ValidationError, match="needs at least one person with the role “operator”"):
        services.membership_remove(membership=olga.memberships.get(role="operator"), acting_user=olga)
    closed = factories.member(watched, "closed", "operator")
    User.objects.filter(pk=closed.pk).update(is_active=False)
    with pytest.raises(ValidationError, match="needs at least one person with the role “operator”"):
        services.membership_remove(membership=olga.memberships.get(role="operator"), acting_user=olga)


def test_a_proposal_ends_with_its_proposers_role_and_with_what_excludes_it(watched: Study, otto: User) -> None:
    clara, olga = user_create("clara"), user_create("olga")
    factories.member(watched, "new", "auditor", otto)
    services.membership_remove(membership=otto.memberships.get(), acting_user=otto)
    with pytest.raises(ValidationError, match="The proposer can no longer give this role"):
        confirm(watched, clara)
    services.role_change_drop(proposal=latest(watched), acting_user=clara)
    factories.member(watched, "new", "auditor", olga)
    factories.member(watched, "new", "researcher")
    with pytest.raises(ValidationError, match="Committee members and auditors cannot be operators or data"):
        confirm(watched, clara)
    with pytest.raises(PermissionDenied):
        services.role_change_drop(proposal=latest(watched), acting_user=user_create("new"))


def test_a_superuser_assigns_roles_only_where_nobody_could_confirm() -> None:
    root = user_create("root", is_superuser=True)
    fields = {"slug": "young", "title": "T", "purpose": "P", "controller": "C", "contact": "c@example.org"}
    study = services.study_create(acting_user=root, **fields)
    assert roles_of(root) == {"operator"}
    factories.member(study, "root", "steward", root)
    assert roles_of(root) == {"operator"}
    assert roles_of(factories.member(study, "clara", "chair", root)) == {"chair"}
    assert roles_of(factories.member(study, "aud", "auditor", root)) == {"auditor"}, "the chair is root's own"
    assert not services.membership_remove(membership=user_create("aud").memberships.get(), acting_user=root)
    user_create("second root", is_superuser=True)
    assert roles_of(factories.member(study, "otto", "operator", root)) == set(), "someone could confirm it now"
    page = as_(root).get(reverse("staff:role_change", args=[study.slug, latest(study).sequence]))
    assert "Give up your role" in page.text
    rehearsal = rehearsal_with_table("dry")
    alone = factories.member(rehearsal, "new", "operator", user_create("olga"))
    assert roles_of(alone) == {"operator"}, "a rehearsal makes no promises to supervise"


@pytest.mark.parametrize("kind", ["changed", "closed", "no_superuser"])
def test_a_superuser_cannot_exclude_the_second_person(study: Study, kind: str) -> None:
    root = user_create("root", is_superuser=True)
    factories.member(study, "root", "operator")
    other = user_create("other")
    if kind == "no_superuser":
        factories.member(study, "clara", "chair", root)  # root's own
    else:
        factories.member(study, "other", "auditor")
    AccountChange.append([AccountChange(user=other, changed_by=root, kind=kind)])
    User.objects.filter(pk=other.pk).update(is_active=kind != "closed")
    assert roles_of(factories.member(study, "otto", "operator", root)) == set()


def test_the_database_requires_a_second_person(watched: Study, otto: User) -> None:
    row = RoleChange(study=watched, user=otto, role="steward", kind="given", changed_by=otto, proposed_by=otto)
    with pytest.raises(IntegrityError, match="second_person"), transaction.atomic():
        row.sequence, row.previous_hash, row.hash = 999, "0" * 64, "1" * 64
        row.save()


def proposed(watched: Study, user: User) -> Run:
    return run_draft(watched, proposer=user, **TABLE_RUN)


def test_an_account_is_not_a_second_person_for_the_administrator_who_made_it(watched: Study) -> None:
    """This is also true if someone who oversees the study confirmed that account's role."""
    ada, puppet = administrator(watched, "ada", "operator", "puppet")
    services.membership_add(study=watched, user=puppet, role="operator", acting_user=ada)
    assert roles_of(puppet) == set()
    confirm(watched, user_create("clara"))
    assert roles_of(puppet) == {"operator"}
    for first, second in ((puppet, ada), (ada, puppet)):
        run = proposed(watched, first)
        with pytest.raises(ValidationError, match="treated as one person"):
            run_approve(run=run, acting_user=second)
        as_(second).post(url("run_approve", run), {"share": "100", "revision": run.revision})
        run.refresh_from_db()
        assert run.status == "draft"
    assert run_approve(run=run, acting_user=user_create("olga")).status == "approved"


def test_policies_forms_and_roles_need_a_second_person_too(watched: Study) -> None:
    carla, puppet = administrator(watched, "carla", "committee", "puppet")
    factories.member(watched, "puppet", "committee")
    values = {"high": 1, "average": 2, "low": 4, "reason": "More for everybody."}
    policy = services.epsilon_policy_propose(study=watched, acting_user=carla, **values)
    form = services.consent_form_propose(study=watched, acting_user=carla, texts={"en": "More."}, renewal="required")
    olga, spy = administrator(watched, "olga", "operator", "spy")
    factories.member(watched, "spy", "auditor")
    factories.member(watched, "friend", "operator", olga)
    for act, fields in (
        (services.epsilon_policy_approve, {"policy": policy, "acting_user": puppet}),
        (services.consent_form_approve, {"proposal": form, "acting_user": puppet}),
        (services.role_change_confirm, {"proposal": latest(watched), "acting_user": spy}),
    ):
        with pytest.raises(ValidationError, match="treated as one person"):
            act(**fields)


def test_an_account_changed_in_the_admin_is_not_a_second_person(watched: Study) -> None:
    root = user_create("root", is_superuser=True, is_staff=True)
    client = as_(root)
    words = {"usable_password": "true", "password1": "changed 4711", "password2": "changed 4711"}
    assert client.post(reverse("admin:auth_user_add"), {"username": "made", **words}).status_code == 302
    edited, moved = (factories.member(watched, name, "operator") for name in ("edited", "moved"))
    password = reverse("admin:auth_user_password_change", args=[edited.pk])
    assert client.post(password, words).status_code == 302
    client.post(reverse("admin:account_emailaddress_add"), {"user": moved.pk, "email": "r@example.org"})
    assert EmailAddress.objects.get().user == moved
    factories.member(watched, "made", "operator")
    run = proposed(watched, root)
    for name in ("made", "edited", "moved"):
        with pytest.raises(ValidationError, match="treated as one person"):
            run_approve(run=run, acting_user=User.objects.get(username=name))
    hanna = user_create("hanna")
    factories.holder_create(watched, "hers", user=hanna)
    client.post(reverse("admin:auth_user_password_change", args=[hanna.pk]), words)
    assert AccountChange.objects.filter(user=hanna, kind="changed", changed_by=root).exists()
    assert "hanna" not in client.get(reverse("staff_accounts")).text, "a holder is in no list of staff"


def test_a_role_given_by_one_person_does_not_make_a_second_person(watched: Study) -> None:
    root = user_create("root", is_superuser=True)
    gift = factories.member(watched, "gift", "operator", root)
    assert roles_of(gift) == {"operator"}
    run = proposed(watched, root)
    with pytest.raises(ValidationError, match="treated as one person"):
        run_approve(run=run, acting_user=gift)
    services.membership_remove(membership=gift.memberships.get(), acting_user=None)
    factories.member(watched, "gift", "operator", user_create("olga"))
    confirm(watched, user_create("clara"))
    assert run_approve(run=run, acting_user=gift).status == "approved"


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
    assert hanna.has_perm("consent.view_dashboard", holder), "same permission as in the object's study"


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


def test_no_page_links_from_a_holder_to_their_choice(admin: Client, holder: DataHolder) -> None:
    """Every look-up of a person's level is recorded."""
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
    assert page.status_code == 403, "the question names what would be deleted"
    chosen = {"action": "delete_selected", "_selected_action": [holder.pk]}
    assert "high" not in admin.post(pages["dataholder"], chosen, follow=True).text.lower()
