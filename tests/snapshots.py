"""Studies that are built through the services once in each process, and put back row by row for later tests."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from django.apps import apps
from django.conf import UserSettingsHolder, settings
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connection, models
from django.utils import timezone

from consent.models import Study

P = ParamSpec("P")
_now = timezone.now
#: Where building a study leaves files: rows and teachers' predictions; models.
_STORAGES = ("private", "models")


@dataclass(frozen=True)
class Snapshot:
    """A study with all that came with it: rows by the statement that inserts them, files by storage and name."""

    study_id: int
    rows: dict[str, list[tuple[Any, ...]]]
    files: dict[tuple[str, str], bytes]

    def restore(self) -> Study:
        """Insert the rows with their primary keys; write the files again, because a test may have changed them."""
        with connection.cursor() as cursor:
            for statement, rows in self.rows.items():
                cursor.executemany(statement, rows)
        for (alias, name), content in self.files.items():
            storages[alias].delete(name)
            storages[alias].save(name, ContentFile(content))
        return Study.objects.get(pk=self.study_id)


def built_once(build: Callable[P, Study]) -> Callable[P, Study]:
    """Decorator: call ``build`` once for the same arguments, and restore what it built from then on.

    It is called again where its result could differ: the database holds people or studies already, settings or the
    time are a test's own, or the test commits what it does.
    """
    kept: dict[str, Snapshot] = {}

    @wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> Study:
        if not _as_for_others():
            return build(*args, **kwargs)
        key = repr((args, sorted(kwargs.items())))
        if key in kept:
            return kept[key].restore()
        before, stamps = _sizes(), _stamps()
        study = build(*args, **kwargs)
        grown = [model for model, size in _sizes().items() if size != before[model]]
        if not any(before[model] for model in grown):
            written = [path for path, stamp in _stamps().items() if stamps.get(path) != stamp]
            files = {(alias, name): (_folder(alias) / name).read_bytes() for alias, name in written}
            kept[key] = Snapshot(study.pk, dict(map(_rows, grown)), files)
        return study

    return built


def _as_for_others() -> bool:
    """Whether nothing of the current test can change what is built."""
    if not connection.in_atomic_block or timezone.now is not _now or isinstance(settings._wrapped, UserSettingsHolder):
        return False
    return not (Study.objects.exists() or User.objects.exists())


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
