"""Errors as problem documents (RFC 9457), each with what to do."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS
from django.core.exceptions import ValidationError as ModelValidationError
from django.http import HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.views import exception_handler

from training.formats import DataError
from training.methods.pate import PlanError

MEDIA_TYPE = "application/problem+json"
_SIGN_IN = "Send the header “Authorization: Bearer <token>”; you make tokens on the page “API tokens”."


def problem_response(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Problem document for ``error``; None for an error of the server."""
    match error:
        case PlanError():
            return _problem(HTTPStatus.CONFLICT, str(error))
        case DataError():
            place = {"row": error.row, "column": error.column}
            known = {key: value for key, value in place.items() if value is not None}
            return _problem(HTTPStatus.BAD_REQUEST, str(error), [{**known, "message": _sentences(error)}])
        case ModelValidationError(code="second_person"):
            return _problem(HTTPStatus.FORBIDDEN, error.messages[0])
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


def _sentences(error: DataError) -> str:
    return f"{error.problem} {error.remedy}".strip()


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
    "description": "A problem document (RFC 9457): what is wrong and what to do.",
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "errors": {
            "type": "array",
            "description": "One for each mistake: in a field of the request, or in a row and column of data.",
            "items": {
                "type": "object",
                "properties": {
                    "field": {"type": "string"},
                    "row": {"type": "integer", "description": "From 1."},
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
        "detail": "row 3, column age: “x” is no number. Write a finite number.",
        "errors": [{"row": 3, "column": "age", "message": "“x” is no number. Write a finite number."}],
    },
}


def problems_in_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the error responses of every operation to the OpenAPI schema."""
    result["components"]["schemas"]["Problem"] = PROBLEM_SCHEMA
    response = {
        "description": "Something is wrong with the request, or it is not allowed.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"]["default"] = response
    return result
