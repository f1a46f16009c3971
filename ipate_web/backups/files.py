"""Copies of the files in storages: of what has come or changed since the last look."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from django.core.files.storage import Storage, storages
from tqdm import tqdm

from ipate_web.backups import STORAGES

BLOCK = 1 << 20

#: A file: the storage and its name there.
Name = tuple[str, str]


def names_in(storage: Storage, folder: str = "") -> Iterator[str]:
    """Names of all files of a storage, in all folders but the one of ``/readyz``."""
    try:
        folders, files = storage.listdir(folder)
    except FileNotFoundError:
        return
    for name in files:
        yield f"{folder}{name}"
    for name in folders:
        if f"{folder}{name}" != "readiness":
            yield from names_in(storage, f"{folder}{name}/")


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass
class FileCopies:
    """Copies of an installation's files in a folder: ``digests`` of what was read, by file."""

    folder: Path
    digests: dict[Name, str] = field(default_factory=dict)
    _seen: dict[Name, tuple[int, datetime]] = field(default_factory=dict)

    def renew(self, bar: tqdm) -> set[Name]:
        """Copy what has come or changed since the last call; returns the names of all files that are there now."""
        there = set()
        for alias in STORAGES:
            storage = storages[alias]
            for name in names_in(storage):
                try:
                    state = storage.size(name), storage.get_modified_time(name)
                    if self._seen.get((alias, name)) != state:
                        self.digests[alias, name] = self._copy(storage, alias, name, bar)
                        # As it was before: a file that changed meanwhile is copied anew by the next call.
                        self._seen[alias, name] = state
                except FileNotFoundError:
                    continue
                there.add((alias, name))
        return there

    def forget(self, gone: set[Name]) -> None:
        """Delete copies of files that nobody needs any more: somebody may have had a right to that."""
        for alias, name in gone:
            (self.folder / alias / name).unlink()
            del self.digests[alias, name]

    def _copy(self, storage: Storage, alias: str, name: str, bar: tqdm) -> str:
        digest, path = hashlib.sha256(), self.folder / alias / name
        with storage.open(name) as source:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as target:
                for block in source.chunks(BLOCK):
                    digest.update(block)
                    target.write(block)
                    bar.update(len(block))
        return digest.hexdigest()
