"""Keys of people's records: one for each person in each dataset, destroyed when the person's records are erased.

A ring contains the keys of one dataset, identified by the numbers of the people whose rows they encrypt, or the single
key of a scan. Rings are kept in a separate storage, never in a backup that contains records. An old backup read with
the current rings therefore gives access only to records that have not been erased in the meantime. Rings are changed
under their study's lock.
"""

import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.core.files.storage import storages

from common.artifacts import ArraysFile
from common.distinct import are_among, distinct
from common.sealed_storage import UNFINISHED, SealedStorage, SealError

_LENGTH, _NONCE = 32, 12
_AT_ONCE = 10_000


class KeyGoneError(Exception):
    """Raised if a key was destroyed because its data were erased."""


@dataclass(frozen=True, eq=False)
class Ring:
    """Keys identified by numbers: ``numbers`` (N,) ascending, ``keys`` (N, 32) bytes."""

    numbers: np.ndarray
    keys: np.ndarray

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Return, for each of the given numbers, whether it has a key."""
        return are_among(numbers, self.numbers)

    def keys_of(self, numbers: np.ndarray) -> Iterator[bytes]:
        """Return the keys of the given numbers, in their order.

        Raises:
            KeyGoneError: one of the numbers has no key.
        """
        parts = [numbers[start : start + _AT_ONCE] for start in range(0, len(numbers), _AT_ONCE)]
        if not all(self.has(part).all() for part in parts):
            raise KeyGoneError("A person's records were erased.")
        return (key.tobytes() for part in parts for key in self.keys[np.searchsorted(self.numbers, part)])


def ring_load(name: str) -> Ring:
    """Return the ring with this name, or an empty ring if it does not exist or was destroyed."""
    try:
        with _storage().open(name) as file, np.load(file, allow_pickle=False) as arrays:
            return Ring(arrays["numbers"], arrays["keys"])
    except FileNotFoundError:
        return Ring(np.empty(0, dtype=np.int64), np.empty((0, _LENGTH), dtype=np.uint8))


def keys_make(name: str, numbers: np.ndarray) -> Ring:
    """Add missing keys for ``numbers`` (N,) to the ring with this name, and return the ring."""
    ring = ring_load(name)
    all_numbers = distinct(np.concatenate([ring.numbers, numbers]))
    if len(all_numbers) == len(ring.numbers):
        return ring
    keys = np.empty((len(all_numbers), _LENGTH), dtype=np.uint8)
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        some[:] = np.frombuffer(secrets.token_bytes(some.size), dtype=np.uint8).reshape(some.shape)
    keys[np.searchsorted(all_numbers, ring.numbers)] = ring.keys
    ring = Ring(all_numbers, keys)
    _store(name, ring)
    return ring


def keys_destroy(name: str, numbers: Collection[int]) -> None:
    """Permanently destroy the keys of the given numbers, so that data encrypted with them can never be read again."""
    ring = ring_load(name)
    stays = ~np.isin(ring.numbers, list(numbers))
    if not stays.all():
        _store(name, Ring(ring.numbers[stays], ring.keys[stays]))


def ring_destroy(name: str) -> None:
    """Permanently destroy all keys of a ring, including those in an unfinished file left by a writer that died."""
    for each in (f"{name}{UNFINISHED}", name):
        _storage().delete(each)


def content_seal(name: str, content: bytes) -> bytes:
    """Encrypt content with the single key of the ring ``name``, which is created if necessary."""
    (key,) = keys_make(name, np.zeros(1, dtype=np.int64)).keys_of(np.zeros(1, dtype=np.int64))
    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, content, name.encode())


def content_open(name: str, sealed: bytes) -> bytes:
    """Return the content that :func:`content_seal` encrypted.

    Raises:
        KeyGoneError: the ring was destroyed.
        SealError: the sealed content was changed.
    """
    (key,) = ring_load(name).keys_of(np.zeros(1, dtype=np.int64))
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], name.encode())
    except InvalidTag:
        raise SealError(f"{name} was changed.") from None


def _store(name: str, ring: Ring) -> None:
    _storage().replace(name, ArraysFile({"numbers": ring.numbers, "keys": ring.keys}))


def _storage() -> SealedStorage:
    return cast(SealedStorage, storages["keys"])
