"""The time of tests that move it on themselves."""

from datetime import UTC, datetime, timedelta


class Clock:
    """A time that only tests move on; every look at it is a microsecond later, as in a quick computer."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(microseconds=1)
        return self.moment

    def days_pass(self, days: float) -> None:
        self.moment += timedelta(days=days)
