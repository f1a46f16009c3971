"""Time controlled by tests."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone


class Clock:
    """A time that only tests advance; each reading is a microsecond later, as on a fast computer."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(microseconds=1)
        return self.moment

    def days_pass(self, days: float) -> None:
        self.moment += timedelta(days=days)


def later(monkeypatch: pytest.MonkeyPatch, **time: float) -> None:
    """Stop the clock at a moment that is so much later, as in ``later(monkeypatch, days=3)``."""
    now = timezone.now() + timedelta(**time)
    monkeypatch.setattr(timezone, "now", lambda: now)
