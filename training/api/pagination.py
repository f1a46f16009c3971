"""Lists come in pages."""

from rest_framework.pagination import LimitOffsetPagination


class Pages(LimitOffsetPagination):
    """``?limit=`` and ``?offset=``; a larger limit than the largest counts as the largest."""

    default_limit = 50
    max_limit = 1000
