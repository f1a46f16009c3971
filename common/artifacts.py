"""Storage of arrays (npz, never pickles) and models in the storages from the settings."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
from django.core.files.base import ContentFile, File
from django.core.files.storage import Storage, storages
from numpy.lib.npyio import NpzFile

from common.npz import ArraysFile, Parts
from common.scratch import scratch_folder
from common.sealed_storage import SealedStorage, SealError

try:
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError:  # S3 is one of many storages
    _S3_ERRORS: tuple[type[Exception], ...] = ()
else:
    _S3_ERRORS = (BotoCoreError, ClientError)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise OSError, as files do, if an S3 storage does not respond: work is then tried again, not abandoned."""
    try:
        yield
    except _S3_ERRORS as error:
        raise OSError(f"The storage did not answer: {error}") from error


@_as_os_errors()
def _save(storage: Storage, name: str, file: File) -> None:
    """Store a file under exactly ``name``, replacing an earlier one."""
    storage.delete(name)
    stored = storage.save(name, file)
    if stored != name:  # another process wrote in between; the name in the database must lead to this content
        storage.delete(stored)
        raise OSError(f"{name} is being written by another process; try again.")


def arrays_save(name: str, **arrays: np.ndarray | Parts) -> str:
    """Store arrays in private storage; return the SHA-256 of the file."""
    file = ArraysFile(arrays)
    _save(storages["private"], name, file)
    return file.sha256.hexdigest()


@contextmanager
def arrays_open(name: str) -> Iterator[NpzFile]:
    """Open arrays that :func:`arrays_save` stored under ``name``, each loaded on access."""
    with _as_os_errors(), storages["private"].open(name) as file, np.load(file, allow_pickle=False) as arrays:
        yield arrays


def arrays_load(name: str, *keys: str) -> dict[str, np.ndarray]:
    """Load arrays that :func:`arrays_save` stored under ``name``: all, or only those named by ``keys``."""
    with arrays_open(name) as arrays:
        return {key: arrays[key] for key in keys or arrays.files}


def private_save(name: str, file: File) -> None:
    """Store a file in private storage under exactly this name."""
    _save(storages["private"], name, file)


@_as_os_errors()
def private_replace(name: str, content: bytes) -> None:
    """Store a file in private storage in place of an earlier one; readers see one of them, whole."""
    cast(SealedStorage, storages["private"]).replace(name, ContentFile(content))


@_as_os_errors()
def private_load(name: str) -> bytes:
    """Return the content of a file that :func:`private_save` stored. Raises FileNotFoundError."""
    with storages["private"].open(name) as file:
        return file.read()


@contextmanager
def private_copy(name: str, called: str) -> Iterator[Path]:
    """Copy a file in private storage for the duration of the block, for readers that need a path.

    Args:
        name: Name in private storage.
        called: Name of the copy.
    """
    with scratch_folder() as folder:
        path = folder / (Path(called).name or "file")
        with _as_os_errors(), storages["private"].open(name) as file, path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        yield path


@_as_os_errors()
def arrays_digest(name: str) -> str:
    """Return the SHA-256 of the file that :func:`arrays_save` stored as ``name``; empty if it is no longer such a file.

    Raises:
        FileNotFoundError: there is none.
    """
    try:
        with storages["private"].open(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except SealError:
        return ""


@_as_os_errors()
def arrays_delete(*names: str) -> None:
    for name in names:
        storages["private"].delete(name)


@_as_os_errors()
def arrays_list(folder: str) -> list[str]:
    """Return names of the files directly in ``folder``; a missing folder counts as empty."""
    try:
        _, files = storages["private"].listdir(folder)
    except FileNotFoundError:
        return []
    return [f"{folder}/{file}" for file in files]


def arrays_delete_folder(folder: str) -> None:
    """Delete every file directly in ``folder``."""
    arrays_delete(*arrays_list(folder))


def model_store(name: str, content: bytes) -> str:
    """Store a published model; return its SHA-256."""
    _save(storages["models"], name, ContentFile(content))
    return hashlib.sha256(content).hexdigest()


@_as_os_errors()
def model_fetch(name: str) -> bytes:
    with storages["models"].open(name) as file:
        return file.read()
