"""Copies of new and changed files in storages, and their restoration.

These are the files named by rows in a snapshot of the database. A file is restored under its name if that is free, or
else under ``restoring/`` until the database has been replaced. No file of the live database is touched before then.

The keys of people's records are copied separately from the backups with the records. There is only one copy, which each
backup replaces. So a key disappears from it within a day after the installation deletes it, and after that, records
under that key cannot be read in any backup. A restored backup takes only missing keys from the copy, because the
installation's own keys are newer.
"""

import fcntl
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

from django.apps import apps
from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import Storage, storages
from django.db import DatabaseError, connection
from pyrage.x25519 import Identity
from tqdm import tqdm

from common.artifacts import arrays_load
from common.keyrings import ring_load
from common.sealed_storage import UNFINISHED, SealError
from ipate_web.backups import LEFT_OUT, STORAGES, BackupError
from ipate_web.backups.archives import archive_open, archive_write, digest_of
from ipate_web.backups.databases import Query, staged_remove
from training.engine.records import ring_of
from training.models import Dataset

#: A file: a storage and the file's name in it.
Name = tuple[str, str]

#: Fields that contain names of files: model, field, storage.
FIELDS = (
    ("accounting.Release", "charges", "private"),
    ("accounting.AccountBook", "artifact", "private"),
    ("training.Dataset", "artifact", "private"),
    ("training.Encoder", "artifact", "private"),
    ("training.Run", "assignment", "private"),
    ("training.TeacherChunk", "artifact", "private"),
    ("training.Shard", "artifact", "private"),
    ("training.StudentTraining", "artifact", "private"),
    ("training.Round", "artifact", "private"),
    ("training.Batch", "attempt", "private"),
    ("training.Batch", "released", "private"),
    ("training.JointQuestion", "answer", "private"),
    ("training.JointQuestion", "attempt", "private"),
    ("training.JointQuestion", "total", "private"),
    ("training.JointAnswer", "artifact", "private"),
    ("training.StudentModel", "artifact", "models"),
    ("training.StudentModel", "onnx", "models"),
    ("training.RunResult", "artifact", "models"),
)
_STAGED = "restoring/"


def referenced_files(query: Query) -> set[Name]:
    """Return every file that a database row refers to."""
    named = set()
    for label, field_name, alias in FIELDS:
        model = apps.get_model(label)
        column = model._meta.get_field(field_name).column
        table = model._meta.db_table
        named |= {(alias, name) for (name,) in query(f"SELECT {column} FROM {table} WHERE {column} <> ''")}  # noqa: S608
    return named


def heads_of(query: Query) -> dict[str, dict[str, list]]:
    """Return the ends of all chains by study (short name) and chain, each with sequence and hash."""
    heads: dict[str, dict[str, list]] = {}
    for slug, chain, sequence, hash in query(
        "SELECT s.slug, h.chain, h.sequence, h.hash FROM consent_chainhead h JOIN consent_study s ON s.id = h.study_id"
    ):
        heads.setdefault(slug, {})[chain] = [sequence, hash]
    return heads


def migrations_of(query: Query) -> list[list[str]]:
    """Return the migrations that have been applied to the database."""
    return sorted([app, name] for app, name in query("SELECT app, name FROM django_migrations"))


def names_in(storage: Storage, folder: str = "") -> Iterator[str]:
    """Yield the names of all files in a storage, except in the folders of ``/readyz`` and of restorations.

    Temporary files of processes that died while replacing a file are excluded.
    """
    try:
        folders, files = storage.listdir(folder)
    except FileNotFoundError:
        return
    for name in files:
        if not name.endswith(UNFINISHED):
            yield f"{folder}{name}"
    for name in folders:
        if f"{folder}{name}/" not in ("readiness/", _STAGED):
            yield from names_in(storage, f"{folder}{name}/")


