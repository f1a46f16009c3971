"""Single sign-on, against an OpenID provider that runs on this machine."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import oidc_provider_mock
import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from consent.services.accounts import account_create
from tests import factories

pytestmark = pytest.mark.django_db

LOGIN = "/account/oidc/sso/login/"


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """Its address."""
    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def organisation(provider: str, settings) -> str:
    settings.OIDC_SERVER = provider
    app = {
        "provider_id": "sso", "name": "Clinic", "client_id": "ipate", "secret": "secret",
        "settings": {"server_url": provider},
    }  # fmt: skip
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
    return provider


def sign_on(client: Client, organisation: str, email: str, *, verified: bool = True):
    """Go to the provider, sign in there as ``email``, and come back."""
    httpx.put(f"{organisation}/users/{email}", json={"email": email, "email_verified": verified}).raise_for_status()
    away = client.post(LOGIN)
    assert away.url.startswith(f"{organisation}/oauth2/authorize")
    assert "code_challenge" in parse_qs(urlsplit(away.url).query)
    back = httpx.post(away.url, data={"sub": email}).headers["location"]
    parts = urlsplit(back)
    return client.get(f"{parts.path}?{parts.query}")


def hanna(*, confirmed: bool = True) -> User:
    user = factories.user_create("hanna", email="hanna@example.org")
    EmailAddress.objects.create(user=user, email=user.email, verified=confirmed, primary=True)
    return user


@pytest.mark.slow
def test_an_account_is_found_by_its_confirmed_address(client: Client, organisation: str) -> None:
    page = client.get(reverse("account_login")).text
    assert f'href="{LOGIN}"' in page and "Sign in with Clinic" in page
    user = hanna()
    assert sign_on(client, organisation, "hanna@example.org").url == "/"
    assert client.session["_auth_user_id"] == str(user.pk)
    assert SocialAccount.objects.get().user == user
    assert not SocialToken.objects.exists()
    EmailAddress.objects.all().delete()
    assert sign_on(Client(), organisation, "hanna@example.org").url == "/", "connected from then on"
    account_create(username="dora", first_name="D", last_name="D", email="dora@example.org", acting_user=None)
    assert sign_on(Client(), organisation, "dora@example.org").url == "/", "an administrator has made it"


@pytest.mark.parametrize(
    ("address", "confirmed", "verified"),
    [("hanna@example.org", False, True), ("hanna@example.org", True, False), ("stranger@example.org", True, True)],
)
def test_an_address_that_one_side_does_not_vouch_for_opens_nothing(
    client: Client, organisation: str, address: str, confirmed: bool, verified: bool
) -> None:
    hanna(confirmed=confirmed)
    answer = sign_on(client, organisation, address, verified=verified)
    assert "There is no account for you here yet" in answer.text
    assert "_auth_user_id" not in client.session and User.objects.count() == 1


def test_the_second_factor_is_asked_for_here_too(client: Client, organisation: str) -> None:
    TOTP.activate(hanna(), generate_totp_secret())
    assert sign_on(client, organisation, "hanna@example.org").url.startswith(reverse("mfa_authenticate"))
    assert "_auth_user_id" not in client.session


def test_a_provider_that_does_not_answer_is_said(client: Client, organisation: str, settings) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["server_url"] = "http://127.0.0.1:9"
    answer = client.post(LOGIN)
    assert "The sign-in did not work" in answer.text
