"""Times are kept in UTC and shown in the reader's zone."""

from collections.abc import Callable
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

#: Set by static/js/zone.js; without JavaScript, times are in the site's own zone.
COOKIE = "zone"

_known = cache(available_timezones)


def reader_zone(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: times are shown in the zone that the browser named, or in the site's."""

    def middleware(request: HttpRequest) -> HttpResponse:
        name = request.COOKIES.get(COOKIE, "")
        with timezone.override(ZoneInfo(name) if name in _known() else timezone.get_default_timezone()):
            return get_response(request)

    return middleware
