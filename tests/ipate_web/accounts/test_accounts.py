"""Addresses, passwords, the account page and single sign-on, with a real SMTP server and a real OpenID provider."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import oidc_provider_mock
import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client
from django.urls import NoReverseMatch, reverse

from consent import services
from consent.models import AccountChange, Mail, MailWishes, Membership, Role, Study
from consent.services import accounts
from consent.services.accounts import account_create
from consent.services.mail import mails_send
from ipate_web.tokens.models import ApiToken
from tests import factories
from tests.ipate_web.accounts.conftest import Mailbox, link_in, sign_in, subject, words
from tests.pages import as_

pytestmark = pytest.mark.django_db

NEW = "another pass phrase"


def hanna_create(*, confirmed: bool = True) -> User:
    user = factories.user_create("hanna", email="hanna@example.org")
    EmailAddress.objects.create(user=user, email=user.email, verified=confirmed, primary=True)
    return user


@pytest.fixture
def hanna() -> User:
    return hanna_create()


def test_a_password_is_reset_by_mail(client: Client, mailbox: Mailbox, hanna: User) -> None:
    elsewhere = Client()
    sign_in(elsewhere, "hanna")
    response = client.post(reverse("account_reset_password"), {"email": "Hanna@example.org"}, follow=True)
    assert "If there is an account with this confirmed address" in response.text
    (sent,) = mailbox.deliver()
    assert sent["To"] == "hanna@example.org"
    assert "Your user name: hanna" in words(sent)
    page = client.get(link_in(sent), follow=True)
    assert link_in(sent) not in page.request["PATH_INFO"]  # the key is no longer in the address bar
    done = client.post(page.request["PATH_INFO"], {"password1": NEW, "password2": NEW}, follow=True)
    assert "Sign out" in done.text and "You can now sign in with it." not in done.text
    assert sign_in(Client(), "hanna", NEW).status_code == 302
    assert elsewhere.get(reverse("account_overview")).status_code == 302  # signed out
    assert "This link has expired" in Client().get(link_in(sent), follow=True).text
    assert [subject(mail) for mail in mailbox.deliver()] == ["Your account has changed"]


def test_requesting_mails_is_limited_and_does_not_reveal_accounts(hanna: User, settings) -> None:
    settings.SIGN_IN_TRIES = 2
    client, answers, page = Client(), set(), reverse("account_reset_password")
    for address in ("hanna@example.org", "nobody@example.org"):
        asked = client.post(page, {"email": address}, follow=True)
        answers.add(re.sub(r'value="\w{64}"', "TOKEN", asked.text))
    assert len(answers) == 1
    assert [client.post(page, {"email": "hanna@example.org"}).status_code for _ in range(2)] == [302, 429]
    assert Mail.objects.count() == 2
    with pytest.raises(NoReverseMatch):  # people cannot sign up themselves
        reverse("account_signup")


def test_passwords_must_be_the_same_and_not_weak(client: Client, hanna: User) -> None:
    client.force_login(hanna)

    def change(first: str, second: str, old: str = factories.PASSWORD) -> str:
        fields = {"oldpassword": old, "password1": first, "password2": second}
        return client.post(reverse("account_change_password"), fields, follow=True).text

    assert "The passwords do not match. Type the same password twice." in change(NEW, "something else 9")
    assert "too short" in change("x4711", "x4711")
    assert "This is not your current password" in change(NEW, NEW, old="wrong")
    assert "Your password has been changed" in change(NEW, NEW)


def test_another_address_is_confirmed_and_takes_the_mails(client: Client, mailbox: Mailbox, hanna: User) -> None:
    client.force_login(hanna)
    page = reverse("account_email")
    assert "not confirmed" in client.post(page, {"action_add": "", "email": "new@example.org"}, follow=True).text
    (sent,) = (mail for mail in mailbox.deliver() if mail["To"] == "new@example.org")
    assert "Is new@example.org your address?" in client.get(link_in(sent)).text
    assert "new@example.org is confirmed." in client.post(link_in(sent), follow=True).text
    client.post(page, {"action_primary": "", "email": "new@example.org"})
    client.post(page, {"action_remove": "", "email": "hanna@example.org"})
    assert [(each.email, each.primary) for each in EmailAddress.objects.all()] == [("new@example.org", True)]
    assert sign_in(Client(), "new@example.org").status_code == 302


def test_name_and_wishes_are_kept(client: Client, hanna: User) -> None:
    study = factories.study_open()
    client.force_login(hanna)
    assert "when a new run may use my records" not in client.get(reverse("account_overview")).text
    factories.holder_create(study, user=hanna)
    assert "when something needs approval or" not in client.get(reverse("account_overview")).text
    sent = {"first_name": "Hanna", "last_name": "Holder", "language": "de", "uses": "on"}
    assert client.post(reverse("account_overview"), sent).status_code == 302
    wishes = MailWishes.objects.get()
    hanna.refresh_from_db()
    assert (hanna.get_full_name(), wishes.language, wishes.uses) == ("Hanna Holder", "de", True)
    client.force_login(User.objects.get(username="olga"))
    assert "when something needs approval or" in client.get(reverse("account_overview")).text
    client.post(reverse("account_overview"), {"language": "en", "ends": "on"})
    wishes = MailWishes.objects.get(user__username="olga")
    assert (wishes.approvals, wishes.ends, wishes.shares) == (False, True, False)


def test_overlong_input_signs_nobody_in(client: Client, hanna: User) -> None:
    page = client.post(reverse("account_login"), {"login": "h" * 60_000, "password": factories.PASSWORD})
    assert page.status_code == 200 and "at most 320 characters" in page.text


LOGIN = "/account/oidc/sso/login/"


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """Return the provider's address."""
    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def organisation(provider: str, settings) -> str:
    settings.OIDC_SERVER = provider
    app = {"provider_id": "sso", "name": "Clinic", "client_id": "ipate", "secret": "secret"}
    app["settings"] = {"server_url": provider}
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
    return provider


