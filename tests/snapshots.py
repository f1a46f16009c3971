"""Studies that are built through the services once per process, and restored row by row for later tests."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from django.apps import apps
from django.conf import UserSettingsHolder, settings
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connection, models, transaction
from django.utils import timezone

from consent.models import Study
from tests.clock import Clock
from tests.draws import repeatable_draws

P = ParamSpec("P")
M = TypeVar("M", bound=models.Model)
_now = timezone.now
#: Settings that a test may change without affecting the built data: a live server's, locations of files, and waiting
#: times of sites.
_WITHOUT_EFFECT = {"ALLOWED_HOSTS", "STORAGES", "SITES_WAIT"}
#: Storages to which building a study writes: rows and teachers' predictions; models; keys of people's records.
_STORAGES = ("private", "models", "keys")


@dataclass(frozen=True)
class Snapshot:
    """Built data and everything created with them: rows by the statement that inserts them, files by storage and name.

    ``journal`` has the files of the journal, to which tests that commit write. ``model`` and ``pk`` identify the
    returned row: a study, or a part of one. ``sequences`` is the statement that lets PostgreSQL number new rows after
    these. ``moment`` is the time of a test's :class:`Clock` afterwards.
    """

    model: type[models.Model]
    pk: Any
    rows: dict[str, list[tuple[Any, ...]]]
    files: dict[tuple[str, str], bytes]
    journal: dict[str, bytes]
    sequences: str = ""
    moment: Any = None

    def restore(self) -> models.Model:
        """Insert the rows with their primary keys; write the files again, because a test may have changed them."""
        with transaction.atomic(), connection.cursor() as cursor:
            for statement, rows in self.rows.items():
                cursor.executemany(statement, rows)
            if self.sequences:
                cursor.execute(self.sequences)
        for (alias, name), content in self.files.items():
            storages[alias].delete(name)
            storages[alias].save(name, ContentFile(content))
        for name, content in self.journal.items():
            path = Path(settings.JOURNAL_DIR) / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(content)
        return self.model._default_manager.get(pk=self.pk)


def built_once(build: Callable[P, M]) -> Callable[P, M]:
    """Decorator that calls ``build`` once for the same arguments, and later restores the built data.

    It may be used below ``pytest.fixture`` if the fixture depends only on ``db``.

    It is called again if its result could differ, because the database already has people or studies, or the test has
    its own settings or time (a :class:`Clock` with another time). For a test that commits, the built data must not
    grant Django permissions, whose ids differ in each such test.
    """
    kept: dict[str, Snapshot] = {}

    @wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> M:
        if not _as_for_others():
            return build(*args, **kwargs)
        clock = _clock()
        key = repr((args, sorted(kwargs.items()), connection.in_atomic_block, clock and clock.moment))
        if key in kept:
            if clock:
                clock.moment = kept[key].moment
            return kept[key].restore()  # type: ignore[return-value]
        before, stamps = _sizes(), _stamps()
        with repeatable_draws(f"{build.__module__}.{build.__qualname__} {key}"):
            found = build(*args, **kwargs)
        grown = [model for model, size in _sizes().items() if size != before[model]]
        if not any(before[model] for model in grown):
            written = [path for path, stamp in _stamps().items() if stamps.get(path) != stamp]
            files = {(alias, name): storages[alias].open(name).read() for alias, name in written}
            rows = dict(map(_rows, grown))
            moment = clock and clock.moment
            kept[key] = Snapshot(type(found), found.pk, rows, files, _journal(), _sequences(grown), moment)
        return found

    return built


def _as_for_others() -> bool:
    """Return whether the current test does not affect the built data."""
    has_fixed_time = timezone.now is _now or _clock() is not None
    if not has_fixed_time or _settings_changed() - _WITHOUT_EFFECT or _journal():
        return False
    return not (Study.objects.exists() or User.objects.exists())


def _clock() -> Clock | None:
    """Return the current test's `Clock`, or None if the time comes from the system or another clock."""
    owner = getattr(timezone.now, "__self__", None)
    return owner if isinstance(owner, Clock) else None


def _settings_changed() -> set[str]:
    """Return the names of settings changed only for the current test."""
    names: set[str] = set()
    holder = settings._wrapped
    while isinstance(holder, UserSettingsHolder):
        names |= vars(holder).keys() - {"default_settings", "_deleted"}
        holder = holder.default_settings
    return names


def _stamps() -> dict[tuple[str, str], int]:
    """Return when each file was last written, by storage and name."""
    return {
        (alias, str(path.relative_to(_folder(alias)))): path.stat().st_mtime_ns
        for alias in _STORAGES
        for path in _folder(alias).rglob("*")
        if path.is_file()
    }


def _folder(alias: str) -> Path:
    return Path(storages[alias].path(""))


def _journal() -> dict[str, bytes]:
    """Return the journal's files by name; none before a test has committed anything."""
    return {path.name: path.read_bytes() for path in Path(settings.JOURNAL_DIR).glob("*") if path.is_file()}


def _sizes() -> dict[type[models.Model], int]:
    """Return the number of rows in every table."""
    tables = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    counts = (f"SELECT {place}, COUNT(*) FROM {model._meta.db_table}" for place, model in enumerate(tables))
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(counts))
        return {tables[place]: size for place, size in cursor.fetchall()}


def _rows(model: type[models.Model]) -> tuple[str, list[tuple[Any, ...]]]:
    """Return the statement that inserts a row of ``model``, and the values of all its rows."""
    fields = model._meta.local_concrete_fields
    columns = ", ".join(f'"{field.column}"' for field in fields)
    statement = f'INSERT INTO "{model._meta.db_table}" ({columns}) VALUES ({", ".join(["%s"] * len(fields))})'
    rows = model._base_manager.order_by("pk").values_list(*(field.attname for field in fields))
    return statement, [
        tuple(field.get_db_prep_save(value, connection) for field, value in zip(fields, row, strict=True))
        for row in rows
    ]


def _sequences(numbered: list[type[models.Model]]) -> str:
    """Return a statement that moves the sequences of these tables past their rows; some tests set sequences back."""
    if connection.vendor != "postgresql":
        return ""
    moves = []
    with connection.cursor() as cursor:
        for model in numbered:
            table, key = model._meta.db_table, model._meta.pk.column
            cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [f'"{table}"', key])
            (name,) = cursor.fetchone()
            if name is not None:
                last = model._base_manager.latest("pk").pk
                moves.append(f"SELECT CASE WHEN last_value <= {last} THEN setval('{name}', {last}) END FROM {name}")
    return " UNION ALL ".join(moves)
