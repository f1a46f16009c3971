"""Access to records for workers: private rows, public points, and the space in which they are represented.

In the file of a private dataset, each person's rows are encrypted with a separate key (AES-256-GCM), array by array.
Only the owner id of each row is not encrypted. The keys are kept separately (`common.keyrings`), in a ring named after
the dataset's first file. The ring keeps this name when the rows are stored again under another name.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import PurePosixPath
from secrets import token_bytes
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db.models import F

from common.artifacts import Parts, arrays_load, arrays_open, arrays_save
from common.distinct import distinct
from common.keyrings import Ring, keys_make, ring_load
from common.sealed_storage import SealError
from learning.encoders import EncoderFile, EncoderProcess, input_from_json
from learning.learners import Model
from learning.mechanisms.choices import HolderChoices
from learning.mechanisms.protocol import Records
from learning.representations import (
    FittedRepresentation,
    Representation,
    StudentLayer,
    layers_of_model,
    representation_create,
    representation_load,
    representation_save,
)
from training.models import Dataset, Encoder, Run

_OWNERS = "holder"
#: Prefixes in the names of an encrypted array's parts: the encrypted rows, the nonce (one for all people, whose keys
#: differ), and a row's type and shape.
_SEALED, _NONCE, _ROW = "sealed ", "nonce ", "row "
_TAG = 16
#: Maximum number of bytes, and of people, that are encrypted at once.
_AT_ONCE, _PEOPLE_AT_ONCE = 1 << 20, 10_000


def ring_of(artifact: str) -> str:
    """Return the name of the ring with a dataset's keys, given the name of any of its files.

    >>> ring_of("datasets/8c1f.npz"), ring_of("datasets/8c1f.77ab.npz")
    ('8c1f', '8c1f')
    """
    return PurePosixPath(artifact).name.partition(".")[0]


def records_load(dataset: Dataset, *keys: str, holders: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Return a dataset's arrays, or only ``keys``; for a private dataset, optionally only the rows of ``holders``.

    Rows of people whose records were erased are omitted even if the file still holds them, because their keys have been
    destroyed.

    If someone's records are erased between reading the database row and opening its file, the row refers to a new file,
    which is opened instead.

    Raises:
        FileNotFoundError: the file does not exist.
        KeyError: the file has no such array.
    """
    while True:
        try:
            return _opened(dataset.artifact, keys, holders)
        except FileNotFoundError:
            newer = Dataset.objects.filter(pk=dataset.pk).values_list("artifact", flat=True).first()
            if newer is None or newer == dataset.artifact:
                raise
            dataset.artifact = newer


def owners_of(dataset: Dataset) -> np.ndarray:
    """Return the ascending ids of the holders who own rows of a private dataset."""
    return distinct(records_load(dataset, _OWNERS)[_OWNERS])


def records_first(owners: np.ndarray, most: int) -> np.ndarray:
    """Return whether each row is among the first ``most`` rows of its owner, (N,).

    >>> records_first(np.array([7, 5, 7, 7, 5]), 2).tolist()
    [True, True, True, False, True]
    """
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    first = np.empty(len(owners), dtype=bool)
    first[order] = np.arange(len(owners)) - np.searchsorted(ordered, ordered) < most
    return first


