"""Acts about roles that one person could do alone: each was carried out once, and takes a second person now."""

from collections.abc import Callable
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
from tests.pages import as_, url
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_draft, study_with_table
from training.models import Run
from training.services.runs import run_approve

pytestmark = pytest.mark.django_db


def roles(user: User) -> set[str]:
    return set(user.memberships.values_list("role", flat=True))


def give(study: Study, name: str, role: str, acting_user: User | None = None) -> User:
    user = factories.user_create(name)
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
        give(study, name, role)
    return study


@pytest.fixture
def otto(study: Study) -> User:
    """An operator who is no data steward."""
    return give(study, "otto", "operator")


@pytest.fixture
def ada(study: Study) -> User:
    """An operator who administers the installation."""
    ada = give(study, "ada", "operator")
    administrator_set(user=ada, appointed=True, acting_user=None)
    return ada


@pytest.fixture
def puppet(ada: User) -> User:
    """An account that ``ada`` has made."""
    return account_create(username="puppet", first_name="P.", last_name="U.", email="p@example.org", acting_user=ada)


def by_service(actor: User, study: Study, user: User, role: str) -> None:
    try:
        services.membership_add(study=study, user=user, role=role, acting_user=actor)
    except (PermissionDenied, ValidationError):
        return


def by_page(actor: User, study: Study, user: User, role: str) -> None:
    as_(actor).post(url("members", study), {"username": user.username, "role": role})


def by_admin(actor: User, study: Study, user: User, role: str) -> None:
    as_(actor).post(reverse("admin:consent_membership_add"), {"study": study.pk, "user": user.pk, "role": role})


# --- Roles of one's own, and of those who watch ---------------------------------------------------------------------


@pytest.mark.parametrize("superuser", [False, True])
def test_operators_cannot_become_steward_or_auditor_nor_dismiss_or_appoint_one(
    study: Study, otto: User, superuser: bool
) -> None:
    User.objects.filter(pk=otto.pk).update(is_superuser=superuser, is_staff=True)
    otto.refresh_from_db()
    aud, friend = User.objects.get(username="aud"), factories.user_create("friend")
    membership = aud.memberships.get()
    as_(otto).post(url("member_remove", study, membership.pk))
    as_(otto).post(reverse("admin:consent_membership_delete", args=[membership.pk]), {"post": "yes"})
    services.membership_remove(membership=membership, acting_user=otto)
    for way in (by_service, by_page, by_admin):
        way(otto, study, friend, "auditor")
        for role in ("steward", "auditor", "committee", "chair"):
            way(otto, study, otto, role)
            if latest(study) is not None:
                with pytest.raises((PermissionDenied, ValidationError)):
                    confirm(study, otto)
    assert (roles(otto), roles(aud), roles(friend)) == ({"operator"}, {"auditor"}, set())


def test_both_are_done_by_two_on_record(study: Study, otto: User) -> None:
    clara, aud = User.objects.get(username="clara"), User.objects.get(username="aud")
    services.membership_add(study=study, user=otto, role="steward", acting_user=otto)
    confirm(study, clara)
    assert roles(otto) == {"operator", "steward"}
    services.membership_remove(membership=aud.memberships.get(), acting_user=otto)
    confirm(study, clara)
    assert roles(aud) == set()
    rows = RoleChange.chain(study.pk).order_by("-sequence")[:4].values_list("kind", "changed_by", "proposed_by")
    assert list(rows) == [
        ("taken", clara.pk, otto.pk),
        ("to_take", otto.pk, None),
        ("given", clara.pk, otto.pk),
        ("to_give", otto.pk, None),
    ]


def test_watcher_gives_themself_no_role_either(study: Study) -> None:
    clara, carla = User.objects.get(username="clara"), User.objects.get(username="carla")
    give(study, "new", "committee", clara)
    with pytest.raises(ValidationError, match="You proposed this yourself"):
        confirm(study, clara)
    new = give(study, "rita", "researcher", factories.user_create("olga"))
    give(study, "carla", "researcher", factories.user_create("olga"))
    with pytest.raises(ValidationError, match="Nobody confirms a role of their own"):
        confirm(study, carla)
    assert roles(new) == set()


