"""Errors as problem documents (RFC 9457), each with what to do."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, RequestDataTooBig
from django.core.exceptions import ValidationError as ModelValidationError
from django.http import HttpResponse, JsonResponse
from drf_spectacular.utils import OpenApiResponse
from rest_framework import exceptions
from rest_framework.views import exception_handler

from common.repeats import RepeatedKeyError
from common.slots import WAIT, NoSlotError
from ipate_web.api.requests import TooLarge
from learning.formats import DataError, DataErrors
from learning.mechanisms.protocol import PlanError

MEDIA_TYPE = "application/problem+json"
MOST_FAULTS = 1000
"""Faults of a file that an answer lists."""
_SIGN_IN = "Send the header “Authorization: Bearer <token>”; you make tokens on the page “API tokens”."


def problem_response(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Problem document for ``error``; None for an error of the server."""
    match error:
        case PlanError():
            return _problem(HTTPStatus.CONFLICT, str(error))
        case NoSlotError():
            error = exceptions.Throttled(
                WAIT, "You have another plan computed, or the site computes as many as it can. Ask again."
            )
        case RequestDataTooBig():  # where Django has read the request before its parser
            error = TooLarge()
        case DataError():
            faults = error.report.faults[:MOST_FAULTS] if isinstance(error, DataErrors) else [error]
            return _problem(HTTPStatus.BAD_REQUEST, str(_nameless(error)), [_placed(fault) for fault in faults])
        case ModelValidationError(code="second_person" | "proposer"):
            return _problem(HTTPStatus.FORBIDDEN, error.messages[0])
        case RepeatedKeyError():
            return _problem(HTTPStatus.UNPROCESSABLE_ENTITY, "This key was used for another request. Choose a new one.")
        case ModelValidationError(code="state"):
            return _problem(HTTPStatus.CONFLICT, error.messages[0])
        case ModelValidationError():
            error = exceptions.ValidationError(error.message_dict if hasattr(error, "error_dict") else error.messages)
    response = exception_handler(error, context)
    if response is None:
        return None
    status = HTTPStatus(response.status_code)
    if isinstance(error, exceptions.ValidationError):
        errors = [{"field": field, "message": message} for field, message in _by_field(error.detail)]
        problem = _problem(status, "Correct what “errors” lists and send the request again.", errors)
    else:
        detail = str(response.data["detail"])
        problem = _problem(status, f"{detail} {_SIGN_IN}" if status == HTTPStatus.UNAUTHORIZED else detail)
    for header in ("WWW-Authenticate", "Retry-After"):
        if header in response:
            problem[header] = response[header]
    return problem


def _problem(status: HTTPStatus, detail: str, errors: list[dict[str, Any]] | None = None) -> JsonResponse:
    document: dict[str, Any] = {"title": status.phrase, "status": status.value, "detail": detail}
    if errors:
        document["errors"] = errors
    return JsonResponse(document, status=status, content_type=MEDIA_TYPE)


def _nameless(error: DataError) -> DataError:
    """The first fault without the file, whose path is one of the server's."""
    return DataError(error.problem, error.remedy, row=error.row, column=error.column)


def _placed(fault: DataError) -> dict[str, Any]:
    place = {"row": fault.row, "column": fault.column}
    known = {key: value for key, value in place.items() if value is not None}
    return {**known, "message": f"{fault.problem} {fault.remedy}".strip()}


def _by_field(detail: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Pairs of a dotted field name and one message; an empty name means the whole request."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            own = "" if key in (NON_FIELD_ERRORS, "non_field_errors") else str(key)
            yield from _by_field(inner, ".".join(part for part in (field, own) if part))
    elif isinstance(detail, list):
        for inner in detail:
            yield from _by_field(inner, field)
    else:
        yield field, str(detail)


PROBLEM_SCHEMA = {
    "type": "object",
    "description": "Problem document (RFC 9457) that says what is wrong and what to do.",
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "Description of the problem and of what to do."},
        "errors": {
            "type": "array",
            "description": "One entry per mistake, in a field of the request or in a row and column of data.",
            "items": {
                "type": "object",
                "properties": {
                    "field": {"type": "string"},
                    "row": {"type": "integer", "description": "Row number, from 1."},
                    "column": {"type": "string"},
                    "message": {"type": "string"},
                },
                "required": ["message"],
            },
        },
    },
    "required": ["title", "status", "detail"],
    "example": {
        "title": "Bad Request",
        "status": 400,
        "detail": "row 3, column age: “x” is not a number. Write a finite number.",
        "errors": [{"row": 3, "column": "age", "message": "“x” is not a number. Write a finite number."}],
    },
}


def problems_in_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the error responses of every operation to the OpenAPI schema.

    Those that only some have, and no part of the request tells, the operations themselves name; see `CONFLICT`.
    """
    result["components"]["schemas"]["Problem"] = PROBLEM_SCHEMA
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path, operations in result["paths"].items():
        for operation in operations.values():
            for status in _statuses(path, operation):
                response = operation["responses"].setdefault(str(status.value), {"description": DESCRIPTIONS[status]})
                response["content"] = content
    return result


def _statuses(path: str, operation: dict[str, Any]) -> Iterator[HTTPStatus]:
    """The errors that an operation may answer with."""
    yield HTTPStatus.BAD_REQUEST
    if operation.get("security"):
        yield from (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    if "{" in path:
        yield HTTPStatus.NOT_FOUND
    yield HTTPStatus.NOT_ACCEPTABLE
    if "requestBody" in operation:
        yield from (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    yield HTTPStatus.TOO_MANY_REQUESTS
    yield from (HTTPStatus(int(status)) for status in operation["responses"] if status in _NAMED)


DESCRIPTIONS = {
    HTTPStatus.BAD_REQUEST: "The request is invalid. “errors” names the field, the parameter, or the row and column.",
    HTTPStatus.UNAUTHORIZED: "The token is missing, unknown, revoked or expired.",
    HTTPStatus.FORBIDDEN: "Your role in the study, or the scope of your token, does not allow it.",
    HTTPStatus.NOT_FOUND: "The resource does not exist, or you may not see it.",
    HTTPStatus.NOT_ACCEPTABLE: "The response is not available in the format that “Accept” asks for.",
    HTTPStatus.CONFLICT: "The request is well formed, but the study's policy, head counts or shares, or the state "
    "of the run, do not allow it now.",
    HTTPStatus.GONE: "The model was withdrawn; “detail” says when and why.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The request is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The operation does not accept this content type.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The key in “Idempotency-Key” was used for another request.",
    HTTPStatus.TOO_MANY_REQUESTS: "You have sent too many requests. Wait for the number of seconds in “Retry-After”.",
}
CONFLICT = {HTTPStatus.CONFLICT.value: OpenApiResponse(description=DESCRIPTIONS[HTTPStatus.CONFLICT])}
"""Response of operations that a study's or a run's state may not allow."""
UNPROCESSABLE = {
    HTTPStatus.UNPROCESSABLE_ENTITY.value: OpenApiResponse(description=DESCRIPTIONS[HTTPStatus.UNPROCESSABLE_ENTITY])
}
"""Response of operations that take an idempotency key."""
GONE = {HTTPStatus.GONE.value: OpenApiResponse(description=DESCRIPTIONS[HTTPStatus.GONE])}
"""Response of operations on a model, which may have been withdrawn."""
_NAMED = {str(status) for status in (*CONFLICT, *UNPROCESSABLE, *GONE)}
