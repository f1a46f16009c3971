"""Models that do not belong to a single app."""

import json
from typing import Any, TypeVar

from django.db import IntegrityError, models, transaction

from common.sentences import Sentence

Row = TypeVar("Row", bound=models.Model)

_MARK = '{"template": '


def row_add(row: models.Model) -> None:
    """Save a new, validated row, refusing it if another transaction has just added a row with the same unique values.

    Raises:
        ValidationError: errors by field, as ``full_clean`` would raise them a moment later.
    """
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        row.full_clean()
        raise


def locked(row: Row) -> Row:
    """Lock a row until the transaction ends, and refresh it with its current values.

    Take the study's lock first, so that all transactions lock in the same order.

    Raises:
        DoesNotExist: the row was deleted.
    """
    row.refresh_from_db(from_queryset=type(row)._base_manager.select_for_update(of=("self",)))
    return row


class ThrottleEntry(models.Model):
    """Counted event, such as a failed sign-in, stored under a keyed hash of its subject.

    ``common.throttle`` writes and reads these rows. ``key`` is an HMAC-SHA256 in hexadecimal; no name, address,
    password or code is stored. The row is no longer counted after ``expires_at``.
    """

    key = models.CharField(max_length=64)
    expires_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "throttle entries"
        indexes = [
            models.Index(fields=["key", "expires_at"], name="throttle_by_key"),
            models.Index(fields=["expires_at"], name="throttle_by_expiry"),
        ]

    def __str__(self) -> str:
        return f"{self.key[:8]}… until {self.expires_at:%Y-%m-%d %H:%M}"


class WorkerHeartbeat(models.Model):
    """Time at which a Celery worker was last heard from, written by ``common.jobs``."""

    name = models.CharField(max_length=300, unique=True, help_text="Celery's name for the worker, or host and process.")
    heard_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name_plural = "worker heartbeats"

    def __str__(self) -> str:
        return f"{self.name}, {self.heard_at:%Y-%m-%d %H:%M:%S}"


class BackupRecord(models.Model):
    """Successful backup, recorded by ``ipate_web.backups.installation``."""

    made_at = models.DateTimeField(db_index=True)
    encrypted = models.BooleanField()

    class Meta:
        verbose_name_plural = "backup records"

    def __str__(self) -> str:
        return f"{self.made_at:%Y-%m-%d %H:%M:%S}"


class Pulse(models.Model):
    """Time at which a recurring event last happened, written and read by ``ipate_web.watching``."""

    name = models.CharField(max_length=50, unique=True)
    at = models.DateTimeField()
    until = models.DateTimeField(null=True, help_text="Expiry date, for a certificate.")
    note = models.CharField(max_length=200, help_text="Names of the reported problems, for an alert email.")

    class Meta:
        verbose_name_plural = "pulses"

    def __str__(self) -> str:
        return f"{self.name}, {self.at:%Y-%m-%d %H:%M:%S}"


class HandledRequest(models.Model):
    """Request that must not be handled twice, with its response; written and read by ``common.repeats``.

    Nothing about the request is stored in readable form: ``key`` and ``digest`` are keyed hashes, and the answer is
    encrypted with a key derived from the one-time key.
    """

    key = models.CharField(max_length=64, unique=True)
    digest = models.CharField(max_length=64)
    answer = models.BinaryField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name_plural = "handled requests"

    def __str__(self) -> str:
        return f"{self.key[:8]}… until {self.expires_at:%Y-%m-%d %H:%M}"


class SentenceField(models.TextField):
    """Field for a string or a :class:`~common.sentences.Sentence`; a Sentence is stored as JSON and restored."""

    def deconstruct(self) -> Any:
        name, _path, args, given = super().deconstruct()
        return name, "django.db.models.TextField", args, given

    def get_prep_value(self, value: Any) -> Any:
        return json.dumps(value.to_json()) if isinstance(value, Sentence) else super().get_prep_value(value)

    def from_db_value(self, value: str | None, *_: object) -> str | None:
        return Sentence.from_json(json.loads(value)) if value and value.startswith(_MARK) else value
