"""Middleware for all pages, and error responses if no view can respond: pages, or problem documents in the API.

Nothing here queries the database, because the database may be unavailable. Problem documents follow RFC 9457.
"""

import errno
import math
import sys
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from zoneinfo import ZoneInfo, available_timezones

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _
from django.views import defaults

from common.throttle import TooManyTriesError
from ipate_web.api.problems import KINDS, problem

#: Cookie set by static/js/zone.js. Without JavaScript, times are in the site's own zone.
COOKIE = "zone"

_known = cache(available_timezones)


def reader_zone(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that activates the browser's time zone, or else the site's."""

    def middleware(request: HttpRequest) -> HttpResponse:
        name = request.COOKIES.get(COOKIE, "")
        with timezone.override(ZoneInfo(name) if name in _known() else timezone.get_default_timezone()):
            return get_response(request)

    return middleware


class TooManyTriesMiddleware(MiddlewareMixin):
    """Middleware that answers ``TooManyTriesError`` from any view, even the admin's, with 429 and the time to wait."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the error page with the time to wait; None for any other exception."""
        if not isinstance(exception, TooManyTriesError):
            return None
        seconds = max(1, math.ceil((exception.until - timezone.now()).total_seconds()))
        response = render(request, "429.html", {"minutes": math.ceil(seconds / 60)}, status=429)
        response["Retry-After"] = str(seconds)
        response["Cache-Control"] = "no-store"
        return response


RETRY_AFTER = 30
"""Seconds after which a request is worth repeating if the database is unavailable or the disk is full."""


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 404 for a URL that does not exist."""
    if _is_for_a_program(request):
        return problem(KINDS["not-found"], _("This address does not exist. GET /api/docs lists all addresses."))
    return defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 400 for a request that Django itself refuses, such as one for another host or with too many fields."""
    if _is_for_a_program(request):
        detail = _(
            "This request cannot be processed because its host, its headers or the number of its fields is not allowed."
        )
        return problem(KINDS["invalid-fields"], detail)
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Respond to an uncaught exception: 503 if the database is unavailable or the disk full, otherwise 500."""
    is_full, passes = _disk_is_full(), _disk_is_full() or _database_is_away()
    status = HTTPStatus.SERVICE_UNAVAILABLE if passes else HTTPStatus.INTERNAL_SERVER_ERROR
    if _is_for_a_program(request):
        response: HttpResponse = problem(
            KINDS["unavailable" if passes else "server-error"],
            _("The site's disk is full. Nothing was changed. Send the request again later.")
            if is_full
            else _("The site's database is not responding. Nothing was changed. Send the request again later.")
            if passes
            else _("Something went wrong on our side. The error was logged. Try again in a few minutes."),
        )
    else:
        response = render(None, f"{status.value}.html", {"is_full": is_full}, status=status)
    if passes:
        response["Retry-After"] = str(RETRY_AFTER)
    response["Cache-Control"] = "no-store"
    return response


def _is_for_a_program(request: HttpRequest) -> bool:
    return request.path_info.startswith("/api/") and request.path_info != "/api/docs"


def _database_is_away() -> bool:
    return isinstance(sys.exc_info()[1], OperationalError | InterfaceError)


def _disk_is_full() -> bool:
    error = sys.exc_info()[1]
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