def records_store(
    arrays: Mapping[str, np.ndarray], *, artifact: str = "", before: str = "", stays: np.ndarray | None = None
) -> tuple[str, str]:
    """Store a dataset's arrays under a new name; return the name and the digest.

    Args:
        arrays: The arrays. If they include ``holder`` (N,), the rows of the other arrays are encrypted, a small part at
            a time; otherwise all arrays are stored unencrypted.
        artifact: Name of the dataset's first file, if it has already been chosen.
        before: Name of the dataset's current file, whose keys are reused.
        stays: Whether each owned row is kept, (N,); by default all are.

    Raises:
        KeyGoneError: someone's records were erased in the meantime.
    """
    artifact = artifact or f"datasets/{ring_of(before) or uuid4()}{f'.{uuid4().hex[:12]}' if before else ''}.npz"
    if _OWNERS not in arrays:
        return artifact, arrays_save(artifact, **arrays)
    owners, rows = arrays[_OWNERS], None
    if stays is not None and not stays.all():
        rows = np.flatnonzero(stays)
        owners = owners[rows]
    ring = ring_load(ring_of(artifact)) if before else keys_make(ring_of(artifact), owners)
    people, order, ends = _by_owner(owners)
    order = order if rows is None else rows[order]
    stored: dict[str, np.ndarray | Parts] = {_OWNERS: owners}
    for name, array in arrays.items():
        if name != _OWNERS:
            nonce = token_bytes(12)
            size = _width(array) * len(order) + _TAG * len(people)
            stored[_SEALED + name] = Parts(size, _sealed(array, order, ends, people, ring, name, nonce))
            stored[_NONCE + name] = np.frombuffer(nonce, dtype=np.uint8)
            stored[_ROW + name] = np.empty((0, *array.shape[1:]), dtype=array.dtype)
    return artifact, arrays_save(artifact, **stored)


