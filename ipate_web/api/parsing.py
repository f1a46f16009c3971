"""Request parsers: JSON of limited size and depth, and forms with files of limited size."""

import io
from typing import Any

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
    """JSON parser that reads at most ``MAX_BYTES`` and refuses deep nesting."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        body = stream.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise TooLarge
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError:
            raise ParseError("The JSON document is nested too deeply. Send what the documentation shows.") from None


class LimitedMultiPartParser(MultiPartParser):
    """Parser of forms with files that refuses what is announced as more than ``MAX_BYTES``; no more is read."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        if stream.META.get("CONTENT_LENGTH", "").isdigit() and int(stream.META["CONTENT_LENGTH"]) > MAX_BYTES:
            raise FileTooLarge
        return super().parse(stream, media_type, parser_context)
