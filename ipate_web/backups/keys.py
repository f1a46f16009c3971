"""Copy of the keys of people's records, apart from the backups that hold the records.

There is one copy, which each backup replaces: so it forgets a key a day after the installation did, and with it all
backups forget the records that this key encrypts. A restored backup takes only missing keys from the copy, because
those that the installation still has are newer.
"""

import io
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile

from django.core.files.base import File
from django.core.files.storage import storages
from pyrage.x25519 import Identity

from common.artifacts import arrays_load
from common.keyrings import ring_load
from ipate_web.backups import BackupError
from ipate_web.backups.archives import archive_open, archive_write
from ipate_web.backups.files import member_add, names_in
from training.engine.records import ring_of
from training.models import Dataset

NAME = "ipate-keys.tar"


def keys_check() -> None:
    """Raise BackupError if the keys of a whole dataset are missing: a copy of the rest would lose them."""
    for dataset in Dataset.objects.filter(kind=Dataset.Kind.PRIVATE, removed_at=None, rows__gt=0):
        try:
            owners = arrays_load(dataset.artifact, "holder")["holder"]
            is_there = ring_load(ring_of(dataset.artifact)).has(owners).any()
        except (OSError, ValueError, KeyError, BadZipFile):  # not the file that was stored: verify_ledger tells
            continue
        if not is_there:
            raise BackupError(
                f"The keys of the dataset “{dataset.name}” are missing (IPATE_KEYS_STORAGE), so its records cannot be "
                f"read. Call ipate restore again with --keys {NAME}.age of the last backup; or remove the dataset."
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


def keys_beside(backup: Path) -> Path | None:
    """The copy of the keys that lies in the folder of a backup, if there is one."""
    return next((path for end in (".age", "") if (path := backup.parent / f"{NAME}{end}").is_file()), None)


def keys_bring_back(copy: Path, identities: Sequence[Identity]) -> int:
    """Restore the keys of a copy whose names this installation does not have; return how many there were."""
    brought = 0
    with archive_open(copy, identities) as members:
        for name, content in members:
            if not storages["keys"].exists(name):
                storages["keys"].save(name, File(io.BytesIO(content.read())))
                brought += 1
    return brought
