"""Staff who type are not signed out as idle: the page tells the site, once a minute."""

import pytest
from django.urls import reverse

from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_typing_is_told_once_a_minute(visit) -> None:
    factories.study_open()
    site = visit()
    page = site.page
    page.clock.install()
    site.sign_in("olga")
    site.open(reverse("staff:invitations", args=["digits"]))
    told = []
    page.on("request", lambda sent: told.append(sent.url) if sent.method == "HEAD" else None)
    field = page.locator("textarea").first
    field.fill("P-1")
    page.clock.fast_forward("01:01")
    with page.expect_response(lambda answer: answer.request.method == "HEAD") as answer:
        field.fill("P-12")
    assert answer.value.status == 200
    field.fill("P-123")
    assert told == [page.url]
