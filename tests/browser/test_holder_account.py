"""A holder who mistypes their address when they take an account, and forgets the password, in a real browser."""

import re

import pytest
from django.urls import reverse

from consent.models import ConsentEvent
from tests import factories
from tests.browser.conftest import Site
from tests.ipate_web.accounts.conftest import Mailbox, link_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

NEW = "a pass phrase that is new"


def account_take(site: Site, email: str) -> None:
    site.page.get_by_label("E-mail address").fill(email)
    site.page.get_by_label("Password", exact=True).fill(factories.PASSWORD)
    site.page.get_by_label("The password again").fill(factories.PASSWORD)
    site.press("Use this account from now on")
    site.says(f"We have sent a mail to {email}")


def test_a_holder_with_a_mistyped_address_can_do_everything(visit, mailbox: Mailbox, path: str) -> None:
    first = visit("phone")
    first.open(path)
    first.open(reverse("account"))
    account_take(first, "hana@example.org")

    site = visit("phone")  # the link, on another device
    site.open(path)
    site.page.get_by_label("Low protection").check()
    site.press("Continue")
    site.press("Yes, this is my decision")
    site.says("You take part: low protection.")
    site.press("Withdraw")
    site.press("Yes, withdraw my consent")
    site.says("You withdrew.")
    assert list(ConsentEvent.objects.order_by("sequence").values_list("kind", flat=True)) == ["given", "withdrawn"]

    site.says("You have set up an account with hana@example.org, which is not confirmed yet.")
    site.fits()
    site.press("Correct the account")
    account_take(site, "hanna@example.org")
    sent = {mail["To"]: mail for mail in mailbox.deliver()}
    site.open(link_in(sent["hanna@example.org"]))
    site.press("Yes, this is my address")
    site.says("The address hanna@example.org is confirmed.")
    site.page.get_by_role("button", name="Sign out").click()

    site.open("/sign-in/")
    site.press("Password forgotten")
    site.page.get_by_label(re.compile("E-mail")).fill("hanna@example.org")
    site.press("Send the mail")
    site.says("a mail with a link is on its way to it")
    (reset,) = mailbox.deliver()
    site.open(link_in(reset))
    for label in ("New password", "The new password again"):
        site.page.get_by_label(label, exact=True).fill(NEW)
    site.press("Set the password")
    site.says("Sign in with it now.")
    site.press("Sign in")
    site.page.get_by_label("E-mail address or user name").fill("hanna@example.org")
    site.page.get_by_label("Password").fill(NEW)
    site.press("Sign in")
    site.says("You withdrew.")
    assert first.complaints + site.complaints == []