def _by_owner(owners: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the owners (P,) ascending, the rows (N,) in their owners' order, and the end (P,) of each owner's rows.

    >>> [each.tolist() for each in _by_owner(np.array([7, 5, 7]))]
    [[5, 7], [1, 0, 2], [1, 3]]
    """
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]) + 1
    return ordered[ends - 1], order, ends


def _about(name: str, person: int) -> bytes:
    return f"{name} {person}".encode()


def _sealed(
    array: np.ndarray, order: np.ndarray, ends: np.ndarray, people: np.ndarray, ring: Ring, name: str, nonce: bytes
) -> Iterator[bytes]:
    """Yield encrypted rows in the order of their owners: several people at a time, each with a separate key."""
    width, keys = _width(array), ring.keys_of(people)
    first = read = 0
    while first < len(people):
        last = int(np.searchsorted(ends, read + _AT_ONCE // max(1, width), "right"))
        last = max(first + 1, min(last, first + _PEOPLE_AT_ONCE))
        some, read = order[read : ends[last - 1]], int(ends[last - 1])
        rows = np.ascontiguousarray(array[some])
        content, parts, at = rows.reshape(-1).view(np.uint8).data if rows.nbytes else b"", [], 0
        bounds = ((ends[first:last] - read + len(some)) * width).tolist()
        for key, person, end in zip(islice(keys, last - first), people[first:last].tolist(), bounds, strict=True):
            parts.append(AESGCM(key).encrypt(nonce, content[at:end], _about(name, person)))
            at = end
        yield b"".join(parts)
        first = last


def _width(rows: np.ndarray) -> int:
    """Return the number of bytes per row."""
    return int(np.prod(rows.shape[1:], dtype=np.int64)) * rows.dtype.itemsize


def _opened(artifact: str, keys: tuple[str, ...], holders: np.ndarray | None) -> dict[str, np.ndarray]:
    with arrays_open(artifact) as stored:
        sealed = [name.removeprefix(_SEALED) for name in stored.files if name.startswith(_SEALED)]
        if not sealed:
            return {key: stored[key] for key in keys or stored.files}
        owners, ring = stored[_OWNERS], ring_load(ring_of(artifact))
        people, order, ends = _by_owner(owners)
        is_read = ring.has(people) if holders is None else ring.has(people) & np.isin(people, holders)
        rows = np.isin(owners, people[is_read])
        as_in_file = np.argsort(order[rows[order]])
        return {
            key: owners[rows] if key == _OWNERS else _read(stored, key, people, ends, is_read, ring)[as_in_file]
            for key in keys or (_OWNERS, *sealed)
        }


def _read(
    stored: Mapping[str, np.ndarray], name: str, people: np.ndarray, ends: np.ndarray, is_read: np.ndarray, ring: Ring
) -> np.ndarray:
    """Return the selected people's rows of the array ``name``, in the order of their owners."""
    content, nonce, row = (stored[kind + name] for kind in (_SEALED, _NONCE, _ROW))
    sealed, once = content.data, nonce.tobytes()
    counts, ends = np.diff(ends, prepend=0), ends * _width(row) + _TAG * np.arange(1, len(ends) + 1)
    starts = np.concatenate([[0], ends[:-1]])
    places = zip(ring.keys_of(people[is_read]), people[is_read], starts[is_read], ends[is_read], strict=True)
    try:
        parts = [AESGCM(key).decrypt(once, sealed[a:b], _about(name, person)) for key, person, a, b in places]
    except InvalidTag:
        raise SealError("A person's records in a dataset's file were changed.") from None
    return np.ndarray((int(counts[is_read].sum()), *row.shape[1:]), row.dtype, b"".join(parts))


# --- Vectors of encoders ----------------------------------------------------------------------------------------------


RECORDS = "x"


def records_key(encoder: str) -> str:
    """Return the name of the array to learn from: the vectors of the encoder with this digest, or the raw records.

    >>> records_key(""), records_key("ab12" * 16)
    ('x', 'vectors-ab12ab12ab12ab12')
    """
    return f"vectors-{encoder[:16]}" if encoder else RECORDS


def encoder_of(run: Run) -> Encoder | None:
    """Return the run's encoder. If several have the same file, prefer one that is not withdrawn, then the latest."""
    encoders = Encoder.objects.filter(study=run.study_id, digest=run.encoder) if run.encoder else Encoder.objects.none()
    return encoders.order_by(F("withdrawn_at").desc(nulls_first=True)).first()


def encoder_store(artifact: str, file: EncoderFile) -> str:
    """Store an encoder in private storage; return the SHA-256 of its ONNX file."""
    tokenizer = np.frombuffer(file.tokenizer.encode(), np.uint8)
    arrays_save(artifact, content=np.frombuffer(file.content, np.uint8), tokenizer=tokenizer)
    return hashlib.sha256(file.content).hexdigest()


def encoder_load(encoder: Encoder) -> EncoderFile:
    """Load an encoder from private storage."""
    arrays = arrays_load(encoder.artifact)
    tokenizer = arrays["tokenizer"].tobytes().decode()
    return EncoderFile(arrays["content"].tobytes(), input_from_json(encoder.takes), tokenizer)


def rows_encode(run: Run, rows: np.ndarray) -> np.ndarray:
    """Return records (n, *shape) as inputs of a run's model, which are vectors if the run uses an encoder.

    Raises EncoderError.
    """
    encoder = encoder_of(run)
    if encoder is None:
        return rows
    with EncoderProcess(encoder_load(encoder), rows.shape[1:]) as process:
        return process.encode(rows)


# --- Coordinates ------------------------------------------------------------------------------------------------------


def records_of(run: Run, fitted: FittedRepresentation | None, holders: np.ndarray, cache: str = "") -> Records:
    """Return records of ``holders`` (H,) (ascending ids), as coordinates if a representation is given.

    Coordinates are computed once per round and shard, and cached in the file ``cache`` if it is given. The file is
    recomputed if it lacks participants, and rewritten if it contains anyone else.
    """
    x, classes, owners = _coordinates(run, fitted, holders, cache)
    return Records(x, classes, np.searchsorted(holders, owners))


def _coordinates(
    run: Run, fitted: FittedRepresentation | None, holders: np.ndarray, cache: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if fitted is not None and cache:
        cached = _kept(cache)
        if cached is not None and np.isin(holders, cached["holder"]).all():
            mine = np.isin(cached["owner"], holders)
            coordinates, classes, owners = cached["coordinates"][mine], cached["class"][mine], cached["owner"][mine]
            if len(cached["holder"]) > len(holders):
                _keep(cache, holders, coordinates, classes, owners)
            return coordinates, classes, owners
    key = records_key(run.encoder)
    private = records_load(run.private_dataset, key, "y", "holder", holders=holders)
    x, classes, owners = private[key], private["y"], private["holder"]
    if fitted is None:
        return x, classes, owners
    coordinates = fitted.transform(x)
    if cache:
        _keep(cache, holders, coordinates, classes, owners)
    return coordinates, classes, owners


def _keep(cache: str, holders: np.ndarray, coordinates: np.ndarray, classes: np.ndarray, owners: np.ndarray) -> None:
    with suppress(OSError):  # another worker, whose claim was taken over, is still writing the file
        arrays_save(cache, coordinates=coordinates, owner=owners, holder=holders, **{"class": classes})


def _kept(cache: str) -> dict[str, np.ndarray] | None:
    """Return the content of a cache file; None if it does not exist or its writer died while writing it."""
    try:
        return arrays_load(cache)
    except (OSError, EOFError, ValueError, BadZipFile):
        return None


@dataclass(frozen=True, eq=False)
class Space:
    """Representation fitted on the public points, and their coordinates ``public`` (P, d).

    ``encoder``: digest of the encoder whose vectors are represented; empty for the records themselves.
    """

    fitted: FittedRepresentation
    public: np.ndarray
    encoder: str = ""


def space_first(public_dataset: Dataset, choices: HolderChoices) -> Space:
    """Return the space of the first round. Raises ValueError if the representation cannot represent the points."""
    points = points_of(public_dataset, choices.encoder)
    chosen = choices.space(points)
    return _space(public_dataset.artifact, choices.encoder, chosen.name, json.dumps(chosen.parameters()))


def points_of(dataset: Dataset, encoder: str = "") -> np.ndarray:
    """Return a dataset's points (n, *shape), or their vectors by the encoder with this digest."""
    return _from_file(dataset, lambda artifact: _points(artifact, encoder))


def _from_file(dataset: Dataset, load: Callable[[str], np.ndarray]) -> np.ndarray:
    with suppress(FileNotFoundError):
        return load(dataset.artifact)
    # The file was replaced in the meantime by a file with another encoder's vectors.
    dataset.artifact = Dataset.objects.values_list("artifact", flat=True).get(pk=dataset.pk)
    return load(dataset.artifact)


# Cached because planning, approving and running need the same space. A changed dataset file has a new name.
@lru_cache(maxsize=4)
def _points(artifact: str, encoder: str) -> np.ndarray:
    key = records_key(encoder)
    return arrays_load(artifact, key)[key]


@lru_cache(maxsize=2)
def _space(artifact: str, encoder: str, name: str, parameters: str) -> Space:
    chosen = representation_create(name, json.loads(parameters))
    points = _points(artifact, encoder)
    described = " ".join(filter(None, (artifact, encoder, name, parameters)))
    fitted = _kept_or_fitted(chosen, points, described) if chosen.costly else chosen.fit(points)
    return Space(fitted, fitted.transform(points), encoder)


def _kept_or_fitted(chosen: Representation, points: np.ndarray, described: str) -> FittedRepresentation:
    """Return the fitted representation, cached for planning and running because fitting takes a long time."""
    name = f"spaces/{hashlib.sha256(described.encode()).hexdigest()[:32]}.npz"
    with suppress(FileNotFoundError):
        return representation_load(arrays_load(name)["representation"].tobytes())
    fitted = chosen.fit(points)
    with suppress(OSError):  # another process, which has fitted the same representation, is still writing the file
        arrays_save(name, representation=np.frombuffer(representation_save(fitted), dtype=np.uint8))
    return fitted


def space_of_student(student: Model, first: Space, points: np.ndarray, *, beside_wavelets: bool = False) -> Space:
    """Return the student's inner layer as a space, optionally with wavelets; ``first`` if it has no inner layer."""
    layers = layers_of_model(student)
    if not layers:
        return first
    fitted = StudentLayer(layers=layers, wavelets=beside_wavelets).fit(points)
    return Space(fitted, fitted.transform(points), first.encoder)


def labelled_points(test: Dataset, space: Space, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates (n, d) and class codes (n,) of evaluation data, which are public or meant for this use."""
    codes = _from_file(test, lambda artifact: arrays_load(artifact, "y")["y"])
    chosen = np.linspace(0, len(codes) - 1, min(len(codes), most)).astype(np.int64)
    return space.fitted.transform(points_of(test, space.encoder)[chosen]), codes[chosen]