def test_giving_up_takes_one_person_but_the_last_stay(study: Study, otto: User) -> None:
    clara, olga = User.objects.get(username="clara"), User.objects.get(username="olga")
    with pytest.raises(ValidationError, match="needs somebody with the role “chair of the ethics committee”"):
        services.membership_remove(membership=clara.memberships.get(), acting_user=clara)
    assert services.membership_remove(membership=otto.memberships.get(), acting_user=otto)
    with pytest.raises(ValidationError, match="needs somebody with the role “operator”"):
        services.membership_remove(membership=olga.memberships.get(role="operator"), acting_user=olga)
    closed = give(study, "closed", "operator")
    User.objects.filter(pk=closed.pk).update(is_active=False)
    with pytest.raises(ValidationError, match="needs somebody with the role “operator”"):
        services.membership_remove(membership=olga.memberships.get(role="operator"), acting_user=olga)


def test_a_proposal_ends_with_its_proposers_role_and_with_what_excludes_it(study: Study, otto: User) -> None:
    clara, olga = User.objects.get(username="clara"), User.objects.get(username="olga")
    give(study, "new", "auditor", otto)
    services.membership_remove(membership=otto.memberships.get(), acting_user=otto)
    with pytest.raises(ValidationError, match="may not give this role any more"):
        confirm(study, clara)
    services.role_change_drop(proposal=latest(study), acting_user=clara)
    give(study, "new", "auditor", olga)
    give(study, "new", "researcher")
    with pytest.raises(ValidationError, match="excludes this one"):
        confirm(study, clara)
    with pytest.raises(PermissionDenied):
        services.role_change_drop(proposal=latest(study), acting_user=factories.user_create("new"))


def test_a_superuser_founds_what_nobody_watches_and_no_more() -> None:
    root = factories.user_create("root", is_superuser=True)
    study = services.study_create(
        acting_user=root, slug="young", title="T", purpose="P", controller="C", contact="c@example.org"
    )
    assert roles(root) == {"operator"}
    give(study, "root", "steward", root)
    assert roles(root) == {"operator"}
    assert roles(give(study, "clara", "chair", root)) == {"chair"}
    assert roles(give(study, "aud", "auditor", root)) == set(), "now somebody could confirm it"
    rehearsal = rehearsal_with_table("dry")
    alone = give(rehearsal, "new", "operator", factories.user_create("olga"))
    assert roles(alone) == {"operator"}, "a rehearsal promises nothing to watch over"


def test_the_database_itself_knows_a_second_person(study: Study, otto: User) -> None:
    row = RoleChange(study=study, user=otto, role="steward", kind="given", changed_by=otto, proposed_by=otto)
    with pytest.raises(IntegrityError, match="second_person"), transaction.atomic(), connection.cursor():
        row.sequence, row.previous_hash, row.hash = 999, "0" * 64, "1" * 64
        row.save()


# --- One person with two accounts -----------------------------------------------------------------------------------


def proposed(study: Study, user: User) -> Run:
    return run_draft(study, proposer=user, **TABLE_RUN)


@pytest.mark.slow
def test_an_account_that_an_administrator_made_is_no_second_person_for_them(
    study: Study, ada: User, puppet: User
) -> None:
    """Even where somebody who watches the study was led to confirm its role."""
    services.membership_add(study=study, user=puppet, role="operator", acting_user=ada)
    assert roles(puppet) == set()
    confirm(study, User.objects.get(username="clara"))
    assert roles(puppet) == {"operator"}
    for first, second in ((puppet, ada), (ada, puppet)):
        run = proposed(study, first)
        with pytest.raises(ValidationError, match="count as one person"):
            run_approve(run=run, acting_user=second)
        as_(second).post(url("run_approve", run), {"share": "100", "revision": run.revision})
        run.refresh_from_db()
        assert run.status == "draft"
    assert run_approve(run=run, acting_user=User.objects.get(username="olga")).status == "approved"


