"""A data holder's whole path, in a real browser."""

import time
from typing import Any

import pytest

from consent.models import ConsentEvent, Study
from tests import factories
from tests.browser.conftest import Site, each_way

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WARNING = "Your session will end in a few minutes. Do you need more time?"


@pytest.fixture
def study() -> Study:
    study = factories.study_open(title="Reading digits")
    factories.holder_create(study, user=factories.user_create("hanna"))
    return study


def events() -> list[tuple[str, str]]:
    return list(ConsentEvent.objects.order_by("sequence").values_list("kind", "level"))


def choose(site: Site, level: str) -> None:
    site.page.get_by_label(f"{level} protection").check()
    site.press("Continue")


@each_way
def test_a_holder_consents_changes_and_withdraws(visit: Any, path: str, size: str, javascript: bool) -> None:
    """The holder has only a link, which another browser opens by its code."""
    site = visit(size, javascript=javascript)
    site.open(path)
    assert site.page.url == f"{site.address}/my/digits/"
    site.is_in_order()
    site.press("Continue")
    site.says("There is a problem")
    picture = site.page.locator("figure.meaning:visible")
    assert picture.locator("figcaption").inner_text() == "A pure guess"
    site.page.get_by_label("High protection").check()
    assert picture.locator("figcaption").inner_text() == "High protection", "no script is needed"
    width = "dot => parseFloat(getComputedStyle(dot).strokeWidth) * dot.getScreenCTM().a"
    assert picture.locator(".wrong").first.evaluate(width) >= 8, "pixels of the smallest dot"
    site.press("Continue")
    site.says("Your answer has not taken effect yet.")
    site.is_in_order()
    assert events() == []
    site.press("Change my answer")
    assert site.page.get_by_label("High protection").is_checked()
    choose(site, "Low")
    site.press("Yes, this is my decision")
    site.says("You take part: low protection.")
    site.is_in_order()
    site.page.get_by_role("button", name="Leave").click()
    site.says("Your session on this device has ended")

    later = visit(size, javascript=javascript)
    later.open("/join/")
    later.page.get_by_label("Your invitation code").fill(path.split("/")[2].upper())
    later.press("Open my invitation", "Read again or change")
    choose(later, "Average")
    later.press("Yes, this is my decision")
    later.says("You take part: average protection.")
    later.open("/my/digits/")
    later.page.get_by_text("If you change your mind").click()
    later.says("It takes three clicks here: “See my choice”, “Withdraw” and “Yes”.")
    later.press("See my choice", "Withdraw")
    assert len(events()) == 2
    later.press("Yes, withdraw my consent")
    later.says("Your consent is withdrawn.")
    assert events() == [("given", "LOW"), ("changed", "AVERAGE"), ("withdrawn", "")]
    later.page.get_by_text("My decisions so far").click()
    later.press("Receipt")
    assert [later.saved(f"Save as {kind}")[0] for kind in ("PDF", "JSON")] == ["receipt-3.pdf", "receipt-3.json"]
    assert site.complaints + later.complaints == []


@pytest.mark.exhaustive
def test_a_holder_needs_no_mouse(visit: Any, study: Study) -> None:
    site = visit(person="hanna")
    site.open("/my/digits/")
    keyboard, focus = site.page.keyboard, site.page.locator(":focus")
    keyboard.press("Tab")
    assert focus.inner_text() == "Skip to the content"
    keyboard.press("Enter")
    while focus.get_attribute("type") != "radio":
        keyboard.press("Tab")
    for _ in range(3):
        keyboard.press("ArrowDown")
    while focus.inner_text() != "Continue":
        keyboard.press("Tab")
    keyboard.press("Enter")
    site.says("I do not take part")
    site.press("Yes, this is my decision")
    site.says("You do not take part.")
    assert events() == [("refused", "")]


@pytest.mark.exhaustive
def test_it_warns_and_lasts_longer_without_losing_what_was_entered(visit: Any, path: str) -> None:
    site = visit("phone")
    site.page.clock.install()
    site.open(path)
    site.page.get_by_label("High protection").check()
    site.page.clock.fast_forward("01:49:00")
    for part in (site.page.get_by_text(WARNING), site.page.get_by_role("button", name="Stay longer")):
        assert not part.is_visible()
    site.page.clock.fast_forward("00:06:00")
    site.page.get_by_text(WARNING).wait_for()
    site.is_in_order()
    site.page.clock.set_system_time(time.time() * 1000)  # the server's clock, which has not advanced
    with site.page.expect_response("**/join/stay/"):
        site.page.get_by_role("button", name="Stay longer").click()
    site.page.get_by_text(WARNING).wait_for(state="hidden")
    assert site.page.get_by_label("High protection").is_checked()
    assert site.page.url == f"{site.address}/my/digits/"

    without = visit("phone", javascript=False)
    without.open(path)
    assert without.page.get_by_text("Your invitation stays open on this device until").is_visible()
    without.page.get_by_role("button", name="Stay longer").click()
    assert without.page.url == f"{site.address}/my/digits/"
