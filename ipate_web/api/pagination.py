"""Pagination of lists by limit and offset."""

from rest_framework.pagination import LimitOffsetPagination


class Pages(LimitOffsetPagination):
    """Pagination by ``?limit=`` and ``?offset=``; larger limits are reduced to the maximum."""

    default_limit = 50
    max_limit = 1000


class LabelPages(Pages):
    """Pages as large as the labels of a usual run, so that one request fetches them all."""

    default_limit = 1000
    max_limit = 10_000
