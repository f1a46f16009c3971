"""Answers where no view could give one: pages for people, problem documents (RFC 9457) under ``/api/``.

Nothing here asks the database, which may be what is away.
"""

import sys
from http import HTTPStatus

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views import defaults

RETRY_AFTER = 30
"""Seconds after which a request is worth repeating while the database is away."""


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404 for an address that leads nowhere."""
    if _is_for_a_program(request):
        return _problem(HTTPStatus.NOT_FOUND, _("This address does not exist. GET /api/docs lists all addresses."))
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an exception that nothing else caught: 503 while the database is away, otherwise 500."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if _database_is_away() else HTTPStatus.INTERNAL_SERVER_ERROR
    if _is_for_a_program(request):
        response: HttpResponse = _problem(
            status,
            _("The site's database does not respond. Nothing was changed. Send the request again later.")
            if status == HTTPStatus.SERVICE_UNAVAILABLE
            else _("Something went wrong on our side. The error was logged. Try again in a few minutes."),
        )
    else:
        response = render(None, f"{status.value}.html", status=status)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = str(RETRY_AFTER)
    response["Cache-Control"] = "no-store"
    return response


def _is_for_a_program(request: HttpRequest) -> bool:
    return request.path_info.startswith("/api/") and request.path_info != "/api/docs"


def _database_is_away() -> bool:
    return isinstance(sys.exc_info()[1], OperationalError | InterfaceError)


def _problem(status: HTTPStatus, detail: str) -> JsonResponse:
    document = {"title": status.phrase, "status": status.value, "detail": detail}
    return JsonResponse(document, status=status, content_type="application/problem+json")
