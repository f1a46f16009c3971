"""Times are shown in the reader's zone, and in the site's where it is not known."""

from datetime import UTC, datetime

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils import timezone, translation
from django.utils.formats import date_format, localize

from ipate_web.time_zones import COOKIE, reader_zone

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def shown(cookie: str | None) -> str:
    """Noon in UTC as a page shows it."""
    request = RequestFactory().get("/")
    if cookie is not None:
        request.COOKIES[COOKIE] = cookie
    page = reader_zone(lambda request: HttpResponse(localize(timezone.localtime(NOON).strftime("%H:%M %Z"))))
    return page(request).content.decode()


def test_the_browsers_zone_counts() -> None:
    assert shown("Europe/Berlin") == "14:00 CEST"
    assert timezone.get_current_timezone_name() == "UTC"  # the next reader's page begins anew


@pytest.mark.parametrize("cookie", [None, "", "Nowhere", "Europe", "../../etc/passwd", "/etc/localtime"])
def test_an_unknown_zone_is_the_sites(cookie: str | None) -> None:
    assert shown(cookie) == "12:00 UTC"


@pytest.mark.parametrize(("language", "said"), [("en", "2026-07-01 12:00"), ("de", "01.07.2026 12:00")])
def test_no_reader_takes_the_day_for_the_month(language: str, said: str) -> None:
    with translation.override(language):
        assert date_format(NOON, "SHORT_DATETIME_FORMAT") == said
