"""Acts about roles that one person could do alone: each was carried out once, and takes a second person now."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, connection, transaction
from django.urls import reverse

from consent import services
from consent.models import AccountChange, Mail, Membership, RoleChange, Study
from consent.services.accounts import account_create, administrator_set
from tests import factories
from tests.factories import user_create
from tests.pages import as_, url
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_draft, study_with_table
from training.models import Run
from training.services.runs import run_approve

pytestmark = pytest.mark.django_db


def roles_of(user: User) -> set[str]:
    return set(user.memberships.values_list("role", flat=True))


def appoint(study: Study, name: str, role: str, acting_user: User | None = None) -> User:
    user = user_create(name)
    services.membership_add(study=study, user=user, role=role, acting_user=acting_user)
    return user


def latest(study: Study) -> RoleChange:
    return RoleChange.chain(study.pk).filter(kind__in=RoleChange.PROPOSALS).last()


def confirm(study: Study, person: User) -> None:
    services.role_change_confirm(proposal=latest(study), acting_user=person)


@pytest.fixture
@built_once
def study() -> Study:
    study = study_with_table()
    for name, role in (("clara", "chair"), ("carla", "committee"), ("aud", "auditor")):
        appoint(study, name, role)
    return study


@pytest.fixture
def otto(study: Study) -> User:
    """An operator who is no data steward."""
    return appoint(study, "otto", "operator")


@pytest.fixture
def ada(study: Study) -> User:
    """An operator who administers the installation."""
    ada = appoint(study, "ada", "operator")
    administrator_set(user=ada, appointed=True, acting_user=None)
    return ada


@pytest.fixture
def puppet(ada: User) -> User:
    """An account that ``ada`` has made."""
    return account_create(username="puppet", first_name="P.", last_name="U.", email="p@example.org", acting_user=ada)


@pytest.mark.parametrize("superuser", [False, True])
def test_operators_cannot_become_steward_or_auditor_nor_dismiss_or_appoint_one(study, otto, superuser: bool) -> None:
    User.objects.filter(pk=otto.pk).update(is_superuser=superuser)
    otto.refresh_from_db()
    aud, friend = user_create("aud"), user_create("friend")
    services.membership_remove(membership=aud.memberships.get(), acting_user=otto)
    for person, role in [(friend, "auditor"), *((otto, role) for role in ("steward", "auditor", "committee", "chair"))]:
        with suppress(PermissionDenied, ValidationError):
            services.membership_add(study=study, user=person, role=role, acting_user=otto)
        with pytest.raises((PermissionDenied, ValidationError)):
            confirm(study, otto)
        as_(otto).post(url("members", study), {"username": person.username, "role": role})
    assert (roles_of(otto), roles_of(aud), roles_of(friend)) == ({"operator"}, {"auditor"}, set())


def test_watcher_gives_themself_no_role_either(study: Study) -> None:
    clara, carla = user_create("clara"), user_create("carla")
    appoint(study, "new", "committee", clara)
    with pytest.raises(ValidationError, match="You proposed this yourself"):
        confirm(study, clara)
    new = appoint(study, "rita", "researcher", user_create("olga"))
    appoint(study, "carla", "researcher", user_create("olga"))
    with pytest.raises(ValidationError, match="Nobody confirms a role of their own"):
        confirm(study, carla)
    assert roles_of(new) == set()


def test_giving_up_takes_one_person_but_the_last_stay(study: Study, otto: User) -> None:
    clara, olga = user_create("clara"), user_create("olga")
    with pytest.raises(ValidationError, match="needs somebody with the role “chair of the ethics committee”"):
        services.membership_remove(membership=clara.memberships.get(), acting_user=clara)
    assert services.membership_remove(membership=otto.memberships.get(), acting_user=otto)
    with pytest.raises(ValidationError, match="needs somebody with the role “operator”"):
        services.membership_remove(membership=olga.memberships.get(role="operator"), acting_user=olga)
    closed = appoint(study, "closed", "operator")
    User.objects.filter(pk=closed.pk).update(is_active=False)
    with pytest.raises(ValidationError, match="needs somebody with the role “operator”"):
        services.membership_remove(membership=olga.memberships.get(role="operator"), acting_user=olga)


def test_a_proposal_ends_with_its_proposers_role_and_with_what_excludes_it(study: Study, otto: User) -> None:
    clara, olga = user_create("clara"), user_create("olga")
    appoint(study, "new", "auditor", otto)
    services.membership_remove(membership=otto.memberships.get(), acting_user=otto)
    with pytest.raises(ValidationError, match="may not give this role any more"):
        confirm(study, clara)
    services.role_change_drop(proposal=latest(study), acting_user=clara)
    appoint(study, "new", "auditor", olga)
    appoint(study, "new", "researcher")
    with pytest.raises(ValidationError, match="excludes this one"):
        confirm(study, clara)
    with pytest.raises(PermissionDenied):
        services.role_change_drop(proposal=latest(study), acting_user=user_create("new"))


def test_a_superuser_founds_what_nobody_watches_and_no_more() -> None:
    root = user_create("root", is_superuser=True)
    study = services.study_create(
        acting_user=root, slug="young", title="T", purpose="P", controller="C", contact="c@example.org"
    )
    assert roles_of(root) == {"operator"}
    appoint(study, "root", "steward", root)
    assert roles_of(root) == {"operator"}
    assert roles_of(appoint(study, "clara", "chair", root)) == {"chair"}
    assert roles_of(appoint(study, "aud", "auditor", root)) == set(), "now somebody could confirm it"
    rehearsal = rehearsal_with_table("dry")
    alone = appoint(rehearsal, "new", "operator", user_create("olga"))
    assert roles_of(alone) == {"operator"}, "a rehearsal promises nothing to watch over"


def test_the_database_itself_knows_a_second_person(study: Study, otto: User) -> None:
    row = RoleChange(study=study, user=otto, role="steward", kind="given", changed_by=otto, proposed_by=otto)
    with pytest.raises(IntegrityError, match="second_person"), transaction.atomic(), connection.cursor():
        row.sequence, row.previous_hash, row.hash = 999, "0" * 64, "1" * 64
        row.save()


def proposed(study: Study, user: User) -> Run:
    return run_draft(study, proposer=user, **TABLE_RUN)


@pytest.mark.slow
def test_an_account_that_an_administrator_made_is_no_second_person_for_them(study, ada, puppet) -> None:
    """Even where somebody who watches the study was led to confirm its role."""
    services.membership_add(study=study, user=puppet, role="operator", acting_user=ada)
    assert roles_of(puppet) == set()
    confirm(study, user_create("clara"))
    assert roles_of(puppet) == {"operator"}
    for first, second in ((puppet, ada), (ada, puppet)):
        run = proposed(study, first)
        with pytest.raises(ValidationError, match="count as one person"):
            run_approve(run=run, acting_user=second)
        as_(second).post(url("run_approve", run), {"share": "100", "revision": run.revision})
        run.refresh_from_db()
        assert run.status == "draft"
    assert run_approve(run=run, acting_user=user_create("olga")).status == "approved"


def test_nor_for_policies_forms_and_roles(study: Study) -> None:
    carla = user_create("carla")
    administrator_set(user=carla, appointed=True, acting_user=None)
    names = {"first_name": "P.", "last_name": "U."}
    puppet = account_create(username="puppet", email="p@example.org", acting_user=carla, **names)
    appoint(study, "puppet", "committee")
    policy = services.epsilon_policy_propose(
        study=study, acting_user=carla, high=1, average=2, low=4, reason="More for everybody."
    )
    form = services.consent_form_propose(study=study, acting_user=carla, texts={"en": "More."}, renewal="required")
    olga = user_create("olga")
    administrator_set(user=olga, appointed=True, acting_user=None)
    spy = account_create(username="spy", email="s@example.org", acting_user=olga, **names)
    appoint(study, "spy", "auditor")
    appoint(study, "friend", "operator", olga)
    attempts: list[Callable[[], Any]] = [
        lambda: services.epsilon_policy_approve(policy=policy, acting_user=puppet),
        lambda: services.consent_form_approve(proposal=form, acting_user=puppet),
        lambda: confirm(study, spy),
    ]
    for attempt in attempts:
        with pytest.raises(ValidationError, match="count as one person"):
            attempt()


def test_an_account_changed_in_the_admin_counts_as_no_second_person(study: Study) -> None:
    root = user_create("root", is_superuser=True, is_staff=True)
    client = as_(root)
    words = {"usable_password": "true", "password1": "changed 4711", "password2": "changed 4711"}
    assert client.post(reverse("admin:auth_user_add"), {"username": "made", **words}).status_code == 302
    edited, moved = (appoint(study, name, "operator") for name in ("edited", "moved"))
    password = reverse("admin:auth_user_password_change", args=[edited.pk])
    assert client.post(password, words).status_code == 302
    client.post(reverse("admin:account_emailaddress_add"), {"user": moved.pk, "email": "r@example.org"})
    assert EmailAddress.objects.get().user == moved
    appoint(study, "made", "operator")
    run = proposed(study, root)
    for name in ("made", "edited", "moved"):
        with pytest.raises(ValidationError, match="count as one person"):
            run_approve(run=run, acting_user=User.objects.get(username=name))
    hanna = user_create("hanna")
    factories.holder_create(study, "hers", user=hanna)
    client.post(reverse("admin:auth_user_password_change", args=[hanna.pk]), words)
    assert AccountChange.objects.filter(user=hanna, kind="changed", changed_by=root).exists()
    assert "hanna" not in client.get(reverse("staff_accounts")).text, "a holder, whom no list of staff names"


def test_a_role_that_one_person_gave_alone_makes_no_second_person(study: Study) -> None:
    root = user_create("root", is_superuser=True)
    gift = appoint(study, "gift", "operator", root)
    assert roles_of(gift) == {"operator"}
    run = proposed(study, root)
    with pytest.raises(ValidationError, match="count as one person"):
        run_approve(run=run, acting_user=gift)
    services.membership_remove(membership=gift.memberships.get(), acting_user=None)
    appoint(study, "gift", "operator", user_create("olga"))
    confirm(study, user_create("clara"))
    assert run_approve(run=run, acting_user=gift).status == "approved"


def recipients() -> set[str]:
    names = set(Mail.objects.filter(kind="role_changed").values_list("user__username", flat=True))
    Mail.objects.all().delete()
    return names


def test_a_change_notifies_everybody_in_the_study(study: Study, otto: User) -> None:
    everybody = set(Membership.objects.values_list("user__username", flat=True))
    clara = user_create("clara")
    recipients()
    new = appoint(study, "new", "researcher", otto)
    assert recipients() == everybody - {"otto"}, "who proposed it knows"
    confirm(study, clara)
    assert recipients() == everybody - {"clara"} | {"new"}
    services.membership_remove(membership=new.memberships.get(), acting_user=otto)
    assert recipients() == everybody - {"otto"} | {"new"}
    services.role_change_drop(proposal=latest(study), acting_user=clara)
    assert recipients() == everybody - {"clara"} | {"new"}
    services.membership_remove(membership=new.memberships.get(), acting_user=None)
    assert recipients() == everybody | {"new"}, "whose role is gone, too"