@dataclass
class _Measured:
    """Content of exactly ``size`` bytes for a tar file, padded with zeros if the file is shorter or truncated."""

    content: File
    size: int
    bar: tqdm
    is_whole: bool = True
    digest: Any = field(default_factory=hashlib.sha256)

    def read(self, size: int) -> bytes:
        try:
            block = self.content.read(size)
        except SealError:
            block = b""
        if len(block) < size:  # a tar reads no more than the declared size
            self.is_whole = False
            block = block.ljust(size, b"\0")
        self.digest.update(block)
        self.bar.update(len(block))
        return block


@dataclass
class FileCopies:
    """Copies of an installation's files in an archive, with the ``digests`` of their contents by file.

    Unfinished files are omitted, because no row refers to them yet.
    """

    archive: tarfile.TarFile
    digests: dict[Name, str] = field(default_factory=dict)
    _seen: dict[Name, tuple[int, datetime]] = field(default_factory=dict)

    def renew(self, bar: tqdm) -> set[Name]:
        """Copy files that are new or changed since the last call; return the names of all files that exist now."""
        there = set()
        for alias in STORAGES:
            storage = storages[alias]
            for name in names_in(storage):
                if LEFT_OUT.match(name):
                    continue
                try:
                    state = storage.size(name), storage.get_modified_time(name)
                    if self._seen.get((alias, name)) != state:
                        self.digests[alias, name] = self._copy(storage, alias, name, state[0], bar)
                        # State before copying: if a file changed in the meantime, the next call copies it again.
                        self._seen[alias, name] = state
                except (FileNotFoundError, SealError):
                    continue
                there.add((alias, name))
        return there

    def _copy(self, storage: Storage, alias: str, name: str, size: int, bar: tqdm) -> str:
        with storage.open(name) as source:
            measured = _Measured(source, size, bar)
            member_add(self.archive, f"{alias}/{name}", size, measured)  # type: ignore[arg-type]
        if not measured.is_whole:
            raise FileNotFoundError(name)
        return measured.digest.hexdigest()


