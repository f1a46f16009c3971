"""The page for those who have to wait after too many failed tries."""

import math

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from common.throttle import TooManyTriesError


class TooManyTriesMiddleware(MiddlewareMixin):
    """Answers ``TooManyTriesError`` out of any view, the admin's included, with status 429 and the time to wait."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """The page, or None for any other exception."""
        if not isinstance(exception, TooManyTriesError):
            return None
        seconds = max(1, math.ceil((exception.until - timezone.now()).total_seconds()))
        response = render(request, "429.html", {"minutes": math.ceil(seconds / 60)}, status=429)
        response["Retry-After"] = str(seconds)
        response["Cache-Control"] = "no-store"
        return response
