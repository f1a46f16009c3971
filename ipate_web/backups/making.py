"""Making of a backup while the installation runs.

Files are copied, then one moment of the database, then what has come or changed among the files meanwhile. A file that
is named at that moment was there before it, so that only one which came and went in between can be missing: then the
moment is taken anew. Only the copy of the database lies on disk unencrypted, until it has been put into the archive.
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

from django.core.files.storage import storages
from django.db import DatabaseError, connection
from django.utils import timezone

from common import __version__
from common.journal import acts_forget
from common.models import BackupRecord
from common.progress import progress_bar
from consent.models import Disposal, Study
from ipate_web.backups import MANIFEST, BackupError
from ipate_web.backups.archives import Digesting, archive_write, digest_of
from ipate_web.backups.databases import dump_name, snapshot
from ipate_web.backups.files import (
    FileCopies,
    files_named_now,
    heads_of,
    member_add,
    migrations_of,
    referenced_files,
    workspace,
)

FORMAT = 2
TRIES = 5

_MOMENT = "ipate-%Y-%m-%dT%H%M%SZ"
_NAME = re.compile(r"(ipate-\d{4}-\d\d-\d\dT\d{6}Z)\.tar(\.age)?")
_PARTIAL = re.compile(_NAME.pattern + r"\.partial")
#: A backup that was not completed for so long never will be.
_LONGEST = timedelta(days=1)


def backup_make(folder: Path, recipients: Sequence[str]) -> tuple[Path, str]:
    """Make a backup in ``folder``, encrypted to the ``recipients``; it is there wholly or not at all.

    Without recipients it is not encrypted.

    Returns:
        The file, and its SHA-256.

    Raises:
        BackupError: it could not be made.
    """
    now = timezone.now()
    target = folder / f"{now.astimezone(UTC):{_MOMENT}}.tar{'.age' if recipients else ''}"
    if target.exists():
        raise BackupError(f"{target} is there already; a backup replaces nothing. Try again in a second.")
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
            raise BackupError(f"{target} was not written as it was meant. Is the disk full or failing?")
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
    """Delete the backups in ``folder`` that are older than ``days``, and what killed ones left; returns them.

    The last one stays as long as nothing was erased since: without newer ones it is all that there is. What someone
    was promised to be gone is gone in time all the same. The journal forgets the acts that no backup lacks any more.
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
    # What no backup lacks any more, nobody has to record again.
    oldest = min([limit, *(moment for path, moment in made.items() if path not in old)])
    for study in Study.objects.all():
        acts_forget(study.pk, timezone.now() - oldest)
    return sorted(old)


def _made_at(path: Path) -> datetime:
    """Moment at which a backup was made, by its name: copies keep that, and not always the file's own time."""
    return datetime.strptime(path.name.partition(".")[0], _MOMENT).replace(tzinfo=UTC)


def _erased_since(moment: datetime) -> bool:
    kinds = (Disposal.Kind.ERASED, Disposal.Kind.DATASET, Disposal.Kind.EXPIRED)
    return Disposal.objects.filter(kind__in=kinds, recorded_at__gte=moment).exists()


def _copy(archive: tarfile.TarFile, folder: Path) -> None:
    """Copy everything into ``archive``; the copy of the database passes through ``folder``."""
    copies = FileCopies(archive)
    dump = folder / dump_name()
    with progress_bar(desc="copying files", unit="B", unit_scale=True) as bar:
        copies.renew(bar)
        for _ in range(TRIES):
            # Files that rows name although they are gone for good: those of runs that ended, say.
            absent = {
                (alias, name)
                for alias, name in files_named_now() - copies.digests.keys()
                if not storages[alias].exists(name)
            }
            made_at = timezone.now()
            bar.set_description("copying the database")
            with snapshot(dump) as query:
                named, heads, migrations = referenced_files(query), heads_of(query), migrations_of(query)
            bar.set_description("copying what is new")
            there = copies.renew(bar)
            missing = named - copies.digests.keys() - absent
            if not missing:
                break
        else:
            alias, name = min(missing)
            raise BackupError(
                "Files came and went faster than they could be copied. Stop the workers and try again. If it is always "
                f"{alias}/{name}, that one is damaged, or encrypted by another key for records."
            )
        bar.set_description("writing the database")
        with dump.open("rb") as file:
            member_add(archive, dump.name, dump.stat().st_size, file)
    # What has gone meanwhile, and what nobody needs, is not restored: somebody may have had a right to that.
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
