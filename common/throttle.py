"""Limits on failed attempts, counted in the database across all processes of the site.

An attempt is recorded before it is checked, and deleted if it succeeds, so that simultaneous attempts cannot together
exceed a limit, even in different processes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from common.models import ThrottleEntry


class TooManyTriesError(Exception):
    """Raised if a limit is reached. The attempt was not checked and is not counted.

    Attributes:
        until: Time when attempts are checked again.
    """

    def __init__(self, until: datetime) -> None:
        super().__init__(f"too many failed attempts; the next is possible at {until:%H:%M:%S} UTC")
        self.until = until


@dataclass(frozen=True)
class Counter:
    """Limit on failed attempts, with the key under which they are counted.

    Attributes:
        key: Key from :func:`keyed_hash`.
        tries: Maximum number of failed attempts within ``window``.
        window: How long a failed attempt is counted.
    """

    key: str
    tries: int
    window: timedelta


@dataclass(frozen=True)
class Attempt:
    """A recorded attempt, which counts as failed unless :meth:`forget` is called."""

    entries: list[ThrottleEntry]

    def forget(self) -> None:
        """Remove the attempt from the count, because it succeeded or was not checked."""
        ThrottleEntry.objects.filter(pk__in=[entry.pk for entry in self.entries]).delete()


def keyed_hash(purpose: str, *subject: str) -> str:
    """Return a keyed hash (HMAC-SHA256 under the site's secret key, hexadecimal) of an event and its subject."""
    return salted_hmac("common.throttle", json.dumps([purpose, *subject]), algorithm="sha256").hexdigest()


def attempt_begin(counters: Sequence[Counter]) -> Attempt:
    """Record an attempt with each of ``counters``. Call this outside transactions, which would hide it from others.

    Raises:
        TooManyTriesError: one of the counters is at its limit.
    """
    now = timezone.now()
    entries = [ThrottleEntry(key=counter.key, expires_at=now + counter.window) for counter in counters]
    with transaction.atomic(durable=True):
        attempt = Attempt(ThrottleEntry.objects.bulk_create(entries))
    try:
        counters_check(counters, own=attempt)
    except TooManyTriesError:
        attempt.forget()
        raise
    return attempt


def counters_check(counters: Sequence[Counter], own: Attempt | None = None) -> None:
    """Check that another attempt is allowed, without counting the entries of ``own``.

    Raises:
        TooManyTriesError: one of the counters is at its limit.
    """
    own_keys = [entry.pk for entry in own.entries] if own else []
    full: list[datetime] = []
    for counter in counters:
        counted = ThrottleEntry.objects.filter(key=counter.key, expires_at__gt=timezone.now()).exclude(pk__in=own_keys)
        # The limit is reached until the oldest of the latest ``tries`` failures expires.
        latest = counted.order_by("-expires_at").values_list("expires_at", flat=True)
        full += latest[counter.tries - 1 : counter.tries]
    if full:
        raise TooManyTriesError(max(full))


def counter_reset(key: str) -> None:
    """Delete all records under ``key``."""
    ThrottleEntry.objects.filter(key=key).delete()


@transaction.atomic
def note_set(key: str, duration: timedelta) -> None:
    """Remember ``key`` for ``duration``, starting now."""
    counter_reset(key)
    ThrottleEntry.objects.create(key=key, expires_at=timezone.now() + duration)


def is_noted(key: str) -> bool:
    """Return whether :func:`note_set` was called for ``key`` and its duration has not ended."""
    return ThrottleEntry.objects.filter(key=key, expires_at__gt=timezone.now()).exists()


def entries_sweep() -> int:
    """Delete expired entries; return their number."""
    return ThrottleEntry.objects.filter(expires_at__lte=timezone.now()).delete()[0]
