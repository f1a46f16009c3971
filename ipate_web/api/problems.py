"""Errors as problem documents (RFC 9457). Each has a kind with its own URL, and a remedy."""

from collections.abc import Iterator
from dataclasses import dataclass
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
"""Maximum number of errors in a file that a response lists."""
PAGE = "/docs/errors.html"
"""Path of the documentation page that lists all kinds."""
_SIGN_IN = "Send the header “Authorization: Bearer <token>”; you can create tokens on the page “API tokens”."


@dataclass(frozen=True)
class Kind:
    """A kind of problem. It keeps its name in all versions of the API.

    Attributes:
        name: Last part of its URL.
        status: HTTP status of its responses.
        meaning: Description of the problem.
        remedy: Steps that a program or its author can take.
    """

    name: str
    status: HTTPStatus
    meaning: str
    remedy: str

    @property
    def address(self) -> str:
        """URL of the kind, which is the ``type`` of its problem documents."""
        return f"{PAGE}#{self.name}"


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "invalid-fields",
            HTTPStatus.BAD_REQUEST,
            "A field or parameter is unknown, missing or invalid.",
            "Correct the errors listed in `errors`: each entry has a `field` and a `message`.",
        ),
        Kind(
            "invalid-json",
            HTTPStatus.BAD_REQUEST,
            "The body is not JSON that the site can store.",
            "Send one JSON document, without repeated names, U+0000, or integers of 2^63 and above.",
        ),
        Kind(
            "invalid-data",
            HTTPStatus.BAD_REQUEST,
            "A file, or a row sent for prediction, has errors.",
            "Correct the errors listed in `errors`: each entry has a `message` and, if known, a `row` and a `column`.",
        ),
        Kind(
            "not-signed-in",
            HTTPStatus.UNAUTHORIZED,
            "The token is missing, unknown, revoked or expired.",
            "Create a token on the page *API tokens* and send it in the header `Authorization`.",
        ),
        Kind(
            "https-required",
            HTTPStatus.FORBIDDEN,
            "The request came over plain HTTP, where others can read the token.",
            "Use the site's `https://` address, revoke the token, and create another.",
        ),
        Kind(
            "missing-scope",
            HTTPStatus.FORBIDDEN,
            "The token does not have the scope that the request needs.",
            "Create a token with this scope.",
        ),
        Kind(
            "missing-second-factor",
            HTTPStatus.FORBIDDEN,
            "The site asks staff for a second factor, and your account has none.",
            "Set up a second factor under *Account*.",
        ),
        Kind(
            "not-permitted",
            HTTPStatus.FORBIDDEN,
            "Your role in the study does not allow this.",
            "Ask someone whose role does, or ask the study's operator for another role.",
        ),
        Kind(
            "second-person",
            HTTPStatus.FORBIDDEN,
            "You cannot approve your own proposal, or change someone else's.",
            "Ask a colleague to approve your proposal, or ask the person who made a proposal to change it.",
        ),
        Kind(
            "not-found",
            HTTPStatus.NOT_FOUND,
            "There is nothing at this address, or you may not see it.",
            "Check the address. The API's lists show everything that you may see.",
        ),
        Kind(
            "method-not-allowed",
            HTTPStatus.METHOD_NOT_ALLOWED,
            "The address does not support this method.",
            "Use one of the methods in the header `Allow`.",
        ),
        Kind(
            "not-acceptable",
            HTTPStatus.NOT_ACCEPTABLE,
            "The response is not available in the format that `Accept` asks for.",
            "Leave out `Accept`, or use the parameter `format` if the operation has one.",
        ),
        Kind(
            "state-conflict",
            HTTPStatus.CONFLICT,
            "The current state of a study, run or version does not allow this.",
            "Fetch the resource again to see its current state.",
        ),
        Kind(
            "plan-impossible",
            HTTPStatus.CONFLICT,
            "The run cannot be carried out as proposed.",
            "`detail` says what to change: choices, share, head counts or policy.",
        ),
        Kind(
            "withdrawn",
            HTTPStatus.GONE,
            "The model or table was withdrawn.",
            "`detail` says when and why. Stop using any copies.",
        ),
        Kind(
            "too-large",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "The request is larger than 16 MiB.",
            "Send the rows in several requests, or compress the file.",
        ),
        Kind(
            "unsupported-media-type",
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "The request is not JSON, or not a form where a file is expected.",
            "Send the `Content-Type` that the operation documents.",
        ),
        Kind(
            "key-reused",
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "The key in `Idempotency-Key` was used for another request.",
            "Use a new key for each request. If you repeat a request, do not change it.",
        ),
        Kind(
            "too-many-requests",
            HTTPStatus.TOO_MANY_REQUESTS,
            "You have sent more requests than the header `RateLimit-Policy` allows.",
            "Wait for the number of seconds in `Retry-After`.",
        ),
        Kind(
            "busy",
            HTTPStatus.TOO_MANY_REQUESTS,
            "Another plan or event stream of yours is in progress, or the site has reached its limit.",
            "Wait for the number of seconds in `Retry-After`.",
        ),
        Kind(
            "server-error",
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "Something went wrong on the site. The error was logged.",
            "Try again in a few minutes. If it happens again, contact the site's administrators.",
        ),
        Kind(
            "unavailable",
            HTTPStatus.SERVICE_UNAVAILABLE,
            "The site's database, broker or disk is unavailable. Nothing was changed.",
            "Send the request again after the number of seconds in `Retry-After`.",
        ),
    )
}
"""All kinds by name; docs/errors.md lists them."""