def sign_on(client: Client, organisation: str, email: str, *, verified: bool = True):
    """Go to the provider, sign in there as ``email``, and return."""
    httpx.put(f"{organisation}/users/{email}", json={"email": email, "email_verified": verified}).raise_for_status()
    away = client.post(LOGIN)
    assert away.url.startswith(f"{organisation}/oauth2/authorize")
    assert "code_challenge" in parse_qs(urlsplit(away.url).query)
    back = httpx.post(away.url, data={"sub": email}).headers["location"]
    parts = urlsplit(back)
    return client.get(f"{parts.path}?{parts.query}")


def test_an_account_is_found_by_its_confirmed_address(client: Client, organisation: str) -> None:
    page = client.get(reverse("account_login")).text
    assert f'href="{LOGIN}"' in page and "Sign in with Clinic" in page
    user = hanna_create()
    assert sign_on(client, organisation, "hanna@example.org").url == "/"
    assert client.session["_auth_user_id"] == str(user.pk)
    assert SocialAccount.objects.get().user == user
    assert not SocialToken.objects.exists()
    EmailAddress.objects.all().delete()
    assert sign_on(Client(), organisation, "hanna@example.org").url == "/", "connected from then on"
    account_create(username="dora", first_name="D", last_name="D", email="dora@example.org", acting_user=None)
    assert sign_on(Client(), organisation, "dora@example.org").url == "/", "an administrator has created it"


@pytest.mark.parametrize(
    ("address", "confirmed", "verified"),
    [("hanna@example.org", False, True), ("hanna@example.org", True, False), ("stranger@example.org", True, True)],
)
def test_an_address_that_one_side_has_not_confirmed_opens_no_account(
    client, organisation, address, confirmed, verified
):
    hanna_create(confirmed=confirmed)
    answer = sign_on(client, organisation, address, verified=verified)
    assert "You don't have an account here yet" in answer.text
    assert "_auth_user_id" not in client.session and User.objects.count() == 1


def test_the_second_factor_is_asked_for_here_too(client: Client, organisation: str) -> None:
    TOTP.activate(hanna_create(), generate_totp_secret())
    assert sign_on(client, organisation, "hanna@example.org").url.startswith(reverse("mfa_authenticate"))
    assert "_auth_user_id" not in client.session


def test_an_unavailable_provider_is_reported(client: Client, organisation: str, settings) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["server_url"] = "http://127.0.0.1:9"
    answer = client.post(LOGIN)
    assert "Sign-in failed" in answer.text


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
    recorded = list(AccountChange.objects.values_list("user", "kind", "changed_by"))
    assert recorded == [(ada.pk, "appointed", None), (dora.pk, "created", ada.pk)]


