"""Backup of a running installation, and its restoration next to the current data, which the backup then replaces.

Files are copied first, then a snapshot of the database, then files that were added or changed in the meantime. A file
that the snapshot refers to existed before the snapshot, so a file can be missing only if it was created and deleted in
between. In that case, the snapshot is repeated. Only the database copy is on disk unencrypted, until it has been added
to the archive.

A restoration does not change the journal, which contains the acts that the backup lacks. If the journal does not reach
back to the backup, the missing acts are unknown, so studies are locked as well.
"""

import io
import json
import os
import re
import sqlite3
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.files.storage import storages
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone
from pyrage.x25519 import Identity

from accounting.restores import journal_distrust, missing_rows
from common import __version__
from common.jobs import live_worker_count
from common.journal import acts_forget
from common.models import BackupRecord, WorkerHeartbeat
from common.progress import progress_bar
from consent.models import Disposal, Study
from ipate_web.backups import MANIFEST, STORAGES, BackupError
from ipate_web.backups.archives import Digesting, archive_open, archive_write, blocks_of, digest_of
from ipate_web.backups.databases import database_staged, dump_name, snapshot
from ipate_web.backups.files import (
    FileCopies,
    Name,
    StagedFiles,
    files_named_now,
    heads_of,
    member_add,
    migrations_of,
    names_in,
    referenced_files,
    workspace,
)
from training.models import DatasetImport, Verification

FORMAT = 2
TRIES = 5

_MOMENT = "ipate-%Y-%m-%dT%H%M%SZ"
_NAME = re.compile(r"(ipate-\d{4}-\d\d-\d\dT\d{6}Z)\.tar(\.age)?")
_PARTIAL = re.compile(_NAME.pattern + r"\.partial")
#: A backup that is still incomplete after this time will never be completed.
_LONGEST = timedelta(days=1)


def backup_make(folder: Path, recipients: Sequence[str]) -> tuple[Path, str]:
    """Make a backup in ``folder``, encrypted to the ``recipients``. After an error, no incomplete file remains.

    Without recipients, the backup is not encrypted.

    Returns:
        The file, and its SHA-256.

    Raises:
        BackupError: the backup could not be made.
    """
    now = timezone.now()
    target = folder / f"{now.astimezone(UTC):{_MOMENT}}.tar{'.age' if recipients else ''}"
    if target.exists():
        raise BackupError(f"{target} already exists, and backups are never overwritten. Try again in a second.")
    partial = target.with_name(f"{target.name}.partial")
    umask = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with workspace() as space, partial.open("wb") as file:
            written = Digesting(file)
            with archive_write(written, recipients) as archive:  # type: ignore[arg-type]
                _copy(archive, space)
            file.flush()
            os.fsync(file.fileno())
        if _digest_of(partial) != written.hexdigest():
            raise BackupError(f"{target} was not written correctly. The disk may be full or failing.")
        partial.rename(target)
        os.sync()
    except (OSError, DatabaseError, sqlite3.Error) as error:
        raise BackupError(f"The backup could not be written: {error}") from error
    finally:
        os.umask(umask)
        with suppress(OSError):
            partial.unlink()
    BackupRecord.objects.create(made_at=now, encrypted=bool(recipients))
    return target, written.hexdigest()


def backups_prune(folder: Path, days: int) -> list[Path]:
    """Delete backups in ``folder`` older than ``days``, and leftovers of killed backups; return the deleted files.

    The last backup is kept, because it may be the only one. If something has been erased since, it is deleted as well,
    because erased data must disappear from backups, too. Acts that every remaining backup contains are removed from the
    journal.
    """
    made = {path: _made_at(path) for path in folder.iterdir() if _NAME.fullmatch(path.name)}
    limit = timezone.now() - timedelta(days=days)
    old = [path for path, moment in made.items() if moment < limit]
    last = max(made, key=made.__getitem__, default=None)
    if last in old and not _erased_since(made[last]):
        old.remove(last)
    killed = time.time() - _LONGEST.total_seconds()
    old += [path for path in folder.iterdir() if _PARTIAL.fullmatch(path.name) and path.stat().st_mtime < killed]
    for path in old:
        path.unlink()
    # Acts that every backup contains will never have to be recorded again.
    oldest = min([limit, *(moment for path, moment in made.items() if path not in old)])
    for study in Study.objects.all():
        acts_forget(study.pk, timezone.now() - oldest)
    return sorted(old)


def _made_at(path: Path) -> datetime:
    """Return the time of a backup from its name, because copies do not always keep the file time."""
    return datetime.strptime(path.name.partition(".")[0], _MOMENT).replace(tzinfo=UTC)


def _erased_since(moment: datetime) -> bool:
    kinds = (Disposal.Kind.ERASED, Disposal.Kind.DATASET, Disposal.Kind.EXPIRED)
    return Disposal.objects.filter(kind__in=kinds, recorded_at__gte=moment).exists()


