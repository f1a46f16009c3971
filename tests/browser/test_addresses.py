"""How somebody without an account is told: from their choice to the mail that confirms an address, and away again."""

import pytest
from django.core import mail
from django.urls import reverse

from consent.models import HolderAddress
from consent.services.mail import mails_deliver
from tests.browser.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_an_address_is_left_confirmed_and_deleted(visit, path: str) -> None:
    site: Site = visit("phone")
    site.open(path)
    site.open(reverse("consent:choice", args=["digits"]))
    site.press("Get receipts and news by mail or letter")
    site.says("Nothing is sent to you by mail.")
    site.is_in_order()
    site.page.get_by_label("E-mail address").fill("hanna@example.org")
    site.press("Leave this address")
    site.says("is not confirmed yet")
    mail.outbox.clear()
    mails_deliver()
    (message,) = mail.outbox
    (link,) = [word for word in message.body.split() if "/address/" in word]
    reader: Site = visit("phone")  # of the mails, in another browser
    reader.open(link[link.index("/address/") :])
    reader.says("Was it you?")
    reader.is_in_order()
    reader.press("Yes, confirm this address")
    reader.says("Mails go to hanna@example.org.")
    reader.press("Delete this address")
    reader.says("This address is not stored here.")
    assert not HolderAddress.objects.exists()


def test_a_postponed_decision_names_the_day_of_its_reminder(visit, path: str) -> None:
    site: Site = visit("phone")
    site.open(path)
    site.press("Decide later")
    site.says("Nothing is decided as long as you do not decide.")
    site.is_in_order()
    site.page.get_by_label("in 3 days").check()
    site.page.get_by_label("E-mail address").fill("hanna@example.org")
    site.press("Remind me once")
    site.says("You have not decided yet.")
    site.fits()
