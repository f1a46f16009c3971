"""Rules for staff only: a second factor, and being signed out after an idle time.

The second factor is required at every sign-in, limited, and stored encrypted.
"""

import base64
import re
from types import SimpleNamespace

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal import auth
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from consent import services
from consent.models import Role
from consent.services.accounts import administrator_set
from ipate_web.tokens.models import ApiToken
from tests import factories
from tests.clock import later
from tests.ipate_web.accounts.conftest import code_of, sign_in
from tests.pages import as_

pytestmark = pytest.mark.django_db

#: The secret of RFC 6238.
SECRET = base64.b32encode(b"12345678901234567890").decode()


@pytest.fixture
def olga() -> User:
    """Return an operator."""
    factories.study_open()
    return User.objects.get(username="olga")


@pytest.fixture(autouse=True)
def _one_code_during_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock, so that a code from the app stays valid during the test."""
    monkeypatch.setattr(auth, "time", SimpleNamespace(time=lambda: 1_800_000_000.0))


@pytest.fixture
def secret(olga: User) -> str:
    """Return the secret of the authenticator app that olga has set up."""
    TOTP.activate(olga, SECRET)
    RecoveryCodes.activate(olga)
    return SECRET


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def other_than(code: str) -> str:
    return f"{(int(code) + 1) % 1_000_000:06}"


def test_an_app_is_set_up_with_the_code_that_it_shows(client: Client, olga: User) -> None:
    EmailAddress.objects.create(user=olga, email="olga@example.org")  # not confirmed
    sign_in(client, "olga")
    assert client.get(reverse("mfa_activate_totp")).url.startswith(reverse("account_reauthenticate"))
    client.post(reverse("account_reauthenticate"), {"password": factories.PASSWORD})
    page = client.get(reverse("mfa_activate_totp"))
    secret = re.search(r'<code class="long">(\w+)</code>', page.text).group(1)
    code = code_of(secret)
    wrong = client.post(reverse("mfa_activate_totp"), {"code": other_than(code)})
    assert "This code is wrong or has already been used" in wrong.text
    codes = client.post(reverse("mfa_activate_totp"), {"code": code}, follow=True)
    assert "Each code lets you sign in once if you lose" in codes.text
    assert len(re.findall(r"<li><code>\w+</code></li>", codes.text)) == 10
    stored = str(list(Authenticator.objects.values()))
    assert secret not in stored
    again = Client()
    sign_in(again, "olga")
    again.post(reverse("mfa_authenticate"), {"code": code})
    assert not is_signed_in(again), "it was used"


def test_sign_in_asks_for_it(client: Client, olga: User, secret: str) -> None:
    assert sign_in(client, "olga").url.startswith(reverse("mfa_authenticate"))
    assert not is_signed_in(client)
    assert client.get("/studies/digits/").status_code == 302
    code = code_of(secret)
    assert client.post(reverse("mfa_authenticate"), {"code": code}).status_code == 302
    assert is_signed_in(client)
    for typed in (code, f" {code[:3]}-{code[3:]}"):
        cache.clear()  # as in another process with a separate cache
        again = Client()
        sign_in(again, "olga")
        again.post(reverse("mfa_authenticate"), {"code": typed})
        assert not is_signed_in(again), "a code works once"


def test_a_recovery_code_signs_in_once(client: Client, olga: User, secret: str) -> None:
    code = RecoveryCodes(Authenticator.objects.get(type="recovery_codes")).get_unused_codes()[0]
    for expected in (True, False):
        client = Client()
        sign_in(client, "olga")
        client.post(reverse("mfa_authenticate"), {"code": code})
        assert is_signed_in(client) is expected


def test_the_admin_asks_for_it(client: Client, secret: str) -> None:
    User.objects.filter(username="olga").update(is_staff=True, is_superuser=True)
    page = client.get("/admin/", follow=True)
    assert page.request["PATH_INFO"] == reverse("account_login")
    sent = client.post(page.request["PATH_INFO"], {"login": "olga", "password": factories.PASSWORD, "next": "/admin/"})
    assert sent.url.startswith(reverse("mfa_authenticate"))
    assert client.get("/admin/").status_code == 302
    client.post(sent.url, {"code": code_of(secret), "next": "/admin/"})
    assert client.get("/admin/").status_code == 200


def test_guessing_codes_is_limited_for_the_account(secret: str, settings) -> None:
    settings.SIGN_IN_TRIES = 3
    code = code_of(secret)
    for typed, status in [(other_than(code), 200)] * 3 + [(code, 429)]:
        guesser = Client()
        sign_in(guesser, "olga")
        assert guesser.post(reverse("mfa_authenticate"), {"code": typed}).status_code == status
    assert not is_signed_in(guesser)


@pytest.mark.parametrize("kind", ["operator", "superuser", "administrator"])
def test_an_installation_can_require_it_of_staff(client: Client, olga: User, settings, kind: str) -> None:
    user = factories.user_create("staff", is_superuser=kind == "superuser")
    if kind == "operator":
        services.membership_add(study=olga.memberships.first().study, user=user, role=Role.OPERATOR, acting_user=None)
    if kind == "administrator":
        administrator_set(user=user, appointed=True, acting_user=None)
    asks = {"Authorization": f"Bearer {ApiToken.objects.create(user, name='notebook')[1]}"}
    sign_in(client, "staff")
    assert client.get("/glossary/").status_code == Client().get("/api/v1/runs", headers=asks).status_code == 200
    settings.STAFF_SECOND_FACTOR = True
    RecoveryCodes.activate(user)  # which are not sufficient alone
    for page in ("/", "/studies/digits/", "/glossary/", "/accounts/", "/admin/"):
        assert client.get(page).url == reverse("mfa_index"), page
    assert client.get("/api/v1/studies/").status_code == 403
    refused = Client().get("/api/v1/runs", headers=asks)
    assert (refused.status_code, refused.json()["detail"]) == (403, "Set up a second factor on the site first.")
    assert "Staff need a second factor on this site" in client.get("/", follow=True).text
    TOTP.activate(user, generate_totp_secret())
    assert client.get("/glossary/").status_code == Client().get("/api/v1/runs", headers=asks).status_code == 200
    factories.holder_create(olga.memberships.first().study, user=factories.user_create("hanna"))
    assert as_("hanna").get("/my/").status_code == 200, "holders do not need one"


def test_staff_are_signed_out_after_an_hour_without_a_request(
    client: Client, olga: User, monkeypatch, settings
) -> None:
    client.force_login(olga)
    for _ in range(3):
        assert client.get("/studies/digits/").status_code == 200
        later(monkeypatch, minutes=59)
    assert client.get("/studies/digits/").status_code == 200
    later(monkeypatch, minutes=61)
    page = client.get("/studies/digits/", follow=True)
    assert "You were signed out because you were inactive" in page.text
    assert "_auth_user_id" not in client.session
    settings.STAFF_IDLE_MINUTES = 10
    client.force_login(olga)
    client.get("/studies/digits/")
    later(monkeypatch, minutes=11)
    assert client.get("/studies/digits/").status_code == 302


def test_requests_of_an_open_page_do_not_count_as_activity(client: Client, olga: User, monkeypatch) -> None:
    client.force_login(olga)
    client.get("/studies/digits/")
    for _ in range(3):
        later(monkeypatch, minutes=25)
        client.get("/studies/digits/", headers={"HX-Request": "true"})
    assert "_auth_user_id" not in client.session


def test_holders_stay_signed_in_and_their_visits_are_not_recorded(client: Client, olga: User, monkeypatch) -> None:
    hanna = factories.user_create("hanna")
    factories.holder_create(olga.memberships.first().study, user=hanna)
    client.force_login(hanna)
    client.get("/my/")
    later(monkeypatch, minutes=24 * 60)
    assert client.get("/my/").status_code == 200
    assert "last_request" not in client.session
