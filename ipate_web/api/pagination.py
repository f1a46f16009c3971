"""Pagination of lists by limit and offset."""

from typing import Any

from rest_framework import serializers
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

LARGEST = 2**31 - 1
"""More than any list has, and what every database counts to."""


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
    """Pages as large as the labels of a usual run, so that one request fetches them all."""

    default_limit = 1000
    max_limit = 10_000


def _whole_number(request: Request, name: str, least: int, otherwise: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= LARGEST):
        raise serializers.ValidationError({name: f"“{text[:20]}” is no whole number from {least} to {LARGEST}."})
    return int(text)
