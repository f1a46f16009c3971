"""Passkeys and security keys through Chromium's virtual authenticator; staff who type are not signed out as idle."""

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator

from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive, pytest.mark.django_db(transaction=True)]


def test_a_passkey_is_added_asked_for_and_signs_in_alone(visit: Any) -> None:
    user = factories.user_create("olga")
    EmailAddress.objects.create(user=user, email="olga@example.org", verified=True, primary=True)
    site = visit()
    site.address = site.address.replace("127.0.0.1", "localhost")  # an address in digits has no keys
    page = site.page
    tools = page.context.new_cdp_session(page)
    tools.send("WebAuthn.enable")
    tools.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                **{"protocol": "ctap2", "transport": "internal", "hasResidentKey": True},
                **{"hasUserVerification": True, "isUserVerified": True, "automaticPresenceSimulation": True},
            }
        },
    )

    site.sign_in("olga")
    site.open("/account/second-factor/")
    site.press("Add a key")
    page.get_by_label("Password").fill(factories.PASSWORD)
    site.press("Continue")
    page.get_by_label("Name of the key").fill("My laptop")
    page.get_by_label("Sign in with only this key, without a password").check()
    site.press("Add the key")
    site.says("Each code lets you sign in once if you lose")
    key = Authenticator.objects.get(type="webauthn")
    site.open("/account/second-factor/webauthn/")
    site.says("My laptop")
    site.is_in_order()
    for step in ("edit", "remove"):
        site.open(f"/account/second-factor/webauthn/keys/{key.pk}/{step}/")
        site.is_in_order()
    site.open("/account/second-factor/webauthn/reauthenticate/")
    site.is_in_order()

    page.get_by_role("button", name="Sign out").click()
    site.open("/sign-in/")
    page.get_by_label("Email address or user name").fill("olga")
    page.get_by_label("Password").fill(factories.PASSWORD)
    page.get_by_role("main").get_by_role("button", name="Sign in", exact=True).click()
    site.says("Your password is correct. Now use your second factor.")
    site.is_in_order()
    assert page.get_by_role("button", name="Sign out").count() == 0
    site.press("Use a key")
    page.get_by_role("button", name="Sign out").click()

    site.open("/sign-in/")
    site.press("Sign in with a passkey")
    page.get_by_role("button", name="Sign out").wait_for()
    assert site.complaints == []
