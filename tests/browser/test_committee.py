"""The committee's path in a real browser: a policy and a new form."""

from typing import Any

import pytest

from consent.models import Study
from tests import factories
from tests.browser.conftest import each_way

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


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
    site.press("Show odds")
    site.is_in_order()
    site.press("Propose version")
    site.says("Version 2 is waiting for a second person")

    second = visit(size, javascript=javascript, person="conrad")
    second.open("/studies/digits/policies/")
    second.press("Review and decide")
    second.is_in_order()
    second.press("Approve policy")
    second.says("Version 2 is in force.")
    second.is_in_order()
