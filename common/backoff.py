"""Pauses before a failed request is sent again."""

import math
import random
import time
from threading import Lock

from django.utils.http import parse_http_date_safe

#: Largest random part of a pause. It spreads the retries of clients whose requests failed at the same time.
_JITTER = 0.25


def retry_after_seconds(header: str | None) -> float:
    """Return the seconds that a `Retry-After` header (RFC 9110) requests; 0 if it is absent, past or invalid."""
    text = (header or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    date = parse_http_date_safe(text)
    return 0.0 if date is None else max(0.0, date - time.time())


def pause_after(
    failures: int, *, least: float, most: float, retry_after: str | None = None, most_asked: float | None = None
) -> float:
    """Return the seconds to wait after several failures in a row, with a random part.

    Args:
        failures: Number of failures, at least 1.
        least: Seconds after the first failure; each further failure doubles the pause.
        most: Seconds at which the pause stops doubling.
        retry_after: The last response's `Retry-After`, which can make the pause longer.
        most_asked: Longest pause in seconds that a `Retry-After` can request; ``most`` by default.
    """
    doubled = min(math.ldexp(least, min(failures, 64) - 1), most)
    asked = min(retry_after_seconds(retry_after), most if most_asked is None else most_asked)
    return max(doubled, asked) * (1 + _JITTER * random.random())  # noqa: S311 - no secret


class Backoff:
    """Pause before the next request to one server, shared by all threads of this process.

    Args:
        least: Seconds after the first failure.
        most: Seconds at which the pause stops doubling.
        most_asked: Longest pause in seconds that a `Retry-After` can request.
    """

    def __init__(self, least: float, most: float, most_asked: float) -> None:
        self._limits = {"least": least, "most": most, "most_asked": most_asked}
        self._failures, self._until, self._lock = 0, 0.0, Lock()

    @property
    def seconds_left(self) -> float:
        """Seconds until the next request may be sent: 0 if it may be sent now."""
        return max(0.0, self._until - time.monotonic())

    def failed(self, retry_after: str | None = None) -> None:
        """Start a longer pause."""
        with self._lock:
            self._failures += 1
            self._until = time.monotonic() + pause_after(self._failures, retry_after=retry_after, **self._limits)

    def succeeded(self) -> None:
        """End the pause."""
        with self._lock:
            self._failures, self._until = 0, 0.0
