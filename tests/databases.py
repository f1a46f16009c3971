"""The test's own database: an empty one that is migrated once, and its address for processes that a test starts."""

import fcntl
import hashlib
import shutil
from pathlib import Path

from django.apps import apps as django_apps
from django.conf import settings
from django.db import connection


def database_url() -> str:
    """The value of ``DATABASE_URL`` with which another process uses the test's database."""
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{given['NAME']}"
    return f"postgres://{given['USER']}:{given['PASSWORD']}@{given['HOST']}:{given['PORT']}/{given['NAME']}"


class MigratedFile:
    """Copy of a migrated SQLite database, kept in ``folder`` for other processes and for later tests of the same code.

    The first process that needs it migrates its own and leaves the copy; others wait until it is there.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = (folder / "lock").open("w")
        self._copy = folder / f"{_code_digest()}.sqlite3"

    def fetch(self, database: str) -> bool:
        """Copy it to ``database``. Where there is none, others wait until :meth:`keep`."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if not self._copy.exists():
            return False
        shutil.copyfile(self._copy, database)
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        return True

    def keep(self, database: str) -> None:
        """Keep a copy of ``database``, in place of the one of earlier code."""
        for old in self._copy.parent.glob("*.sqlite3"):
            old.unlink()
        draft = self._copy.with_suffix(".draft")
        shutil.copyfile(database, draft)
        draft.replace(self._copy)
        fcntl.flock(self._lock, fcntl.LOCK_UN)


def _code_digest() -> str:
    """Digest of all that decides what a migrated database looks like: migrations, models, triggers, packages."""
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
