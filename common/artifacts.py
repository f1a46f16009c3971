"""Functions to store arrays (as npz, never as pickles) and models in the configured storages."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from zipfile import ZipFile

import numpy as np
from django.core.files.base import ContentFile, File
from django.core.files.storage import Storage, storages
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile

from common.confinement import scratch_folder
from common.sealed_storage import SealedStorage, SealError

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Parts:
    """Bytes to store as a uint8 array (size,), generated while the file is being written."""

    size: int
    parts: Iterable[bytes]


class ArraysFile(File):
    """File of arrays to save in a storage, which can be read only once.

    Attributes:
        sha256: Digest of the content read so far.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray | Parts]) -> None:
        super().__init__(None)
        self._arrays, self.sha256 = arrays, hashlib.sha256()

    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """Yield the content in parts of any size."""
        for part in self._parts():
            self.sha256.update(part)
            yield part

    def _parts(self) -> Iterator[bytes]:
        written = _Written()
        with ZipFile(cast("File[bytes]", written), "w") as archive:
            for name, array in self._arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    header, parts = _npy(array)
                    npy.write_array_header_1_0(member, header)
                    for part in parts:
                        member.write(part)
                        yield written.taken()
        yield written.taken()


class _Written:
    """Write-only stream without seeking that keeps the latest output of a writer."""

    def __init__(self) -> None:
        self._content = bytearray()

    def write(self, content: bytes) -> int:
        self._content += content
        return len(content)

    def flush(self) -> None: ...

    def taken(self) -> bytes:
        content = bytes(self._content)
        self._content.clear()
        return content


def _npy(array: np.ndarray | Parts) -> tuple[dict[str, object], Iterable[bytes | memoryview]]:
    """Return the npy header of an array, and its content."""
    if isinstance(array, Parts):
        return {"descr": "|u1", "fortran_order": False, "shape": (array.size,)}, array.parts
    array = np.asarray(array, order="C")
    if array.dtype.hasobject:
        raise ValueError("Object arrays are not stored, because reading them could execute code.")
    content = array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
    parts = (content[start : start + _AT_ONCE] for start in range(0, len(content), _AT_ONCE))
    return npy.header_data_from_array_1_0(array), parts


try:
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError:  # installed only where S3 is used
    _S3_ERRORS: tuple[type[Exception], ...] = ()
else:
    _S3_ERRORS = (BotoCoreError, ClientError)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise OSError, as for local files, if an S3 storage does not respond, so that the work is retried."""
    try:
        yield
    except _S3_ERRORS as error:
        raise OSError(f"The storage is unavailable: {error}") from error


@_as_os_errors()
def _save(storage: Storage, name: str, file: File) -> None:
    """Store a file under exactly ``name``, replacing an earlier one."""
    storage.delete(name)
    stored = storage.save(name, file)
    if stored != name:  # another process took the name first, but the caller expects its own content under it
        storage.delete(stored)
        raise OSError(f"{name} is being written by another process; try again.")


def arrays_save(name: str, **arrays: np.ndarray | Parts) -> str:
    """Store arrays in private storage; return the SHA-256 of the file."""
    file = ArraysFile(arrays)
    _save(storages["private"], name, file)
    return file.sha256.hexdigest()


@contextmanager
def arrays_open(name: str) -> Iterator[NpzFile]:
    """Open arrays that :func:`arrays_save` stored under ``name``. Each array is loaded when it is accessed."""
    with _as_os_errors(), storages["private"].open(name) as file, np.load(file, allow_pickle=False) as arrays:
        yield arrays


def arrays_load(name: str, *keys: str) -> dict[str, np.ndarray]:
    """Load arrays that :func:`arrays_save` stored under ``name``: all of them, or only ``keys``."""
    with arrays_open(name) as arrays:
        return {key: arrays[key] for key in keys or arrays.files}


def private_save(name: str, file: File) -> None:
    """Store a file in private storage under exactly this name."""
    _save(storages["private"], name, file)


@_as_os_errors()
def private_replace(name: str, content: bytes) -> None:
    """Store a file in private storage, replacing an existing file atomically."""
    cast(SealedStorage, storages["private"]).replace(name, ContentFile(content))


@_as_os_errors()
def private_load(name: str) -> bytes:
    """Return the content of a file that :func:`private_save` stored. Raises FileNotFoundError."""
    with storages["private"].open(name) as file:
        return file.read()


@contextmanager
def private_copy(name: str, called: str) -> Iterator[Path]:
    """Copy a file from private storage for the duration of the block, for readers that need a path.

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
    """Return the SHA-256 of the file that :func:`arrays_save` stored as ``name``; empty if replaced or damaged.

    Raises:
        FileNotFoundError: the file does not exist.
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
    """Return the names of the files directly in ``folder``, or an empty list if it does not exist."""
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
