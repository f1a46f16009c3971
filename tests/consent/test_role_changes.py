"""Roles: who gives them, that nobody is on both sides of a study, and that every change is on record."""

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.urls import reverse

from consent import services
from consent.models import Membership, Role, RoleChange, Study
from consent.selectors import role_faults
from tests import factories
from tests.factories import user_create
from tests.pages import as_
from tests.training.test_concurrency import at_once

#: Pairs of roles that one person cannot have, repeated independently of the table under test.
EXCLUSIVE = {
    *(frozenset({"auditor", other}) for other in ("operator", "steward", "committee", "chair", "researcher")),
    *(frozenset({"committee", other}) for other in ("operator", "steward", "chair")),
    *(frozenset({"chair", other}) for other in ("operator", "steward")),
    frozenset({"steward", "researcher"}),
}


def give(study: Study, user: User, role: str, acting_user: User | None = None) -> Membership | None:
    return services.membership_add(study=study, user=user, role=role, acting_user=acting_user)


def confirm(study: Study, person: User) -> None:
    """``person`` confirms the latest proposal."""
    proposal = RoleChange.chain(study.pk).filter(kind__in=RoleChange.PROPOSALS).last()
    services.role_change_confirm(proposal=proposal, acting_user=person)


def record(study: Study) -> list[tuple[str, str, str]]:
    """Person, role and change, in the order in which they were recorded."""
    names = dict(User.objects.values_list("pk", "username"))
    rows = RoleChange.chain(study.pk).values_list("user_id", "role", "kind")
    return [(names.get(user, "gone"), role, kind) for user, role, kind in rows]


def role_of(study: Study, user: User) -> set[str]:
    return set(Membership.objects.filter(study=study, user=user).values_list("role", flat=True))


@pytest.fixture
def chair(study: Study) -> User:
    chair = user_create("clara")
    give(study, chair, "chair")
    return chair


@pytest.fixture
def root(db: None) -> User:
    return user_create("root", is_superuser=True, is_staff=True)


@pytest.fixture
def olga(study: Study) -> User:
    return User.objects.get(username="olga")


GIVES = {
    "olga": {"operator", "steward", "auditor", "researcher"},
    "clara": {"committee", "chair"},
    **{role: set() for role in ("steward", "committee", "auditor", "researcher", "nobody")},
}


@pytest.mark.slow
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
                assert role_of(study, user) == {role}
                continue
            assert give(study, user, role, acting) is None
            assert give(study, user, role, acting) is None, "and waits once"
            assert role_of(study, user) == set()
            confirm(study, second)
            assert role_of(study, user) == {role}
            assert services.membership_remove(membership=user.memberships.get(), acting_user=acting) is False
            assert role_of(study, user) == {role}
            confirm(study, second)
            assert role_of(study, user) == set()
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
def test_roles_that_must_not_meet_do_not(study: Study, root: User, first: str) -> None:
    elsewhere = factories.study_create("elsewhere")
    for second in Role.values:
        person = user_create(f"{first} and {second}")
        give(study, person, first, root)
        if frozenset({first, second}) not in EXCLUSIVE:
            give(study, person, second, root)
            assert role_of(study, person) == {first, second}
            continue
        with pytest.raises(ValidationError, match="a role in the study that excludes this one"):
            give(study, person, second, root)
        with pytest.raises(IntegrityError), transaction.atomic():
            Membership.objects.bulk_create([Membership(study=study, user=person, role=second)])
        give(elsewhere, person, second)  # in another study they may
        with pytest.raises(IntegrityError), transaction.atomic():
            Membership.objects.filter(user=person, study=elsewhere).update(study=study)
        assert (role_of(study, person), role_of(elsewhere, person)) == ({first}, {second})
    if first == "auditor":
        page = as_(root).post(reverse("staff:members", args=[study.slug]), {"username": person, "role": second})
        assert page.status_code == 422
        assert "a role in the study that excludes this one" in page.text


@pytest.mark.django_db(transaction=True)
def test_one_of_two_exclusive_roles_given_at_once_is_refused() -> None:
    study, hanna = factories.study_create(), user_create("hanna")
    roles = ("operator", "committee", "chair", "auditor") * 2
    outcomes = at_once([lambda role=role: give(study, hanna, role) for role in roles])
    given = {outcome.role for outcome in outcomes if isinstance(outcome, Membership)}
    assert len(given) == 1
    assert role_of(study, hanna) == given
    assert all(isinstance(outcome, Membership | ValidationError) for outcome in outcomes)
    assert record(study)[2:] == [("hanna", given.pop(), "given")]
    assert list(RoleChange.chain_faults(study.pk)) == []


def test_an_operator_who_is_a_superuser_decides_on_no_epsilon(study: Study, root: User) -> None:
    carla, values = user_create("carla"), {"high": 0.5, "average": 1, "low": 2, "reason": "Less."}
    policy = services.epsilon_policy_propose(study=study, acting_user=carla, **values)
    give(study, root, "operator")
    with pytest.raises(ValidationError, match="for the ethics committee to decide"):
        services.epsilon_policy_approve(policy=policy, acting_user=root)
    with pytest.raises(ValidationError, match="for the ethics committee to decide"):
        services.epsilon_policy_propose(study=study, acting_user=root, **values)
    carla.delete()
    with pytest.raises(ValidationError, match="Propose anew"):
        services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))


def test_a_new_study_begins_its_record_with_who_created_it(olga: User, study: Study, hanna: User) -> None:
    changes = [(change.user, change.role, change.kind, change.changed_by) for change in RoleChange.chain(study.pk)]
    assert changes[0] == (olga, "operator", "given", olga)
    memberships = [give(study, hanna, "auditor") for _ in range(2)]
    with pytest.raises(ProtectedError):
        hanna.delete()
    for membership in memberships:
        services.membership_remove(membership=membership, acting_user=None)
    assert record(study)[2:] == [("hanna", "auditor", "given"), ("hanna", "auditor", "taken")], "each once"
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
        page = as_(reader).get(reverse("staff:members", args=[study.slug])).text
        for part in ("Roles given and taken away", f"deleted account {number}", "the installation's administration"):
            assert (part in page) is sees, role


def test_a_role_given_behind_the_record_is_found(study: Study, hanna: User, olga: User) -> None:
    Membership.objects.bulk_create([Membership(study=study, user=hanna, role="chair")])
    assert list(role_faults(study)) == [f"user {hanna.pk} is chair, but nobody is on record as having given the role."]
    Membership.objects.filter(study=study).delete()
    assert list(role_faults(study)) == [
        f"user {olga.pk} is on record as {role}, but does not have the role, and nobody as having taken it away."
        for role in ("operator", "steward")
    ]
