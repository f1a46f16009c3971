"""Accounts of staff, made in the browser by administrators of the installation, who gain nothing else by it."""

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client
from django.urls import reverse

from consent import services
from consent.models import AccountChange, Membership, Role, Study
from consent.services import accounts
from consent.services.mail import mails_send
from ipate_web.tokens.models import ApiToken
from tests import factories
from tests.ipate_web.accounts.conftest import Mailbox, link_in, sign_in, subject
from tests.pages import as_

pytestmark = pytest.mark.django_db

PERSON = {"username": "dora", "first_name": "Dora", "last_name": "Data", "email": "dora@example.org"}


@pytest.fixture
def ada() -> User:
    user = factories.user_create("ada")
    accounts.administrator_set(user=user, appointed=True, acting_user=None)
    return user


@pytest.fixture
def administrator(ada: User) -> Client:
    return as_(ada)


def test_a_new_account_gets_its_password_by_mail(administrator: Client, mailbox: Mailbox, ada: User) -> None:
    html = administrator.post(reverse("staff_account_new"), PERSON, follow=True)
    assert "We have emailed a link to dora@example.org." in html.text
    (sent,) = mailbox.deliver()
    assert (sent["To"], subject(sent)) == ("dora@example.org", "An account has been created for you")
    theirs = Client()
    page = theirs.get(link_in(sent), follow=True)
    theirs.post(page.request["PATH_INFO"], {"password1": factories.PASSWORD, "password2": factories.PASSWORD})
    assert sign_in(theirs, "dora").status_code == 302
    assert EmailAddress.objects.get().verified
    dora = User.objects.get(username="dora")
    assert not dora.memberships.exists()
    assert list(AccountChange.objects.values_list("user", "kind", "changed_by")) == [
        (ada.pk, "appointed", None),
        (dora.pk, "created", ada.pk),
    ]


def test_the_link_is_sent_again_to_those_who_never_signed_in(administrator: Client, mailbox: Mailbox) -> None:
    administrator.post(reverse("staff_account_new"), PERSON)
    dora = User.objects.get(username="dora")
    invite = reverse("staff_account_invite", args=[dora.pk])
    assert "Send dora the link again?" in administrator.get(invite).text
    administrator.post(invite)
    assert len(mailbox.deliver()) == 2
    User.objects.filter(pk=dora.pk).update(last_login=dora.date_joined)
    assert administrator.post(invite).status_code == 404
    with pytest.raises(PermissionDenied):
        accounts.account_invite(user=dora, acting_user=User.objects.get(username="ada"))


def test_wrong_entries_are_refused(administrator: Client) -> None:
    for wrong in ({"username": "ADA"}, {"email": "no address"}, {"username": "a b"}, {"last_name": ""}):
        answer = administrator.post(reverse("staff_account_new"), PERSON | wrong)
        assert answer.status_code == 422 and "There is a problem" in answer.text, wrong
    assert not User.objects.filter(first_name="Dora").exists()


def test_they_reach_no_study_that_is_there_and_no_holder(administrator: Client) -> None:
    study = factories.study_open()
    factories.holder_create(study, user=factories.user_create("hanna", email="hanna@example.org"))
    assert administrator.get(reverse("staff:study", args=[study.slug])).status_code == 404
    page = administrator.get(reverse("staff_accounts")).text
    assert "olga" in page
    assert "hanna" not in page


def test_they_operate_their_studies_and_appoint_no_committee_nor_each_other(administrator: Client, ada: User) -> None:
    fields = {"title": "Own", "purpose": "P", "controller": "C", "contact": "c@example.org"}
    assert administrator.post(reverse("staff:study_new"), fields).status_code == 302
    assert {(row.role, row.user) for row in Membership.objects.all()} == {("operator", ada)}
    friend = factories.user_create("friend")
    for role in (Role.COMMITTEE, Role.CHAIR):
        with pytest.raises(PermissionDenied):
            services.membership_add(study=Study.objects.get(), user=friend, role=role, acting_user=ada)
    assert administrator.post(reverse("administrator", args=[friend.pk])).status_code == 403
    with pytest.raises(PermissionDenied):
        accounts.administrator_set(user=friend, appointed=True, acting_user=ada)


