"""Studies that are built through the services once in each process, and put back row by row for later tests."""

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
#: Settings that a test may change and nothing that is built depends on: of a live server, where files lie, and for how
#: long sites wait.
_WITHOUT_EFFECT = {"ALLOWED_HOSTS", "STORAGES", "SITES_WAIT"}
#: Where building a study leaves files: rows and teachers' predictions; models; keys of people's records.
_STORAGES = ("private", "models", "keys")


@dataclass(frozen=True)
class Snapshot:
    """What was built with all that came with it: rows by the statement that inserts them, files by storage and name.

    ``journal`` has the files of the journal, in which tests that commit leave something.
    ``model`` and ``pk`` say which row was returned: a study, or something of one. ``moment`` is the time of a test's
    :class:`Clock` afterwards.
    """

    model: type[models.Model]
    pk: Any
    rows: dict[str, list[tuple[Any, ...]]]
    files: dict[tuple[str, str], bytes]
    journal: dict[str, bytes]
    moment: Any = None

    def restore(self) -> models.Model:
        """Insert the rows with their primary keys; write the files again, because a test may have changed them."""
        with transaction.atomic(), connection.cursor() as cursor:
            for statement, rows in self.rows.items():
                cursor.executemany(statement, rows)
        for (alias, name), content in self.files.items():
            storages[alias].delete(name)
            storages[alias].save(name, ContentFile(content))
        for name, content in self.journal.items():
            path = Path(settings.JOURNAL_DIR) / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(content)
        return self.model._default_manager.get(pk=self.pk)


def built_once(build: Callable[P, M]) -> Callable[P, M]:
    """Decorator: call ``build`` once for the same arguments, and restore what it built from then on.

    It may stand below ``pytest.fixture`` where the fixture depends on no other but ``db``.

    It is called again where its result could differ: the database holds people or studies already, or settings or the
    time are a test's own (a :class:`Clock` of another moment). What is built for a test that commits gives no
    permissions of Django: they have other numbers in each such test.
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
            kept[key] = Snapshot(type(found), found.pk, rows, files, _journal(), clock and clock.moment)
        return found

    return built


def _as_for_others() -> bool:
    """Whether nothing of the current test can change what is built."""
    has_fixed_time = timezone.now is _now or _clock() is not None
    if not has_fixed_time or _settings_changed() - _WITHOUT_EFFECT or _journal():
        return False
    return not (Study.objects.exists() or User.objects.exists())


def _clock() -> Clock | None:
    """The clock that tells the current test's time; None where it is the system's, or something else."""
    owner = getattr(timezone.now, "__self__", None)
    return owner if isinstance(owner, Clock) else None


def _settings_changed() -> set[str]:
    """Names of the settings that hold for the current test alone."""
    names: set[str] = set()
    holder = settings._wrapped
    while isinstance(holder, UserSettingsHolder):
        names |= vars(holder).keys() - {"default_settings", "_deleted"}
        holder = holder.default_settings
    return names


def _stamps() -> dict[tuple[str, str], int]:
    """When each file was last written, by storage and name."""
    return {
        (alias, str(path.relative_to(_folder(alias)))): path.stat().st_mtime_ns
        for alias in _STORAGES
        for path in _folder(alias).rglob("*")
        if path.is_file()
    }


def _folder(alias: str) -> Path:
    return Path(storages[alias].path(""))


def _journal() -> dict[str, bytes]:
    """Files of the journal by name; none before a test has committed anything."""
    return {path.name: path.read_bytes() for path in Path(settings.JOURNAL_DIR).glob("*") if path.is_file()}


def _sizes() -> dict[type[models.Model], int]:
    """Number of rows of every table."""
    tables = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    counts = (f"SELECT {place}, COUNT(*) FROM {model._meta.db_table}" for place, model in enumerate(tables))
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(counts))
        return {tables[place]: size for place, size in cursor.fetchall()}


def _rows(model: type[models.Model]) -> tuple[str, list[tuple[Any, ...]]]:
    """Statement that inserts a row of ``model``, and the values of all its rows."""
    fields = model._meta.local_concrete_fields
    columns = ", ".join(f'"{field.column}"' for field in fields)
    statement = f'INSERT INTO "{model._meta.db_table}" ({columns}) VALUES ({", ".join(["%s"] * len(fields))})'
    rows = model._base_manager.order_by("pk").values_list(*(field.attname for field in fields))
    return statement, [
        tuple(field.get_db_prep_save(value, connection) for field, value in zip(fields, row, strict=True))
        for row in rows
    ]