def test_nor_for_policies_forms_and_roles(study: Study) -> None:
    carla = User.objects.get(username="carla")
    administrator_set(user=carla, appointed=True, acting_user=None)
    names = {"first_name": "P.", "last_name": "U."}
    puppet = account_create(username="puppet", email="p@example.org", acting_user=carla, **names)
    give(study, "puppet", "committee")
    policy = services.epsilon_policy_propose(
        study=study, acting_user=carla, high=1, average=2, low=4, reason="More for everybody."
    )
    form = services.consent_form_propose(study=study, acting_user=carla, texts={"en": "More."}, renewal="required")
    olga = User.objects.get(username="olga")
    administrator_set(user=olga, appointed=True, acting_user=None)
    spy = account_create(username="spy", email="s@example.org", acting_user=olga, **names)
    give(study, "spy", "auditor")
    give(study, "friend", "operator", olga)
    attempts: list[Callable[[], Any]] = [
        lambda: services.epsilon_policy_approve(policy=policy, acting_user=puppet),
        lambda: services.consent_form_approve(proposal=form, acting_user=puppet),
        lambda: confirm(study, spy),
    ]
    for attempt in attempts:
        with pytest.raises(ValidationError, match="count as one person"):
            attempt()


def test_an_account_changed_in_the_admin_counts_as_no_second_person(study: Study) -> None:
    root = factories.user_create("root", is_superuser=True, is_staff=True)
    client = as_(root)
    words = {"usable_password": "true", "password1": "changed 4711", "password2": "changed 4711"}
    assert client.post(reverse("admin:auth_user_add"), {"username": "made", **words}).status_code == 302
    edited, moved = (give(study, name, "operator") for name in ("edited", "moved"))
    password = reverse("admin:auth_user_password_change", args=[edited.pk])
    assert client.post(password, words).status_code == 302
    client.post(reverse("admin:account_emailaddress_add"), {"user": moved.pk, "email": "r@example.org"})
    assert EmailAddress.objects.get().user == moved
    give(study, "made", "operator")
    run = proposed(study, root)
    for name in ("made", "edited", "moved"):
        with pytest.raises(ValidationError, match="count as one person"):
            run_approve(run=run, acting_user=User.objects.get(username=name))
    hanna = factories.user_create("hanna")
    factories.holder_create(study, "hers", user=hanna)
    client.post(reverse("admin:auth_user_password_change", args=[hanna.pk]), words)
    assert AccountChange.objects.filter(user=hanna, kind="changed", changed_by=root).exists()
    assert "hanna" not in client.get(reverse("staff_accounts")).text, "a holder, whom no list of staff names"


def test_a_role_that_one_person_gave_alone_makes_no_second_person(study: Study) -> None:
    root = factories.user_create("root", is_superuser=True)
    gift = give(study, "gift", "operator", root)
    assert roles(gift) == {"operator"}
    run = proposed(study, root)
    with pytest.raises(ValidationError, match="count as one person"):
        run_approve(run=run, acting_user=gift)
    services.membership_remove(membership=gift.memberships.get(), acting_user=None)
    give(study, "gift", "operator", User.objects.get(username="olga"))
    confirm(study, User.objects.get(username="clara"))
    assert run_approve(run=run, acting_user=gift).status == "approved"


# --- Everybody hears of it ------------------------------------------------------------------------------------------


def recipients() -> set[str]:
    names = set(Mail.objects.filter(kind="role_changed").values_list("user__username", flat=True))
    Mail.objects.all().delete()
    return names


def test_a_change_notifies_everybody_in_the_study(study: Study, otto: User) -> None:
    everybody = set(Membership.objects.values_list("user__username", flat=True))
    clara = User.objects.get(username="clara")
    recipients()
    new = give(study, "new", "researcher", otto)
    assert recipients() == everybody - {"otto"}, "who proposed it knows"
    confirm(study, clara)
    assert recipients() == everybody - {"clara"} | {"new"}
    services.membership_remove(membership=new.memberships.get(), acting_user=otto)
    assert recipients() == everybody - {"otto"} | {"new"}
    services.role_change_drop(proposal=latest(study), acting_user=clara)
    assert recipients() == everybody - {"clara"} | {"new"}
    services.membership_remove(membership=new.memberships.get(), acting_user=None)
    assert recipients() == everybody | {"new"}, "whose role is gone, too"
