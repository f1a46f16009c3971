"""Limits on requests: the size of the body, the requested page of a list, and the token's permissions."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from django.conf import settings
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.parsers import JSONParser, MultiPartParser
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from ipate_web.accounts.adapters import NEEDED, lacks_second_factor
from ipate_web.tokens.models import ApiToken

#: Maximum size of a request, which is held in memory as a whole. A thousand MNIST images need less.
MAX_BYTES: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
LARGEST = 2**31 - 1
"""Largest number accepted in a request. Every database can handle it, and no list is longer."""


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = f"The request is larger than {MAX_BYTES // 2**20} MiB. Send the rows in several requests."
    default_code = "too_large"


class FileTooLarge(TooLarge):
    default_detail = (
        f"The request is larger than {MAX_BYTES // 2**20} MiB. Compress the file, or import it on the study's page."
    )


class LimitedJSONParser(JSONParser):
    """JSON parser that reads at most ``MAX_BYTES`` and refuses ambiguous content and content that cannot be stored."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        body = stream.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            _discard(stream)
            raise TooLarge
        try:
            text = body.decode("utf-8-sig")
            parsed = json.loads(
                text, parse_float=_float, parse_int=_integer, parse_constant=_constant, object_pairs_hook=_object
            )
            if r"\u" in text:  # the only way to write these characters
                for part in _texts(parsed):
                    _storable(part)
        except RecursionError:
            raise ParseError("The JSON document is nested too deeply. Send it in the documented form.") from None
        except ValueError as error:
            raise ParseError(f"The request is not valid JSON: {error}") from None
        return parsed


def _discard(stream: Any) -> None:
    """Read the rest of a refused request, within limits, because clients read no response before sending everything."""
    for _ in range(8 * MAX_BYTES // 2**20):
        if not stream.read(2**20):
            return


def _float(written: str) -> float:
    number = float(written)
    if not math.isfinite(number):
        raise ValueError(f"{written[:40]} is too large. Send a number below 1.8e308.")
    return number


def _integer(written: str) -> int:
    if len(written) > 20 or not -(2**63) <= int(written) < 2**63:
        raise ValueError(f"{written[:40]} is too large. Send an integer below 2^63.")
    return int(written)


def _constant(written: str) -> NoReturn:
    raise ValueError(f"{written} is not a JSON number.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"“{next(name for name in names if names.count(name) > 1)}” is given twice.")
    return document


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in a document, including names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _storable(text: str) -> None:
    if "\x00" in text:
        raise ValueError("A string contains the character U+0000. Remove it.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("A string contains half of a surrogate pair. Send the whole character.")


class LimitedMultiPartParser(MultiPartParser):
    """Parser of forms with files. It refuses content announced as larger than ``MAX_BYTES`` and never reads more."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        if stream.META.get("CONTENT_LENGTH", "").isdigit() and int(stream.META["CONTENT_LENGTH"]) > MAX_BYTES:
            _discard(stream)
            raise FileTooLarge
        return super().parse(stream, media_type, parser_context)


class Pages(LimitOffsetPagination):
    """Pagination by ``?limit=`` and ``?offset=``; larger limits are reduced to the maximum."""

    default_limit = 50
    max_limit = 1000

    def get_limit(self, request: Request) -> int:
        limit = _whole_number(request, self.limit_query_param, 1, self.default_limit)
        return min(limit, self.max_limit)

    def get_offset(self, request: Request) -> int:
        return _whole_number(request, self.offset_query_param, 0, 0)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        parameters = super().get_schema_operation_parameters(view)
        for parameter, least in zip(parameters, (1, 0), strict=True):
            parameter["schema"] |= {"minimum": least, "maximum": LARGEST}
        return parameters


class LabelPages(Pages):
    """Page size large enough for all labels of a typical run, so that one request fetches them all."""

    default_limit = 1000
    max_limit = 10_000


def _whole_number(request: Request, name: str, least: int, otherwise: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= LARGEST):
        raise serializers.ValidationError({name: f"“{text[:20]}” is not a whole number from {least} to {LARGEST}."})
    return int(text)


class WithinScope(BasePermission):
    """Permission that refuses requests outside a token's scopes; users signed in by a browser have no scopes.

    Reading requires the scope in the endpoint's ``reading_scope``, which is “read” with few exceptions. Everything else
    requires the scope in its ``scope``.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        token = request.auth
        if not isinstance(token, ApiToken) or request.method == "OPTIONS":
            return True
        self.code = "missing-scope"
        scope = view.reading_scope if request.method in SAFE_METHODS else view.scope
        self.message = f"This token does not have the scope “{scope}”. Create one that does on the page “API tokens”."
        return scope in token.scopes


class SecondFactor(BasePermission):
    """Permission that refuses tokens of staff who lack a required second factor; tokens may be older than the rule."""

    message = NEEDED
    code = "missing-second-factor"

    def has_permission(self, request: Request, view: Any) -> bool:
        return not lacks_second_factor(request.user)


def rate_headers(throttles: Iterable[Any]) -> dict[str, str]:
    """Return `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers) for the limits that applied."""
    counted = [each for each in throttles if getattr(each, "key", None) is not None]
    if not counted:
        return {}
    left = [
        (each.scope, max(0, each.num_requests - len(each.history)), each.duration - each.now + each.history[-1])
        for each in counted
    ]
    return {
        "RateLimit-Policy": ", ".join(f'"{each.scope}";q={each.num_requests};w={each.duration}' for each in counted),
        "RateLimit": ", ".join(f'"{scope}";r={number};t={math.ceil(wait)}' for scope, number, wait in left),
    }
