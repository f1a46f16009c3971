"""The first page that a browser opens already tells times in the browser's zone."""

import pytest
from django.urls import reverse

from consent.services import invitations
from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def _is_page(sent) -> bool:
    return sent.request.resource_type == "document"


def test_times_are_in_the_zone_of_the_browser_from_the_first_page_on(chromium, live_server) -> None:
    study = factories.study_open()
    (invited,) = invitations.invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    context = chromium.new_context(timezone_id="Asia/Tokyo", locale="en")
    page = context.new_page()
    loads = []
    page.on("response", lambda sent: loads.append(sent.url) if sent.ok and _is_page(sent) else None)
    page.goto(live_server.url + reverse("open_link", args=[invited.code]))
    page.get_by_text("(JST)").wait_for()
    assert page.locator("body").get_attribute("data-zone") == "Asia/Tokyo"
    page.goto(live_server.url + reverse("consent:choice", args=[study.slug]))
    page.get_by_text("(JST)").wait_for()
    assert len(loads) == 3, "the first page is loaded twice, no other"
    context.close()
