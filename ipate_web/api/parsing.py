"""Request parsers: JSON of limited size and depth, and forms with files of limited size.

JSON allows more than a database can hold. Numbers that are infinite as floats or beyond 64 bits, characters that
PostgreSQL cannot store, and names given twice are refused here, before any field sees them.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser, MultiPartParser

#: More than a thousand MNIST images take; a request is held in memory as a whole.
MAX_BYTES: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = f"The request is larger than {MAX_BYTES // 2**20} MiB. Send the rows in several requests."
    default_code = "too_large"


class FileTooLarge(TooLarge):
    default_detail = (
        f"The request is larger than {MAX_BYTES // 2**20} MiB. Compress the file, or import it on the study's page."
    )


class LimitedJSONParser(JSONParser):
    """JSON parser that reads at most ``MAX_BYTES`` and refuses what cannot be stored or is ambiguous."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        body = stream.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            _discard(stream)
            raise TooLarge
        try:
            text = body.decode("utf-8-sig")
            parsed = json.loads(
                text,
                parse_float=_float,
                parse_int=_integer,
                parse_constant=_constant,
                object_pairs_hook=_object,
            )
            if r"\u" in text:  # the only way to write these characters
                for part in _texts(parsed):
                    _storable(part)
        except RecursionError:
            raise ParseError("The JSON document is nested too deeply. Send what the documentation shows.") from None
        except ValueError as error:
            raise ParseError(f"The request is not valid JSON: {error}") from None
        return parsed


def _discard(stream: Any) -> None:
    """Read what is left of a refused request, within limits: a client reads no answer before it has sent everything."""
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
    """Yield all texts of a document, names of fields included."""
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
        raise ValueError("A text contains the character U+0000. Remove it.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("A text contains half of a surrogate pair. Send the whole character.")


class LimitedMultiPartParser(MultiPartParser):
    """Parser of forms with files that refuses what is announced as more than ``MAX_BYTES``; no more is read."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        if stream.META.get("CONTENT_LENGTH", "").isdigit() and int(stream.META["CONTENT_LENGTH"]) > MAX_BYTES:
            _discard(stream)
            raise FileTooLarge
        return super().parse(stream, media_type, parser_context)
