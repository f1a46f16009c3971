"""Files of people's records: readable as stored for processes with the keys, and for nobody after an erasure."""

import io
import tracemalloc
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages

from common.artifacts import Parts, arrays_digest, arrays_load, arrays_open, arrays_save, private_save
from common.keyrings import KeyGoneError, keys_destroy, ring_destroy, ring_load
from common.sealed_storage import SealError
from training.engine import records
from training.engine.records import owners_of, records_load, records_store, ring_of
from training.models import Dataset

pytestmark = pytest.mark.usefixtures("storages_apart")


def arrays(seed: int, rows: int = 60, people: int = 9) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(rows, 2, 3)),
        "y": rng.integers(0, 3, rows),
        "text": np.array([f"é {n}" for n in range(rows)]),
        "nothing": np.empty((rows, 0), dtype=np.float32),
        "holder": rng.choice(rng.choice(10**9, people, replace=False), rows),
    }


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], rows: Any = slice(None)) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == array.dtype and (found[name] == array[rows]).all() and found[name].flags.writeable
        for name, array in wanted.items()
    )


def stored(content: dict[str, np.ndarray]) -> Dataset:
    return Dataset(artifact=records_store(content)[0])


@pytest.mark.parametrize("rows", [0, 1, 2, 60])
def test_rows_come_back_in_their_order_all_or_those_of_some(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(records, "_AT_ONCE", 250)
    monkeypatch.setattr(records, "_PEOPLE_AT_ONCE", 5)
    content = arrays(rows, rows)
    dataset = stored(content)
    assert same(records_load(dataset), content)
    some = np.unique(content["holder"])[::2]
    assert same(records_load(dataset, holders=some), content, np.isin(content["holder"], some))
    assert same(records_load(dataset, "y", "holder"), {name: content[name] for name in ("y", "holder")})
    with pytest.raises(KeyError):
        records_load(dataset, "other")


def test_storing_takes_little_memory_and_only_the_rows_that_stay() -> None:
    rng = np.random.default_rng(4)
    content = {"x": rng.normal(size=(20_000, 200)), "holder": rng.permutation(20_000)}
    stays = np.arange(20_000) % 7 > 0
    tracemalloc.start()
    try:
        artifact, digest = records_store(content, stays=stays)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < content["x"].nbytes / 2 and digest == arrays_digest(artifact)
    assert same(records_load(Dataset(artifact=artifact)), content, stays)


def test_files_of_arrays_are_what_numpy_writes_and_reads() -> None:
    """NumPy wrote the datasets of earlier versions."""
    wide = np.arange(12.0).reshape(3, 4)
    content = {"one": np.array(7), "text": np.array(["é", ""]), "none": np.empty((0, 3), np.int8), "fortran": wide.T}
    digest = arrays_save("arrays.npz", **content, parts=Parts(3, [b"a", b"", b"bc"]))
    with storages["private"].open("arrays.npz") as file, np.load(file) as stored:
        assert stored.zip.testzip() is None and stored["parts"].tobytes() == b"abc"
        assert digest == arrays_digest("arrays.npz")
        for name, array in content.items():
            assert stored[name].dtype == array.dtype and stored[name].shape == array.shape
            assert (stored[name] == array).all()
    buffer = io.BytesIO()
    np.savez(buffer, **content)
    private_save("numpy.npz", ContentFile(buffer.getvalue()))
    assert {name: array.tolist() for name, array in arrays_load("numpy.npz").items()} == {
        name: array.tolist() for name, array in content.items()
    }
    with pytest.raises(ValueError, match="Object arrays are not stored"):
        arrays_save("objects.npz", each=np.array([None]))


def test_a_file_tells_who_owns_rows_and_nothing_of_them() -> None:
    content = arrays(1)
    content["y"] = np.full(60, 0x0123456789ABCDEF)
    artifact, _ = records_store(content)
    with storages["private"].open(artifact) as file:
        assert content["y"][:1].tobytes() not in file.read()
    assert (arrays_load(artifact, "holder")["holder"] == content["holder"]).all()


def test_no_file_is_readable_after_its_key_is_destroyed() -> None:
    content = arrays(2)
    old = stored(content)
    first, *others = np.unique(content["holder"]).tolist()
    stays = content["holder"] != first
    new = Dataset(artifact=records_store({name: each[stays] for name, each in content.items()}, before=old.artifact)[0])
    assert ring_of(new.artifact) == ring_of(old.artifact) and new.artifact != old.artifact
    keys_destroy(ring_of(old.artifact), [first])
    for dataset in (old, new):
        assert same(records_load(dataset), content, stays)
        assert owners_of(dataset).tolist() == others
    with pytest.raises(KeyGoneError):
        records_store(content, before=old.artifact)
    ring_destroy(ring_of(old.artifact))
    assert len(ring_load(ring_of(old.artifact)).numbers) == len(records_load(new)["x"]) == 0


def test_changed_or_exchanged_files_are_not_read() -> None:
    content = arrays(3, 4, 4)
    dataset = stored(content)
    with arrays_open(dataset.artifact) as file:
        whole = {name: file[name] for name in file.files}
    spoiled = whole["sealed y"].copy()
    spoiled[0] ^= 1
    swapped = whole["sealed y"].reshape(4, -1)[[1, 0, 2, 3]].ravel()
    for change in (spoiled, swapped):
        arrays_save(dataset.artifact, **(whole | {"sealed y": change}))
        with pytest.raises(SealError):
            records_load(dataset, "y")


@pytest.mark.parametrize("then", ["another erasure", "the end of all"])
def test_a_writer_that_dies_while_writing_keys_leaves_none_behind(monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    dataset = stored(arrays(5))
    ring, first, second = ring_of(dataset.artifact), *np.unique(owners_of(dataset))[:2].tolist()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("common.sealed_storage.os.replace", Mock(side_effect=KeyboardInterrupt))
        keys_destroy(ring, [first])
    assert storages["keys"].exists(f"{ring}.new")
    if then == "another erasure":
        keys_destroy(ring, [first, second])
    else:
        ring_destroy(ring)
    assert not storages["keys"].exists(f"{ring}.new")
    assert not ring_load(ring).has(np.array([first, second])).any()
