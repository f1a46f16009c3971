"""Arrays and models in the storages that the settings name. Arrays are npz files, never pickles."""

import hashlib
import io

import numpy as np
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages


def _write(storage: Storage, name: str, content: bytes) -> str:
    """Store ``content`` under exactly ``name``, in place of what was there; returns its SHA-256."""
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
    """What :func:`arrays_save` stored under ``name``: all of it, or the arrays ``keys`` alone."""
    with storages["private"].open(name) as file, np.load(file, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in keys or arrays.files}


def arrays_delete(*names: str) -> None:
    for name in names:
        storages["private"].delete(name)


def arrays_delete_folder(folder: str) -> None:
    """Delete every file that lies directly in ``folder``; one that does not exist is empty."""
    try:
        _, files = storages["private"].listdir(folder)
    except FileNotFoundError:
        return
    arrays_delete(*(f"{folder}/{file}" for file in files))


def model_store(name: str, content: bytes) -> str:
    """Store a published model; returns its SHA-256."""
    return _write(storages["models"], name, content)


def model_fetch(name: str) -> bytes:
    with storages["models"].open(name) as file:
        return file.read()