_OF_STATUS = {kind.status: kind for kind in reversed(KINDS.values())} | {
    HTTPStatus.BAD_REQUEST: KINDS["invalid-fields"],
    HTTPStatus.FORBIDDEN: KINDS["not-permitted"],
}
"""Default kind of a problem, by status."""


def problem(kind: Kind, detail: str, errors: list[dict[str, Any]] | None = None) -> JsonResponse:
    """Return the problem document of a kind."""
    title = kind.status.phrase
    document: dict[str, Any] = {"type": kind.address, "title": title, "status": kind.status.value, "detail": detail}
    if errors:
        document["errors"] = errors
    return JsonResponse(document, status=kind.status, content_type=MEDIA_TYPE)


def problem_response(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Return the problem document for ``error``; None for a server error."""
    match error:
        case PlanError():
            return problem(KINDS["plan-impossible"], str(error))
        case NoSlotError():
            error = exceptions.Throttled(
                WAIT,
                "You already have another plan being calculated, or the site has reached its limit. Try again.",
                "busy",
            )
        case RequestDataTooBig():  # in case Django has read the request before its parser
            error = TooLarge()
        case DataError():
            faults = error.report.faults[:MOST_FAULTS] if isinstance(error, DataErrors) else [error]
            return problem(KINDS["invalid-data"], str(_nameless(error)), [_placed(fault) for fault in faults])
        case ModelValidationError(code="second_person" | "proposer"):
            return problem(KINDS["second-person"], error.messages[0])
        case RepeatedKeyError():
            return problem(KINDS["key-reused"], "This key was used for another request. Choose a new one.")
        case ModelValidationError(code="state"):
            return problem(KINDS["state-conflict"], error.messages[0])
        case ModelValidationError():
            error = exceptions.ValidationError(error.message_dict if hasattr(error, "error_dict") else error.messages)
    response = exception_handler(error, context)
    if response is None:
        return None
    kind = _kind(HTTPStatus(response.status_code), error)
    if isinstance(error, exceptions.ValidationError):
        errors = [{"field": field, "message": message} for field, message in _by_field(error.detail)]
        answer = problem(kind, "Correct the errors listed in “errors” and send the request again.", errors)
    else:
        detail = str(response.data["detail"])
        answer = problem(kind, f"{detail} {_SIGN_IN}" if kind.name == "not-signed-in" else detail)
    for header in ("WWW-Authenticate", "Retry-After"):
        if header in response:
            answer[header] = response[header]
    return answer


def _kind(status: HTTPStatus, error: Exception) -> Kind:
    """Return the kind named by the code of an exception, or else the kind for its status."""
    code = error.get_codes() if isinstance(error, exceptions.APIException) else ""
    named = KINDS.get(code) if isinstance(code, str) else None
    if isinstance(error, exceptions.ParseError):
        return KINDS["invalid-json"]
    return named if named is not None and named.status == status else _OF_STATUS[status]


def _nameless(error: DataError) -> DataError:
    """Return the first error without its file name, which is a path on the server."""
    return DataError(error.problem, error.remedy, row=error.row, column=error.column)


def _placed(fault: DataError) -> dict[str, Any]:
    place = {"row": fault.row, "column": fault.column}
    known = {key: value for key, value in place.items() if value is not None}
    return {**known, "message": f"{fault.problem} {fault.remedy}".strip()}


def _by_field(detail: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Return pairs of a dotted field name and one message. An empty name refers to the whole request."""
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
        "type": {
            "type": "string",
            "format": "uri-reference",
            "enum": [kind.address for kind in KINDS.values()],
            "description": "URI of the problem type, the same in all versions. It points to the description in the "
            "site's documentation.",
        },
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "Description of the problem and of what to do."},
        "errors": {
            "type": "array",
            "description": "One entry per error, naming the field of the request or the row and column of the data.",
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
    "required": ["type", "title", "status", "detail"],
    "example": {
        "type": KINDS["invalid-data"].address,
        "title": "Bad Request",
        "status": 400,
        "detail": "row 3, column age: “x” is not a number. Write a finite number.",
        "errors": [{"row": 3, "column": "age", "message": "“x” is not a number. Write a finite number."}],
    },
}