def test_the_link_is_sent_again_to_those_who_never_signed_in(administrator: Client, mailbox: Mailbox) -> None:
    administrator.post(reverse("staff_account_new"), PERSON)
    dora = User.objects.get(username="dora")
    invite = reverse("staff_account_invite", args=[dora.pk])
    assert "Resend the link to dora?" in administrator.get(invite).text
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


def test_administrators_see_no_existing_study_and_no_holder(administrator: Client) -> None:
    study = factories.study_open()
    factories.holder_create(study, user=factories.user_create("hanna", email="hanna@example.org"))
    assert administrator.get(reverse("staff:study", args=[study.slug])).status_code == 404
    page = administrator.get(reverse("staff_accounts")).text
    assert "olga" in page
    assert "hanna" not in page


def test_the_list_of_accounts_is_searched_and_its_changes_are_listed(administrator: Client) -> None:
    factories.study_open()
    closed = factories.user_create("zora", is_staff=True, is_active=False, last_name="Smith")
    address = reverse("staff_accounts")

    def names(**chosen: str) -> list[str]:
        return [row.username for row in administrator.get(address, chosen).context["list"].page]

    assert names(search="smith zor") == names(state="closed") == [closed.username]
    assert "ada" in names(state="administrator") and "olga" in names(state="new")
    assert names(sort="username") == sorted(names())
    assert administrator.get(address, {"format": "csv", "search": "smith"}).getvalue().count(b"zora") == 1
    administrator.post(reverse("staff_account_new"), PERSON)
    User.objects.get(username=PERSON["username"]).delete()
    changes = administrator.get(address, {"record": "changes", "kind": "created"})
    assert "deleted account" in changes.text
    assert "account created" in changes.text and 'value="changes"' in changes.text
    assert administrator.get(address, {"state": "lost"}).status_code == 422


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


def test_superusers_appoint_administrators_and_this_is_recorded(ada: User) -> None:
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
    """Return the operator of a study, which is a staff account."""
    factories.study_create()
    return User.objects.get(username="olga")


def close(person: User) -> str:
    return reverse("staff_account_close", args=[person.pk])


def test_closing_an_account_takes_effect_at_once_and_reopening_restores_no_sessions(administrator, mailbox, ada, olga):
    EmailAddress.objects.create(user=olga, email="olga@example.org", verified=True)
    hers = Client()
    sign_in(hers, "olga")
    program = {"HTTP_AUTHORIZATION": f"Bearer {ApiToken.objects.create(olga, name='notebook')[1]}"}
    assert hers.get("/studies/digits/").status_code == 200
    assert Client().get(reverse("api:studies"), **program).status_code == 200
    assert "“Study digits” would have no operator who can sign in." in administrator.get(close(olga)).text
    for _click in range(2):
        administrator.post(close(olga), {"act": "close"})
    assert hers.get("/studies/digits/").status_code == 302
    assert Client().get(reverse("api:studies"), **program).status_code == 401
    assert sign_in(Client(), "olga").url == reverse("account_inactive")
    mails_send("account_changed", [olga.pk], about="password_changed")
    assert mailbox.deliver() == []
    assert "Reopen" in administrator.get(reverse("staff_accounts")).text
    administrator.post(close(olga), {"act": "reopen"})
    assert hers.get("/studies/digits/").status_code == 302, "the session does not return"
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


def test_accounts_outside_an_administrators_control_are_not_closed(administrator: Client, ada: User) -> None:
    root = factories.user_create("root", is_superuser=True, is_staff=True)
    assert administrator.post(close(root), {"act": "close"}).status_code == 403
    assert administrator.post(close(factories.user_create("hanna"))).status_code == 404, "not a staff account"
    with pytest.raises(PermissionDenied):
        accounts.account_close(user=ada, acting_user=factories.user_create("mallory"))
    chair = factories.user_create("clara")
    study = factories.study_create("hers")
    services.membership_add(study=study, user=chair, role=Role.CHAIR, acting_user=None)
    services.membership_add(study=study, user=ada, role=Role.OPERATOR, acting_user=None)
    assert administrator.post(close(chair), {"act": "close"}).status_code == 403, "she supervises ada's study"
    assert User.objects.filter(is_active=False).count() == 0
