"""A visit by invitation in a real browser: it warns before its end, lasts longer on request, and goes back well."""

import time

import pytest
from django.contrib.sessions.models import Session

from consent.models import ConsentEvent

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WARNING = "Your visit ends in a few minutes. Do you need more time?"


def test_it_warns_and_lasts_longer_without_losing_what_was_entered(visit, path: str) -> None:
    site = visit("phone")
    site.page.clock.install()
    site.open(path)
    site.page.get_by_label("High protection").check()
    site.page.clock.fast_forward("01:50:00")
    assert not site.page.get_by_text(WARNING).is_visible()
    site.page.clock.fast_forward("00:06:00")
    site.page.get_by_text(WARNING).wait_for()
    site.is_in_order()
    site.page.clock.set_system_time(time.time() * 1000)  # the site's, which has not moved on
    with site.page.expect_response("**/join/stay/"):
        site.page.get_by_role("button", name="Stay longer").click()
    site.page.get_by_text(WARNING).wait_for(state="hidden")
    assert site.page.get_by_label("High protection").is_checked()
    assert site.page.url == f"{site.address}/my/digits/"


def test_without_a_script_it_says_when_it_ends_and_the_button_leads_back(visit, path: str) -> None:
    site = visit("phone", javascript=False)
    site.open(path)
    assert site.page.get_by_text("Your invitation stays open on this device until").is_visible()
    site.page.get_by_role("button", name="Stay longer").click()
    assert site.page.url == f"{site.address}/my/digits/"


@pytest.mark.parametrize("javascript", [True, False])
def test_a_late_answer_is_shown_when_the_link_is_opened_again(visit, path: str, javascript: bool) -> None:
    site = visit("phone", javascript=javascript)
    site.open(path)
    site.page.get_by_label("Low protection").check()
    session = Session.objects.get()
    data = session.get_decoded() | {"visit_ends": "2026-01-01T00:00:00+00:00"}
    Session.objects.save(session.session_key, data, session.expire_date)
    site.press("Continue")
    site.says("Your visit ended at")
    site.is_in_order() if javascript else site.fits()
    site.open(path)
    site.says("Check your answer")
    site.says("Low protection")
    site.press("Yes, this is my decision")
    site.says("You take part: low protection.")


def test_back_after_deciding_shows_a_page_each_time(visit, path: str) -> None:
    site = visit()
    site.open(path)
    site.page.get_by_label("High protection").check()
    site.press("Continue")
    site.says("Check your answer")
    site.press("Yes, this is my decision")
    site.says("You take part: high protection.")
    site.page.go_back()
    site.says("See my choice")  # where the answer was checked there is none left: the form
    site.page.go_back()
    site.says("See my choice")
    assert ConsentEvent.objects.count() == 1
    site.open("/nowhere/")
    site.complaints.clear()  # Chromium notes the status itself
    site.press("Back to my invitation")
    site.press("See my choice")
    site.page.get_by_role("link", name="iPATE").click()
    assert site.page.url == f"{site.address}/my/"
