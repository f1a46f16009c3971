"""Storage of arrays (npz, never pickles) and models in the storages that the settings name."""

import hashlib
import io

import numpy as np
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages


def _write(storage: Storage, name: str, content: bytes) -> str:
    """Store ``content`` under exactly ``name``, replacing an earlier file; returns its SHA-256."""
    storage.delete(name)
    stored = storage.save(name, ContentFile(content))
    if stored != name:  # another process wrote in between; the name in the database must lead to this content
        storage.delete(stored)
        raise OSError(f"{name} is being written by another process; try again.")
    return hashlib.sha256(content).hexdigest()


def arrays_save(name: str, **arrays: np.ndarray) -> str:
    """Store arrays in private storage; returns the SHA-256 of the file."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return _write(storages["private"], name, buffer.getvalue())


def arrays_load(name: str, *keys: str) -> dict[str, np.ndarray]:
    """Load arrays that :func:`arrays_save` stored under ``name``: all, or only those named by ``keys``."""
    with storages["private"].open(name) as file, np.load(file, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in keys or arrays.files}


def arrays_digest(name: str) -> str:
    """SHA-256 of the file that :func:`arrays_save` stored under ``name``. Raises FileNotFoundError."""
    with storages["private"].open(name) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def arrays_delete(*names: str) -> None:
    for name in names:
        storages["private"].delete(name)


def arrays_list(folder: str) -> list[str]:
    """Names of the files directly in ``folder``; a missing folder counts as empty."""
    try:
        _, files = storages["private"].listdir(folder)
    except FileNotFoundError:
        return []
    return [f"{folder}/{file}" for file in files]


def arrays_delete_folder(folder: str) -> None:
    """Delete every file directly in ``folder``."""
    arrays_delete(*arrays_list(folder))


def model_store(name: str, content: bytes) -> str:
    """Store a published model; returns its SHA-256."""
    return _write(storages["models"], name, content)


def model_fetch(name: str) -> bytes:
    with storages["models"].open(name) as file:
        return file.read()