def member_add(archive: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    """Add ``content`` of ``size`` bytes to an archive."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    archive.addfile(member, content)


class StagedFiles:
    """Files of a backup that are being added to the storages, with their SHA-256 by file in ``digests``."""

    def __init__(self, digests: dict[Name, str], folder: Path) -> None:
        self._digests = digests
        self._record = folder / "added.json"
        self._staged: dict[Name, str] = {}
        self._kept: set[Name] = set()
        for alias, name in digests:
            if not storages[alias].exists(name):
                self._staged[alias, name] = name
            elif _digest(alias, name) == digests[alias, name]:
                self._kept.add((alias, name))
            else:
                self._staged[alias, name] = f"{_STAGED}{name}"
        # After a killed restoration, the next one uses this record to remove the files.
        with self._record.open("w") as file:
            json.dump([[alias, at, digests[alias, name]] for (alias, name), at in self._staged.items()], file)
            file.flush()
            os.fsync(file.fileno())

    def take(self, file: Name, content: IO[bytes]) -> None:
        """Store a file of the backup, unless it already exists or a later copy replaces it."""
        alias, name = file
        if file not in self._staged:
            return
        storage, at = storages[alias], self._staged[file]
        storage.delete(at)
        stored = storage.save(at, File(content))
        if stored != at:
            storage.delete(stored)
            raise BackupError(f"{name} is being written by another process. Stop the site, the workers and beat first.")
        if _digest(alias, at) == self._digests[file]:
            self._kept.add(file)
        else:
            storage.delete(at)

    def check(self) -> None:
        """Raise BackupError unless every file is stored."""
        if missing := self._digests.keys() - self._kept:
            alias, name = min(missing)
            raise BackupError(f"{alias}/{name} was not copied correctly. The disk may be full or failing.")

    def settle(self) -> None:
        """Record that the files now belong to the database, so that no later step removes them."""
        self._record.unlink()

    def finish(self) -> None:
        """Rename the files to their final names, and delete files that are not in the backup."""
        for (alias, name), at in self._staged.items():
            if at != name:
                with storages[alias].open(at) as content:
                    storages[alias].delete(name)
                    storages[alias].save(name, content)
                storages[alias].delete(at)
        for alias in STORAGES:
            for name in set(names_in(storages[alias])) - {name for each, name in self._digests if each == alias}:
                storages[alias].delete(name)


def leftovers_remove(folder: Path) -> None:
    """Remove the files that a restoration added but that never became part of the database."""
    record = folder / "added.json"
    if not record.exists():
        return
    try:
        added = json.loads(record.read_text())
    except ValueError:  # the restoration was killed before it added any files
        added = []
    named = files_named_now()
    for alias, name, digest in added:
        # If the site has written the file in the meantime, its content is different or a row refers to it.
        if (alias, name) not in named and storages[alias].exists(name) and _digest(alias, name) == digest:
            storages[alias].delete(name)
    record.unlink()


def files_named_now() -> set[Name]:
    """Return every file that a row of the live database refers to; none if the database has no tables yet."""

    def query(sql: str) -> list[tuple]:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    try:
        return referenced_files(query)
    except DatabaseError:
        connection.close()
        return set()


def _digest(alias: str, name: str) -> str:
    with storages[alias].open(name) as file:
        return digest_of(file)


@contextmanager
def workspace() -> Iterator[Path]:
    """Yield an empty folder for one backup or restoration at a time. It is deleted at the end.

    Files that a restoration stored but that never became part of the database are removed at the end or, if the
    restoration was killed, by the next one.
    """
    folder = Path(settings.VAR_DIR, "backup")
    with open(folder.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError("Another backup or restore is in progress. Wait until it ends.") from None
        _clear(folder)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _clear(folder)


def _clear(folder: Path) -> None:
    staged_remove()
    leftovers_remove(folder)
    if folder.exists():
        shutil.rmtree(folder)


# --- Keys of people's records -----------------------------------------------------------------------------------------


NAME = "ipate-keys.tar"


def keys_check() -> None:
    """Raise BackupError if the keys of a whole dataset are missing, because the new copy would then lack them."""
    for dataset in Dataset.objects.filter(kind=Dataset.Kind.PRIVATE, removed_at=None, rows__gt=0):
        try:
            owners = arrays_load(dataset.artifact, "holder")["holder"]
            is_there = ring_load(ring_of(dataset.artifact)).has(owners).any()
        except (OSError, ValueError, KeyError, BadZipFile):  # not the stored file; verify_ledger reports this
            continue
        if not is_there:
            raise BackupError(
                f"The keys of the dataset “{dataset.name}” are missing (IPATE_KEYS_STORAGE), so its records cannot be "
                f"read. Run ipate restore again with --keys {NAME}.age of the last backup; or remove the dataset."
            )


def keys_copy(folder: Path, recipients: Sequence[str]) -> Path:
    """Copy all keys into ``folder``, encrypted to the ``recipients``, replacing the previous copy."""
    target = folder / f"{NAME}{'.age' if recipients else ''}"
    partial = target.with_name(f"{target.name}.new")
    umask = os.umask(0o077)
    try:
        with partial.open("wb") as file:
            with archive_write(file, recipients) as archive:
                for name in names_in(storages["keys"]):
                    with storages["keys"].open(name) as ring:
                        content = ring.read()
                    member_add(archive, name, len(content), io.BytesIO(content))
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target)
    except OSError as error:
        raise BackupError(f"The keys of people's records could not be copied: {error}") from error
    finally:
        os.umask(umask)
        with suppress(OSError):
            partial.unlink()
    return target


def backup_keys(backup: Path) -> Path | None:
    """Return the copy of the keys in the folder of a backup, or None."""
    return next((path for end in (".age", "") if (path := backup.parent / f"{NAME}{end}").is_file()), None)


def keys_restore(copy: Path, identities: Sequence[Identity]) -> int:
    """Restore the keys that a copy contains and this installation lacks; return their number."""
    restored = 0
    with archive_open(copy, identities) as members:
        for name, content in members:
            if not storages["keys"].exists(name):
                storages["keys"].save(name, File(io.BytesIO(content.read())))
                restored += 1
    return restored