HEADERS = {
    "RateLimit-Policy": {
        "description": "Limits that apply, each with its name, the number of requests allowed (`q`) and the length of "
        "the time window in seconds (`w`).",
        "schema": {"type": "string"},
        "example": '"user";q=600;w=60',
    },
    "RateLimit": {
        "description": "For each limit, the number of requests left (`r`) and the seconds until the oldest counted "
        "request expires (`t`).",
        "schema": {"type": "string"},
        "example": '"user";r=598;t=57',
    },
    "Location": {
        "description": "URL of the resource that was created or of the task that was started.",
        "schema": {"type": "string", "format": "uri-reference"},
        "example": "/api/v1/runs/7d0f9c1e-2f4b-4c59-9d52-3c1f7a1f2b10",
    },
    "Retry-After": {
        "description": "Number of seconds to wait before you try again.",
        "schema": {"type": "integer"},
        "example": 5,
    },
}
"""Headers of responses, by name."""
_ONLY = {"Location": (HTTPStatus.CREATED, HTTPStatus.ACCEPTED), "Retry-After": (HTTPStatus.TOO_MANY_REQUESTS,)}
"""Statuses of the responses that have a header, for headers that not every response has."""


def problems_in_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the error responses of every operation to the OpenAPI schema.

    Each operation declares its own additional error responses; see `CONFLICT`.
    """
    result["components"]["schemas"]["Problem"] = PROBLEM_SCHEMA
    result["components"]["headers"] = HEADERS
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path, operations in result["paths"].items():
        for operation in operations.values():
            for status in _statuses(path, operation):
                response = operation["responses"].setdefault(str(status.value), {"description": DESCRIPTIONS[status]})
                response["content"] = content
            for code, response in operation["responses"].items():
                names = [name for name in HEADERS if name not in _ONLY or int(code) in _ONLY[name]]
                headers = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
                response["headers"] = {**response.get("headers", {}), **headers}
    return result


def _statuses(path: str, operation: dict[str, Any]) -> Iterator[HTTPStatus]:
    """Return the error statuses that an operation may respond with."""
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
    HTTPStatus.FORBIDDEN: "Your role in the study, or the scope of your token, does not allow this.",
    HTTPStatus.NOT_FOUND: "The resource does not exist, or you may not see it.",
    HTTPStatus.NOT_ACCEPTABLE: "The response is not available in the format requested by “Accept”.",
    HTTPStatus.CONFLICT: "The request is well formed, but it conflicts with the state of the run, or with the study's "
    "policy, head counts or shares.",
    HTTPStatus.GONE: "The model was withdrawn; “detail” says when and why.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The request is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The operation does not accept this content type.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The key in “Idempotency-Key” was used for another request.",
    HTTPStatus.TOO_MANY_REQUESTS: "You have sent too many requests. Wait for the number of seconds in “Retry-After”.",
}
CONFLICT = {HTTPStatus.CONFLICT.value: OpenApiResponse(description=DESCRIPTIONS[HTTPStatus.CONFLICT])}
"""Response of operations that may conflict with the state of a study or run."""
UNPROCESSABLE = {
    HTTPStatus.UNPROCESSABLE_ENTITY.value: OpenApiResponse(description=DESCRIPTIONS[HTTPStatus.UNPROCESSABLE_ENTITY])
}
"""Response of operations that take an idempotency key."""
GONE = {HTTPStatus.GONE.value: OpenApiResponse(description=DESCRIPTIONS[HTTPStatus.GONE])}
"""Response of operations on a model, which may have been withdrawn."""
_NAMED = {str(status) for status in (*CONFLICT, *UNPROCESSABLE, *GONE)}
