"""Middleware of all pages: the reader's time zone, and the page for those who have to wait."""

import math
from collections.abc import Callable
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from common.throttle import TooManyTriesError

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


class TooManyTriesMiddleware(MiddlewareMixin):
    """Answers ``TooManyTriesError`` out of any view, the admin's included, with status 429 and the time to wait."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """The page, or None for any other exception."""
        if not isinstance(exception, TooManyTriesError):
            return None
        seconds = max(1, math.ceil((exception.until - timezone.now()).total_seconds()))
        response = render(request, "429.html", {"minutes": math.ceil(seconds / 60)}, status=429)
        response["Retry-After"] = str(seconds)
        response["Cache-Control"] = "no-store"
        return response
