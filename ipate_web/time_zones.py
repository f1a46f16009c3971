"""Time zone of the reader: times are stored in UTC and shown in the browser's zone."""

from collections.abc import Callable
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

#: Set by static/js/zone.js; without JavaScript, times are in the site's own zone.
COOKIE = "zone"

_known = cache(available_timezones)


def reader_zone(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that activates the browser's time zone, or the site's."""

    def middleware(request: HttpRequest) -> HttpResponse:
        name = request.COOKIES.get(COOKIE, "")
        with timezone.override(ZoneInfo(name) if name in _known() else timezone.get_default_timezone()):
            return get_response(request)

    return middleware
