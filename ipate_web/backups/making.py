"""Making of a backup while the installation runs.

Files are copied, then one moment of the database, then what has come or changed among the files meanwhile. A file that
is named at that moment was there before it, so that only one which came and went in between can be missing: then the
moment is taken anew.
"""

import json
import os
import shutil
from pathlib import Path

from django.core.files.storage import storages
from django.db import connection
from django.utils import timezone

from common.progress import progress_bar
from ipate_web.backups import BackupError, manifest_of
from ipate_web.backups.databases import dump_name, snapshot
from ipate_web.backups.files import FileCopies, Name, digest_of
from ipate_web.backups.references import files_named, heads_of, migrations_of

FORMAT = 1
TRIES = 5


def backup_make(target: Path) -> str:
    """Make a backup in the new folder ``target``; it is there wholly or not at all.

    Returns:
        SHA-256 of its manifest, which holds those of all its files.

    Raises:
        BackupError: ``target`` is there already, or the backup could not be made.
    """
    if target.exists():
        raise BackupError(f"{target} is there already. Name a new folder; a backup replaces nothing.")
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    umask = os.umask(0o077)
    try:
        partial.mkdir(parents=True)
        content = _copy(partial)
        _check(partial, content["files"])
        manifest_of(partial).write_text(json.dumps(content, indent=1, sort_keys=True))
        os.sync()
        partial.rename(target)
    except OSError as error:
        raise BackupError(f"The backup could not be written: {error}") from error
    finally:
        os.umask(umask)
        shutil.rmtree(partial, ignore_errors=True)
    return digest_of(manifest_of(target))


def _copy(folder: Path) -> dict:
    """Copy everything into ``folder``; returns the manifest."""
    copies = FileCopies(folder)
    dump = folder / dump_name()
    with progress_bar(desc="copying files", unit="B", unit_scale=True) as bar:
        copies.renew(bar)
        for _ in range(TRIES):
            absent = _absent(copies)
            made_at = timezone.now()
            bar.set_description("copying the database")
            with snapshot(dump) as query:
                named, heads, migrations = files_named(query), heads_of(query), migrations_of(query)
            bar.set_description("copying what is new")
            there = copies.renew(bar)
            missing = named - copies.digests.keys() - absent
            if not missing:
                break
        else:
            raise BackupError("Files came and went faster than they could be copied. Stop the workers and try again.")
    copies.forget(copies.digests.keys() - there - named)
    files = {f"{alias}/{name}": digest for (alias, name), digest in copies.digests.items()}
    return {
        "format": FORMAT,
        "made_at": made_at.isoformat(),
        "vendor": connection.vendor,
        "database": dump.name,
        "heads": heads,
        "migrations": migrations,
        "files": files | {dump.name: digest_of(dump)},
    }


def _absent(copies: FileCopies) -> set[Name]:
    """Files that rows name although they are gone for good: those of runs that ended, say."""

    def query(sql: str) -> list[tuple]:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    return {
        (alias, name) for alias, name in files_named(query) - copies.digests.keys() if not storages[alias].exists(name)
    }


def _check(folder: Path, files: dict[str, str]) -> None:
    """Read every copy again and compare it with what was read from the storage."""
    for name, digest in progress_bar(files.items(), desc="checking", unit=" files"):
        if digest_of(folder / name) != digest:
            raise BackupError(f"{name} was not written as it was read. Is the disk full or failing?")
