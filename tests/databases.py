"""The test's own database, empty and migrated once, and its address for processes that a test starts."""

import fcntl
import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from django.apps import apps as django_apps
from django.conf import settings
from django.db import connection


def database_url() -> str:
    """Return the value of ``DATABASE_URL`` with which another process uses the test's database."""
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{given['NAME']}"
    return f"postgres://{given['USER']}:{given['PASSWORD']}@{given['HOST']}:{given['PORT']}/{given['NAME']}"


class MigratedFile:
    """Copy of a migrated SQLite database, stored in ``folder`` for other processes and later tests of the same code.

    The first process that needs it migrates its own database and stores a copy; others wait for the copy.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = (folder / "lock").open("w")
        self._copy = folder / f"{_code_digest()}.sqlite3"

    def fetch(self) -> bool:
        """Copy it to the test's database. If there is none yet, return False; others wait until :meth:`keep`."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if not self._copy.exists():
            return False
        shutil.copyfile(self._copy, connection.settings_dict["TEST"]["NAME"])
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        return True

    def keep(self) -> None:
        """Store a copy of the test's database, replacing the copy for earlier code."""
        for old in self._copy.parent.glob("*.sqlite3"):
            old.unlink()
        draft = self._copy.with_suffix(".draft")
        shutil.copyfile(connection.settings_dict["NAME"], draft)
        draft.replace(self._copy)
        fcntl.flock(self._lock, fcntl.LOCK_UN)


class MigratedTemplate:
    """Migrated database on PostgreSQL: a template on the same server, which Django copies for the test."""

    def __init__(self, folder: Path) -> None:
        self._lock = (folder / "lock").open("w")
        self._prefix = f"{connection.settings_dict['NAME']}_migrated_"
        self._name = self._prefix + _code_digest()[:16]

    def fetch(self) -> bool:
        """Use it as the test's template. If there is none yet, return False; others wait until :meth:`keep`."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self._name not in self._present():
            return False
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        connection.settings_dict["TEST"]["TEMPLATE"] = self._name
        return True

    def keep(self) -> None:
        """Store a copy of the test's database, which has no connections, replacing the copy for earlier code."""
        old, draft = self._present(), self._prefix + "draft"
        with connection._nodb_cursor() as cursor:
            for name in old:
                cursor.execute(f'DROP DATABASE "{name}"')
            cursor.execute(f'CREATE DATABASE "{draft}" TEMPLATE "{connection.settings_dict["NAME"]}"')
            cursor.execute(f'ALTER DATABASE "{draft}" RENAME TO "{self._name}"')
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _present(self) -> list[str]:
        with connection._nodb_cursor() as cursor:
            cursor.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [self._prefix])
            return [name for (name,) in cursor.fetchall()]


def migrated(folder: Path) -> MigratedFile | MigratedTemplate:
    """Return the stored copy of the migrated database, for the kind of database in use."""
    return (MigratedFile if connection.vendor == "sqlite" else MigratedTemplate)(folder)


def commits_without_waiting() -> None:
    """Let every process that uses the test's database on PostgreSQL commit without waiting for the disk."""
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{connection.settings_dict["NAME"]}" SET synchronous_commit = off')
    connection.close()


def rows_deleted(style: object, tables: Iterable[str], **_: object) -> list[str]:
    """Return SQL that empties PostgreSQL tables, regardless of their triggers and references.

    It replaces Django's flush, because TRUNCATE creates new files for a hundred tables, of which a test fills a few,
    and rows created by migrations would have to be created again.
    """
    emptied = set(tables) - {"django_content_type", "auth_permission"}
    deletions = (f"DELETE FROM {connection.ops.quote_name(table)}" for table in sorted(emptied))
    return ["SET LOCAL session_replication_role = replica", *deletions]


def _code_digest() -> str:
    """Return a digest of everything that determines a migrated database: migrations, models, triggers, packages."""
    digest = hashlib.sha256()
    apps = [Path(config.path) for config in django_apps.get_app_configs() if _is_ours(Path(config.path))]
    kinds = ("models.py", "models/*.py", "migrations/*.py")
    files = [file for app in apps for kind in kinds for file in app.glob(kind)]
    others = [settings.BASE_DIR / name for name in ("requirements/site.txt", "common/append_only.py", "common/apps.py")]
    for file in [*others, *sorted(files)]:
        digest.update(str(file.relative_to(settings.BASE_DIR)).encode() + file.read_bytes())
    return digest.hexdigest()


def _is_ours(folder: Path) -> bool:
    return folder.is_relative_to(settings.BASE_DIR) and "site-packages" not in folder.parts
