"""Restoration of a backup, next to the installation's current data, which it then replaces.

The journal is left as it is: it knows what the backup has forgotten. If it does not reach back as far as the backup,
nobody knows what was forgotten, and studies are locked as well.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.files.storage import storages
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from pyrage.x25519 import Identity

from accounting.restores import journal_distrust, missing_rows
from common import __version__
from common.models import WorkerHeartbeat
from common.progress import progress_bar
from common.worker_heartbeats import live_worker_count
from consent.models import Study
from ipate_web.backups import MANIFEST, STORAGES, BackupError
from ipate_web.backups.archives import archive_open, blocks_of, digest_of
from ipate_web.backups.databases import database_beside
from ipate_web.backups.files import FilesBeside, Name, names_in, workspace
from ipate_web.backups.making import FORMAT
from training.models import DatasetImport, Verification


def backup_check(path: Path, identities: Sequence[Identity]) -> dict[str, Any]:
    """Manifest of a backup, if this code can restore it and all of its files are as they were made.

    Raises:
        BackupError: something about it is wrong.
    """
    if path.is_dir():
        raise BackupError(
            f"{path} is a folder: earlier versions made such backups. Restore it with the version that made it."
        )
    rows_of_backup: set[tuple[str, str]] = set()
    manifest: dict[str, Any] = {}
    with archive_open(path, identities) as members:
        for name, content in progress_bar(members, desc="checking", unit=" files"):
            if name == MANIFEST:
                manifest = json.loads(content.read())
                continue
            rows_of_backup.add((name, digest_of(content)))
    if not manifest:
        raise BackupError(f"{path} is no backup: it has no {MANIFEST}.")
    other_version = (
        f"This backup was made by iPATE {manifest.get('version', 'before 0.9.0')}, and this is iPATE {__version__}. "
        "Install the version that made it"
    )
    if manifest["format"] != FORMAT:
        raise BackupError(f"{other_version}.")
    if manifest["vendor"] != connection.vendor:
        raise BackupError(
            f"This backup is of {manifest['vendor']}, the installation runs on {connection.vendor}. Set DATABASE_URL."
        )
    known = MigrationLoader(None).disk_migrations or {}
    apps = {app for app, _ in known}
    for app, name in manifest["migrations"]:
        if app in apps and (app, name) not in known:
            raise BackupError(f"{other_version}; this one does not know the migration {app} {name}.")
    for name, digest in manifest["files"].items():
        if (name, digest) not in rows_of_backup:
            raise BackupError(f"{name} is missing or has changed since the backup was made. Use another backup.")
    return manifest


def content_at_risk() -> str:
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
        return live_worker_count() > 0
    except DatabaseError:
        connection.close()
        return False


def backup_restore(path: Path, identities: Sequence[Identity], manifest: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Replace the installation's data with a backup that was checked.

    Everything is first restored next to the current data, and migrated. Then the database is replaced in one
    transaction. If anything fails before its commit, database and files stay as they were.

    Returns:
        Locked studies: short name → how many rows of each chain are missing.

    Raises:
        BackupError: it failed; the message says whether anything was changed.
    """
    replaced = False
    try:
        with workspace() as folder:
            files = FilesBeside(_files_of(manifest), folder)
            dump = folder / manifest["database"]
            with archive_open(path, identities) as members:
                for name, content in progress_bar(members, desc="copying files", unit=" files"):
                    alias, _, inner = name.partition("/")
                    if name == dump.name:
                        with dump.open("wb") as copy:
                            copy.writelines(blocks_of(content))
                    elif inner:
                        files.take((alias, inner), content)
            files.check()
            with database_beside(dump):
                call_command("migrate", verbosity=0)
                # Whoever was signed in at the backup may have been locked out since.
                Session.objects.all().delete()
                WorkerHeartbeat.objects.all().delete()
                # What was being imported has to be uploaded again: no backup has those files.
                DatasetImport.objects.exclude(state=DatasetImport.State.DONE).delete()
                locked = _locked()
            replaced = True
            files.settle()
            files.finish()
    except Exception as error:  # storages and migrations have errors of their own
        state = (
            "The database is the restored one, files are missing yet: call this again."
            if replaced
            else "Nothing was changed: database and files are what they were."
        )
        raise BackupError(f"The backup could not be restored. {state} {error}") from error
    return locked


def _files_of(manifest: dict[str, Any]) -> dict[Name, str]:
    digests = {}
    for name, digest in manifest["files"].items():
        alias, _, inner = name.partition("/")
        if inner:
            digests[alias, inner] = digest
    return digests


def _locked() -> dict[str, dict[str, int]]:
    """Lock the studies for which the backup lacks records; return what is missing in each."""
    # What was verified is another database.
    Verification.objects.update(verified_at=None, claimed_at=None)
    locked = {}
    for study in Study.objects.all():
        journal_distrust(study)
        if missing := missing_rows(study):
            locked[study.slug] = missing
            Verification.objects.update_or_create(study=study, defaults={"locked": True})
    return locked
