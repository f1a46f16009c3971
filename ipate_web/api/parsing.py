"""Request parser: JSON of limited size and depth."""

import io
from typing import Any

from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser

#: More than a thousand MNIST images take; a request is held in memory as a whole.
MAX_BYTES = 16 * 2**20


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = f"The request is larger than {MAX_BYTES // 2**20} MiB. Send the rows in several requests."
    default_code = "too_large"


class LimitedJSONParser(JSONParser):
    """JSON parser that reads at most ``MAX_BYTES`` and refuses deep nesting."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        body = stream.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise TooLarge
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError:
            raise ParseError("The JSON document is nested too deeply. Send what the documentation shows.") from None