def _copy(archive: tarfile.TarFile, folder: Path) -> None:
    """Copy everything into ``archive``, using ``folder`` for the database copy."""
    copies = FileCopies(archive)
    dump = folder / dump_name()
    with progress_bar(desc="copying files", unit="B", unit_scale=True) as bar:
        copies.renew(bar)
        for _ in range(TRIES):
            # Permanently deleted files that rows still refer to, such as files of ended runs.
            absent = {
                (alias, name)
                for alias, name in files_named_now() - copies.digests.keys()
                if not storages[alias].exists(name)
            }
            made_at = timezone.now()
            bar.set_description("copying the database")
            with snapshot(dump) as query:
                named, heads, migrations = referenced_files(query), heads_of(query), migrations_of(query)
            bar.set_description("copying new files")
            there = copies.renew(bar)
            missing = named - copies.digests.keys() - absent
            if not missing:
                break
        else:
            alias, name = min(missing)
            raise BackupError(
                f"Files changed faster than they could be copied. Stop the workers and try again. If {alias}/{name} "
                "fails again, it is damaged or encrypted with another records key."
            )
        bar.set_description("writing the database")
        with dump.open("rb") as file:
            member_add(archive, dump.name, dump.stat().st_size, file)
    # Deleted and unneeded files are not restored, because someone may have had a right to their deletion.
    kept = {file: digest for file, digest in copies.digests.items() if file in there | named}
    content = json.dumps(
        {
            "format": FORMAT,
            "version": __version__,
            "made_at": made_at.isoformat(),
            "vendor": connection.vendor,
            "database": dump.name,
            "heads": heads,
            "migrations": migrations,
            "files": {f"{alias}/{name}": digest for (alias, name), digest in kept.items()}
            | {dump.name: _digest_of(dump)},
        },
        indent=1,
        sort_keys=True,
    ).encode()
    member_add(archive, MANIFEST, len(content), io.BytesIO(content))


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return digest_of(file)


# --- Restoration ------------------------------------------------------------------------------------------------------


def backup_check(path: Path, identities: Sequence[Identity]) -> dict[str, Any]:
    """Return the manifest of a backup after checking that this code can restore it and all of its files are intact.

    Raises:
        BackupError: the backup is damaged or cannot be restored.
    """
    if path.is_dir():
        raise BackupError(
            f"{path} is a folder, as written by earlier versions. Restore it with the version that wrote it."
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
        raise BackupError(f"{path} is not a backup: it has no {MANIFEST}.")
    other_version = (
        f"This backup was written by iPATE {manifest.get('version', 'before 0.9.0')}, and this is iPATE {__version__}. "
        "Install the version that wrote it"
    )
    if manifest["format"] != FORMAT:
        raise BackupError(f"{other_version}.")
    if manifest["vendor"] != connection.vendor:
        raise BackupError(
            f"This backup is from {manifest['vendor']}, but the site uses {connection.vendor}. Set DATABASE_URL."
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
    """Describe the content of this installation that a restoration would replace; empty for a new installation."""
    try:
        studies, accounts = Study.objects.count(), User.objects.count()
    except DatabaseError:  # no tables yet
        connection.close()
        studies = accounts = 0
    files = sum(1 for alias in STORAGES for _ in names_in(storages[alias]))
    return f"{studies} studies, {accounts} accounts, {files} files" if studies or accounts or files else ""


def is_running() -> bool:
    """Return whether a worker has reported recently."""
    try:
        return live_worker_count() > 0
    except DatabaseError:
        connection.close()
        return False


def backup_restore(path: Path, identities: Sequence[Identity], manifest: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Replace the installation's data with a backup that has been checked.

    Everything is first restored next to the current data, and migrated. Then the database is replaced in one
    transaction. If anything fails before its commit, database and files stay as they were.

    Returns:
        The locked studies: short name → number of missing rows in each chain.

    Raises:
        BackupError: the restoration failed; the message says whether anything has changed.
    """
    replaced = False
    try:
        with workspace() as folder:
            files = StagedFiles(_files_of(manifest), folder)
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
            with database_staged(dump):
                call_command("migrate", verbosity=0)
                # Users who were signed in at the time of the backup may have lost access in the meantime.
                Session.objects.all().delete()
                WorkerHeartbeat.objects.all().delete()
                # Pending imports have to be uploaded again, because backups omit their files.
                DatasetImport.objects.exclude(state=DatasetImport.State.DONE).delete()
                locked = _locked()
            replaced = True
            files.settle()
            files.finish()
    except Exception as error:  # storages and migrations raise various errors
        state = (
            "The database was restored, but files are still missing. Run this command again."
            if replaced
            else "The database and files are unchanged."
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
    """Lock the studies for which the backup lacks records; return the number missing from each."""
    # Earlier verifications were made with a different database.
    Verification.objects.update(verified_at=None, claimed_at=None)
    locked = {}
    for study in Study.objects.all():
        journal_distrust(study)
        if missing := missing_rows(study):
            locked[study.slug] = missing
            Verification.objects.update_or_create(study=study, defaults={"locked": True})
    return locked