def test_superusers_say_who_administers_on_record(ada: User) -> None:
    root = as_(factories.user_create("root", is_superuser=True, is_staff=True))
    page = reverse("administrator", args=[ada.pk])
    assert "Remove ada as an administrator?" in root.get(page).text
    for _click in range(2):
        root.post(page, {"act": "remove"})
        assert not User.objects.get(pk=ada.pk).has_perm("consent.manage_accounts")
    root.post(page, {"act": "appoint"})
    assert User.objects.get(pk=ada.pk).has_perm("consent.manage_accounts")
    kinds = AccountChange.objects.filter(user=ada).values_list("kind", flat=True)
    assert list(kinds) == ["appointed", "dismissed", "appointed"]
    with pytest.raises(Exception, match="never edited"):
        AccountChange.objects.update(kind="created")


@pytest.fixture
def olga() -> User:
    """Operator of a study: an account of staff."""
    factories.study_create()
    return User.objects.get(username="olga")


def close(person: User) -> str:
    return reverse("staff_account_close", args=[person.pk])


def test_a_closed_account_is_out_at_once_and_comes_back_without_what_ended(administrator, mailbox, ada, olga) -> None:
    EmailAddress.objects.create(user=olga, email="olga@example.org", verified=True)
    hers = Client()
    sign_in(hers, "olga")
    program = {"HTTP_AUTHORIZATION": f"Bearer {ApiToken.objects.create(olga, name='notebook')[1]}"}
    assert hers.get("/studies/digits/").status_code == 200
    assert Client().get(reverse("api:studies"), **program).status_code == 200
    assert "“Study digits” would be left with no operator who can sign in." in administrator.get(close(olga)).text
    for _click in range(2):
        administrator.post(close(olga), {"act": "close"})
    assert hers.get("/studies/digits/").status_code == 302
    assert Client().get(reverse("api:studies"), **program).status_code == 401
    assert sign_in(Client(), "olga").url == reverse("account_inactive")
    mails_send("account_changed", [olga.pk], about="password_changed")
    assert mailbox.deliver() == []
    assert "Reopen" in administrator.get(reverse("staff_accounts")).text
    administrator.post(close(olga), {"act": "reopen"})
    assert hers.get("/studies/digits/").status_code == 302, "the session does not come back"
    assert Client().get(reverse("api:studies"), **program).status_code == 401, "nor does the token"
    assert sign_in(hers, "olga").status_code == 302
    assert hers.get("/studies/digits/").status_code == 200, "the role does"
    acts = AccountChange.objects.filter(user=olga).order_by("pk").values_list("kind", "changed_by")
    assert list(acts) == [("closed", ada.pk), ("reopened", ada.pk)]


def test_the_last_administrator_stays_and_nobody_closes_their_own_account(administrator: Client, ada: User) -> None:
    with pytest.raises(ValidationError, match="last administrator"):
        accounts.account_close(user=ada, acting_user=None)
    bob = factories.user_create("bob")
    accounts.administrator_set(user=bob, appointed=True, acting_user=None)
    assert "You cannot close your own account." in administrator.post(close(ada), {"act": "close"}, follow=True).text
    assert User.objects.get(pk=ada.pk).is_active
    accounts.account_close(user=ada, acting_user=bob)
    with pytest.raises(ValidationError, match="last administrator"):
        accounts.account_close(user=bob, acting_user=None)


def test_accounts_out_of_reach_are_not_closed(administrator: Client, ada: User) -> None:
    root = factories.user_create("root", is_superuser=True, is_staff=True)
    assert administrator.post(close(root), {"act": "close"}).status_code == 403
    assert administrator.post(close(factories.user_create("hanna"))).status_code == 404, "no account of staff"
    with pytest.raises(PermissionDenied):
        accounts.account_close(user=ada, acting_user=factories.user_create("mallory"))
    chair = factories.user_create("clara")
    study = factories.study_create("hers")
    services.membership_add(study=study, user=chair, role=Role.CHAIR, acting_user=None)
    services.membership_add(study=study, user=ada, role=Role.OPERATOR, acting_user=None)
    assert administrator.post(close(chair), {"act": "close"}).status_code == 403, (
        "she oversees what the administrator operates"
    )
    assert User.objects.filter(is_active=False).count() == 0
