"""The committee's path in a real browser: a policy and a new form."""

from typing import Any

import pytest

from consent.models import ConsentForm, Study
from tests import factories
from tests.browser.conftest import each_way

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WORDS = {
    "English": "# What we ask\nWe would like to learn from your records **much more**.",
    "German": "# Worum wir bitten\nWir möchten **viel mehr** lernen.",
}


@pytest.fixture
def study() -> Study:
    return factories.committee_fill(factories.study_open(title="Reading digits"))


@each_way
def test_a_policy_is_proposed_and_approved_by_another(visit: Any, study: Study, size: str, javascript: bool) -> None:
    site = visit(size, javascript=javascript, person="carla")
    site.open("/studies/digits/policies/new/")
    site.page.get_by_label("ε at low protection").fill("5")
    if javascript:
        site.page.locator("#odds").get_by_text("72", exact=True).wait_for()
    site.is_in_order()
    site.page.get_by_label("Reason").fill("As the literature does.")
    site.press("See what it means")
    site.is_in_order()
    site.press("Yes, propose it")
    site.says("Version 2 waits for a second person")

    second = visit(size, javascript=javascript, person="conrad")
    second.open("/studies/digits/policies/")
    second.press("Look at it and decide")
    second.is_in_order()
    second.press("Yes, put it in force")
    second.says("Version 2 is in force.")
    second.is_in_order()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("size", "javascript"), [("desktop", True), ("phone", False)])
def test_a_form_is_written_compared_and_published(visit: Any, study: Study, size: str, javascript: bool) -> None:
    site = visit(size, javascript=javascript, person="carla")
    site.open("/studies/digits/consent-form/new/")
    for language, text in WORDS.items():
        site.page.get_by_role("textbox", name=language).fill(text)
    if javascript:
        site.page.locator("#preview strong").get_by_text("much more").wait_for()
        assert ConsentForm.objects.count() == 1
    site.press("Save and look at it")
    site.page.locator("#preview strong").get_by_text("much more").wait_for()
    site.is_in_order()
    site.press("Save and go on to publish")
    site.says("What changes since version 1")
    site.press("Yes, propose it")
    site.says("There is a problem")
    site.is_in_order()
    site.page.get_by_label("They are asked again; their consent stands until they answer").check()
    site.press("Yes, propose it")
    site.says("The form is proposed.")
    site.is_in_order()

    second = visit(size, javascript=javascript, person="conrad")
    second.says("Waiting for you")
    second.is_in_order()
    second.press("Consent form that asks people again, to follow version 1")
    second.says("Whom it affects")
    second.is_in_order()
    second.press("The whole page, in German")
    second.says("Vorschau")
    second.page.locator("html[lang=de]").wait_for()
    assert second.page.locator("main form .button-primary").is_disabled()
    second.is_in_order()
    second.page.go_back()
    second.page.get_by_label("Comment, or reason for rejecting it").fill("Well said.")
    second.press("Comment")
    second.says("Your comment is kept.")
    second.press("Yes, publish it")
    second.says("Version 2 is published")
    site.open("/studies/digits/consent-form/2/")
    site.says("What changed since version 1")
    site.is_in_order()
