"""Storage that encrypts every file before it reaches the underlying storage.

Each file has a separate key that encrypts its content in blocks (AES-256-GCM; a block's nonce consists of its number
and whether it is the last block, as in STREAM by Hoang, Reyhanitabar, Rogaway and Vizár, "Online Authenticated
Encryption and its Nonce-Reuse Misuse-Resistance", 2015). The file begins with that key, encrypted with the
installation's key for records and bound to the file's name. Files therefore cannot be swapped, and replacing the key
for records only requires rewriting the beginning of each file.
"""

from __future__ import annotations

import io
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import IO, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.core.files.base import File
from django.core.files.storage import Storage
from django.utils.module_loading import import_string

from common.keys import Purpose, key_derive, keys_of

_MAGIC = b"ipate sealed 1\n\0"
_NONCE, _TAG, _KEY = 12, 16, 32
_HEADER = len(_MAGIC) + _NONCE + _KEY + _TAG
_BLOCK = 1 << 18
_USE = "files at rest"
#: Suffix of a file that is about to replace an existing one.
UNFINISHED = ".new"


class SealError(OSError):
    """Raised if a file was changed, or encrypted with a key that this installation does not have."""


class SealedStorage(Storage):
    """Storage that encrypts files and stores them in another storage.

    Args:
        backend: Class of the other storage.
        options: Options of that class.
    """

    def __init__(self, backend: str, options: dict[str, Any]) -> None:
        self.inner: Storage = import_string(backend)(**options)

    def exists(self, name: str) -> bool:
        return self.inner.exists(name)

    def delete(self, name: str) -> None:
        self.inner.delete(name)

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        return self.inner.listdir(path)

    def get_modified_time(self, name: str) -> datetime:
        return self.inner.get_modified_time(name)

    def size(self, name: str) -> int:
        """Return the size of the content in bytes."""
        return _plain_size(self.inner.size(name))

    def replace(self, name: str, content: File) -> None:
        """Store a file, replacing an existing file atomically: after a crash, the old or the new file is complete.

        Nothing else may write to the file in the meantime.
        """
        with _sealed(name, content) as sealed:
            self._put(name, sealed)

    def rewrap(self, name: str) -> None:
        """Encrypt a file's key with the current key for records. Nothing else may write to the file in the meantime.

        An empty file, left behind by a writer that died, has no key and is skipped.
        """
        with self.inner.open(name) as file, tempfile.TemporaryFile() as copy:
            if not (header := file.read(_HEADER)):
                return
            copy.write(_header(name, _file_key(name, header)))
            while block := file.read(_BLOCK):
                copy.write(block)
            copy.seek(0)
            self._put(name, copy)

    def _put(self, name: str, sealed: IO[bytes]) -> None:
        try:
            path = self.inner.path(name)
        except NotImplementedError:  # an object store replaces objects atomically
            self.inner._save(name, File(sealed))  # type: ignore[attr-defined]
            return
        beside = f"{name}{UNFINISHED}"
        self.inner.delete(beside)  # left by a writer that died; a ring's file may contain keys that are destroyed later
        self.inner.save(beside, File(sealed))
        with open(self.inner.path(beside), "rb") as written:
            os.fsync(written.fileno())
        os.replace(self.inner.path(beside), path)

    def _open(self, name: str, mode: str = "rb") -> File:
        file = self.inner.open(name, "rb")
        try:
            return File(io.BufferedReader(_Opened(name, file, self.inner.size(name)), _BLOCK), name)
        except BaseException:
            file.close()
            raise

    def _save(self, name: str, content: File) -> str:
        with _sealed(name, content) as sealed:
            return self.inner._save(name, File(sealed))  # type: ignore[attr-defined]

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        return self.inner.get_available_name(name, max_length)

    def path(self, name: str) -> str:
        return self.inner.path(name)


class _Opened(io.RawIOBase):
    """Content of a file in the inner storage, decrypted block by block at any position."""

    def __init__(self, name: str, file: IO[bytes], size: int) -> None:
        self._name, self._file, self._size, self._at = name, file, _plain_size(size), 0
        self._cipher = AESGCM(_file_key(name, file.read(_HEADER)))
        self._known, self._content = -1, b""
        self._last = _count(size) - 1
        if self._size == 0:
            self._block(0)  # so that an empty file is checked as well

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size:
            return 0
        number, start = divmod(self._at, _BLOCK)
        piece = self._block(number)[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _block(self, number: int) -> bytes:
        if number != self._known:
            self._file.seek(_HEADER + number * (_BLOCK + _TAG))
            sealed = self._file.read(_BLOCK + _TAG)
            try:
                self._content = self._cipher.decrypt(_nonce(number, last=number == self._last), sealed, None)
            except (InvalidTag, ValueError):
                raise SealError(f"{self._name} was changed or truncated.") from None
            self._known = number
        return self._content


@contextmanager
def _sealed(name: str, content: File) -> Iterator[IO[bytes]]:
    """Provide the encrypted content to store under ``name``."""
    key, number, rest = secrets.token_bytes(_KEY), 0, bytearray()
    cipher = AESGCM(key)
    with tempfile.SpooledTemporaryFile(max_size=16 * _BLOCK) as sealed:
        sealed.write(_header(name, key))
        for piece in content.chunks(_BLOCK):
            rest += piece
            while len(rest) > _BLOCK:
                sealed.write(cipher.encrypt(_nonce(number, last=False), bytes(rest[:_BLOCK]), None))
                del rest[:_BLOCK]
                number += 1
        sealed.write(cipher.encrypt(_nonce(number, last=True), bytes(rest), None))
        sealed.seek(0)
        yield sealed


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(_NONCE - 1, "big") + bytes([last])


def _count(size: int) -> int:
    """Return the number of blocks in a file of ``size`` bytes."""
    return max(1, -(-(size - _HEADER) // (_BLOCK + _TAG)))


def _plain_size(size: int) -> int:
    """Return the size in bytes of the content of a file of ``size`` bytes."""
    return max(0, size - _HEADER - _TAG * _count(size))


def _header(name: str, key: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE)
    today = key_derive(keys_of(Purpose.RECORDS)[0], _USE)
    return _MAGIC + nonce + AESGCM(today).encrypt(nonce, key, name.encode())


def _file_key(name: str, header: bytes) -> bytes:
    """Return a file's key, read from the beginning of the file.

    Raises:
        SealError: this storage did not write the file, or the file's key was encrypted with another key for records.
    """
    if not header.startswith(_MAGIC) or len(header) < _HEADER:
        raise SealError(f"{name} is not encrypted in this installation's format.")
    nonce, wrapped = header[len(_MAGIC) : len(_MAGIC) + _NONCE], header[len(_MAGIC) + _NONCE : _HEADER]
    for key in keys_of(Purpose.RECORDS):
        with suppress(InvalidTag):
            return AESGCM(key_derive(key, _USE)).decrypt(nonce, wrapped, name.encode())
    raise SealError(f"{name} was encrypted with another records key. Add that key to IPATE_RECORDS_KEY_FALLBACKS.")
