"""Tables that only grow: enforced by triggers in the database, chained by hashes.

A model that inherits :class:`AppendOnly` can be inserted and read. UPDATE and DELETE (on PostgreSQL also TRUNCATE) are
refused by triggers, whoever asks: the ORM, the admin, or a person with an SQL prompt. The triggers are put in place
after every ``migrate``, because SQLite's schema changes rebuild tables and lose them.

:class:`Chained` adds, for each study, a sequence number without gaps and a SHA-256 over every other column and the
previous row's hash, so that a row edited, removed, inserted or reordered behind the triggers' back is found.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn, Self

from django.apps import apps
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

GENESIS = "0" * 64


class AppendOnlyError(Exception):
    """Something tried to change or delete what can only be added to."""


class AppendOnlyQuerySet(models.QuerySet):
    def update(self, **kwargs: Any) -> NoReturn:
        raise AppendOnlyError(f"{self.model._meta.verbose_name_plural} are never edited; add a new one instead.")

    def delete(self) -> NoReturn:
        raise AppendOnlyError(f"{self.model._meta.verbose_name_plural} are never deleted.")


class AppendOnly(models.Model):
    """A row that, once written, stays as it is."""

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnlyError(f"A {self._meta.verbose_name} is never edited; add a new one instead.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AppendOnlyError(f"A {self._meta.verbose_name} is never deleted.")


class Chained(AppendOnly):
    """A row of a per-study hash chain. The inheriting model has a foreign key ``study``."""

    sequence = models.PositiveBigIntegerField(editable=False)
    previous_hash = models.CharField(max_length=64, editable=False)
    hash = models.CharField(max_length=64, editable=False)

    class Meta:
        abstract = True
        ordering = ["sequence"]

    def content(self) -> dict[str, Any]:
        """Every column but the key and the hash itself, in values that mean the same on every database."""
        return {
            field.attname: _canonical(getattr(self, field.attname))
            for field in self._meta.concrete_fields
            if not field.primary_key and field.attname != "hash"
        }

    def computed_hash(self) -> str:
        """SHA-256, in hexadecimal, over the canonical JSON of :meth:`content`."""
        text = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def append(cls, rows: Iterable[Self]) -> list[Self]:
        """Add ``rows``, all of one study, to the end of its chain.

        The caller holds the study's lock in a transaction (:func:`consent.services.study_lock`).
        """
        rows = list(rows)
        if not rows:
            return rows
        last = cls._default_manager.filter(study_id=rows[0].study_id).order_by("-sequence").first()  # type: ignore[attr-defined, misc]
        start, previous = (last.sequence + 1, last.hash) if last else (1, GENESIS)
        # The database itself checks that what is referred to exists.
        unchecked = {"sequence", "previous_hash", "hash"} | {
            field.name for field in cls._meta.fields if field.is_relation
        }
        for sequence, row in enumerate(rows, start):
            row.clean_fields(exclude=unchecked)
            row.sequence, row.previous_hash = sequence, previous
            row.hash = previous = row.computed_hash()
        cls._default_manager.bulk_create(rows, batch_size=500)
        return rows

    @classmethod
    def chain_faults(cls, study_id: int) -> Iterator[str]:
        """What is wrong with a study's chain, row by row, in words; nothing when it is whole."""
        name = cls._meta.verbose_name
        expected, previous = 1, GENESIS
        for row in (
            cls._default_manager.filter(**{"study_id": study_id}).order_by("sequence", "pk").iterator(chunk_size=2000)
        ):
            if row.sequence != expected:
                yield f"{name} {row.sequence}: number {expected} was expected; rows are missing, inserted or reordered."
            if row.previous_hash != previous:
                yield f"{name} {row.sequence}: does not follow the row before it (previous hash differs)."
            if row.computed_hash() != row.hash:
                yield f"{name} {row.sequence}: its content is not what was recorded (hash differs)."
            expected, previous = row.sequence + 1, row.hash


def _canonical(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if value is None or isinstance(value, (bool, int, float, str, list, dict)):
        return value
    return str(value)


# --- Triggers -------------------------------------------------------------------------------------------------------


def append_only_models() -> list[type[AppendOnly]]:
    return [model for model in apps.get_models() if issubclass(model, AppendOnly)]


def _trigger(table: str, event: str) -> str:
    return f"{table}_no_{event.lower()}"


def triggers_install(connection: BaseDatabaseWrapper) -> None:
    """Refuse UPDATE and DELETE on every append-only table of ``connection``; safe to repeat."""
    with connection.cursor() as cursor:
        present = set(connection.introspection.table_names(cursor))
        tables = [model._meta.db_table for model in append_only_models() if model._meta.db_table in present]
        if connection.vendor == "postgresql":
            cursor.execute(
                "CREATE OR REPLACE FUNCTION ipate_append_only() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP; END $$"
            )
        for table in tables:
            if connection.vendor == "postgresql":
                for event in ("UPDATE", "DELETE", "TRUNCATE"):
                    cursor.execute(
                        f"CREATE OR REPLACE TRIGGER {_trigger(table, event)} BEFORE {event} ON {table} "
                        f"FOR EACH STATEMENT EXECUTE FUNCTION ipate_append_only()"
                    )
            else:
                for event in ("UPDATE", "DELETE"):
                    cursor.execute(
                        f"CREATE TRIGGER IF NOT EXISTS {_trigger(table, event)} BEFORE {event} ON {table} "
                        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only: {event} refused'); END"
                    )


def triggers_remove(connection: BaseDatabaseWrapper) -> None:
    """Take the triggers away: for a test database that must be emptied, never for anything else."""
    with connection.cursor() as cursor:
        for model in append_only_models():
            table = model._meta.db_table
            for event in ("UPDATE", "DELETE", "TRUNCATE"):
                on_table = f" ON {table}" if connection.vendor == "postgresql" else ""
                cursor.execute(f"DROP TRIGGER IF EXISTS {_trigger(table, event)}{on_table}")


def install_after_migrate(*, using: str, **_: object) -> None:
    """Receiver of ``post_migrate``."""
    triggers_install(connections[using])
