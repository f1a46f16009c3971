"""A data holder's whole path, in a real browser."""

import pytest

from consent.models import ConsentEvent
from tests import factories
from tests.browser.conftest import SIZES, each_way

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def study():
    study = factories.study_open(title="Reading digits")
    factories.holder_create(study, user=factories.user_create("hanna"))
    return study


def events() -> list[tuple[str, str]]:
    return list(ConsentEvent.objects.order_by("sequence").values_list("kind", "level"))


@each_way
def test_a_holder_consents_changes_and_withdraws(visit, study, size: str, javascript: bool) -> None:
    site = visit(size, javascript=javascript, person="hanna")
    site.says("You have not decided yet")
    site.press("Read and decide")

    site.press("Continue")
    site.says("There is a problem")
    site.page.get_by_label("High protection").check()
    site.press("Continue")
    site.says("Nothing has taken effect yet.")
    assert events() == []
    site.press("Change my answer")
    assert site.page.get_by_label("High protection").is_checked()
    site.page.get_by_label("Low protection").check()
    site.press("Continue")
    site.press("Yes, this is my decision")
    site.says("You take part: low protection.")

    site.press("Read again or change")
    site.page.get_by_label("Average protection").check()
    site.press("Continue")
    site.press("Yes, this is my decision")
    site.says("You take part: average protection.")

    site.press("Withdraw")
    site.press("Yes, withdraw my consent")
    site.says("You withdrew.")
    assert events() == [("given", "LOW"), ("changed", "AVERAGE"), ("withdrawn", "")]

    site.press("Receipt")
    for kind in ("PDF", "JSON"):
        with site.page.expect_download() as download:
            site.press(f"Save as {kind}")
        assert download.value.suggested_filename == f"receipt-3.{kind.lower()}"
    site.open("/my/digits/uses/")
    site.says("Nothing so far")
    assert site.complaints == []


def test_dots_have_a_key_wherever_they_stand_and_receipts_are_easy_to_hit(visit, study) -> None:
    site = visit("phone")
    site.sign_in("hanna")
    site.open("/my/digits/")
    key, go_on = site.page.locator(".key"), site.page.locator("main form .button-primary")

    def seen_at_each_size() -> None:
        for size in SIZES:
            site.resize(size)
            assert key.is_visible()

    seen_at_each_size()
    site.page.locator("[value=LOW]").check()
    go_on.click()
    site.says("Nothing has taken effect yet.")
    seen_at_each_size()
    go_on.click()
    site.page.locator("#stands").wait_for()
    seen_at_each_size()
    for size in SIZES:
        site.resize(size)
        box = site.page.get_by_role("link", name="Receipt").bounding_box()
        assert min(box["width"], box["height"]) >= 44


def test_a_holder_needs_no_mouse(visit, study) -> None:
    site = visit()
    site.sign_in("hanna")
    site.open("/my/digits/")
    keyboard = site.page.keyboard
    keyboard.press("Tab")
    assert site.page.locator(":focus").inner_text() == "Skip to the content"
    keyboard.press("Enter")
    while site.page.locator(":focus").get_attribute("type") != "radio":
        keyboard.press("Tab")
    for _ in range(3):
        keyboard.press("ArrowDown")
    while site.page.locator(":focus").inner_text() != "Continue":
        keyboard.press("Tab")
    keyboard.press("Enter")
    site.says("I do not take part")
    site.press("Yes, this is my decision")
    site.says("You do not take part.")
    assert events() == [("refused", "")]
