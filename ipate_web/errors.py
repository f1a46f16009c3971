"""Answers where no view could give one: pages for people, problem documents (RFC 9457) under ``/api/``.

Nothing here asks the database, which may be what is away.
"""

import errno
import sys
from http import HTTPStatus

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views import defaults

RETRY_AFTER = 30
"""Seconds after which a request is worth repeating while the database is away or the disk is full."""


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404 for an address that leads nowhere."""
    if _is_for_a_program(request):
        return _problem(HTTPStatus.NOT_FOUND, _("This address does not exist. GET /api/docs lists all addresses."))
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an exception that nothing else caught: 503 if the database is away or the disk full, otherwise 500."""
    is_full, passes = _disk_is_full(), _disk_is_full() or _database_is_away()
    status = HTTPStatus.SERVICE_UNAVAILABLE if passes else HTTPStatus.INTERNAL_SERVER_ERROR
    if _is_for_a_program(request):
        response: HttpResponse = _problem(
            status,
            _("The site's disk is full. Nothing was changed. Send the request again later.")
            if is_full
            else _("The site's database does not respond. Nothing was changed. Send the request again later.")
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


def _problem(status: HTTPStatus, detail: str) -> JsonResponse:
    document = {"title": status.phrase, "status": status.value, "detail": detail}
    return JsonResponse(document, status=status, content_type="application/problem+json")
