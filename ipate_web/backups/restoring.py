"""Restoration of a backup.

The journal is left as it is: it knows what the backup has forgotten. Where it does not reach as far as the backup does,
nobody knows what was forgotten, and studies are locked as well.
"""

import json
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.files.base import File
from django.core.files.storage import storages
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader

from accounting.restores import journal_distrust, missing_rows
from common.models import WorkerHeartbeat
from common.progress import progress_bar
from common.worker_heartbeats import workers_heard
from consent.models import Study
from ipate_web.backups import STORAGES, BackupError, manifest_of
from ipate_web.backups.databases import database_replace
from ipate_web.backups.files import digest_of, names_in
from ipate_web.backups.making import FORMAT


def backup_check(folder: Path) -> dict[str, Any]:
    """Manifest of the backup in ``folder``, if this code can restore it and all of its files are as they were made.

    Raises:
        BackupError: something about it is wrong.
    """
    try:
        manifest = json.loads(manifest_of(folder).read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise BackupError(f"{folder} is no backup: it has no readable {manifest_of(folder).name}.") from None
    if manifest["format"] != FORMAT:
        raise BackupError("This backup was made by a newer version. Install that version first.")
    if manifest["vendor"] != connection.vendor:
        raise BackupError(
            f"This backup is of {manifest['vendor']}, the installation runs on {connection.vendor}. Set DATABASE_URL."
        )
    known = MigrationLoader(None).disk_migrations or {}
    apps = {app for app, _ in known}
    for app, name in manifest["migrations"]:
        if app in apps and (app, name) not in known:
            raise BackupError(f"This backup was made by a newer version ({app} {name}). Install that version first.")
    for name, digest in progress_bar(manifest["files"].items(), desc="checking", unit=" files"):
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file() or digest_of(path) != digest:
            raise BackupError(f"{name} is missing or has changed since the backup was made. Use another backup.")
    return manifest


def occupied() -> str:
    """Content of this installation that a restoration would replace, in words; empty for a new one."""
    try:
        studies, accounts = Study.objects.count(), User.objects.count()
    except DatabaseError:  # no tables yet
        connection.close()
        studies = accounts = 0
    files = sum(1 for alias in STORAGES for _ in names_in(storages[alias]))
    return f"{studies} studies, {accounts} accounts, {files} files" if studies or accounts or files else ""


def is_running() -> bool:
    """Whether a worker was heard from."""
    try:
        return workers_heard() > 0
    except DatabaseError:
        connection.close()
        return False


def backup_restore(folder: Path, manifest: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Put a backup that was checked in place of what the installation has.

    Repeat it where it was interrupted: nothing of the backup changes.

    Returns:
        Locked studies: short name → how many rows of each chain are missing.
    """
    wanted: dict[str, set[str]] = {alias: set() for alias in STORAGES}
    for name in progress_bar(manifest["files"], desc="copying files", unit=" files"):
        alias, _, inner = name.partition("/")
        if inner:
            wanted[alias].add(inner)
            storages[alias].delete(inner)
            with (folder / name).open("rb") as file:
                storages[alias].save(inner, File(file))
    database_replace(folder / manifest["database"])
    for alias, names in wanted.items():
        for name in set(names_in(storages[alias])) - names:
            storages[alias].delete(name)
    call_command("migrate", verbosity=0)
    # Whoever was signed in at the backup may have been locked out since.
    Session.objects.all().delete()
    WorkerHeartbeat.objects.all().delete()
    locked = {}
    for study in Study.objects.all():
        journal_distrust(study)
        if missing := missing_rows(study):
            locked[study.slug] = missing
    return locked
