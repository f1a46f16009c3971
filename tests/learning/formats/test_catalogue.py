"""Tests of the catalogue of known datasets."""

import hashlib
import zipfile

import numpy as np
import pytest

from learning.formats import CATALOGUE, DataError, Rows, catalogue_load, schema_from_json, schema_to_json


def test_digits_are_always_there():
    splits = catalogue_load("digits")
    assert [len(rows) for rows in (splits.private, splits.public, splits.test)] == [1300, 300, 197]
    assert len(set(splits.private.holders)) == 1300
    assert splits.public.holders is None and splits.test.holders is None
    images = np.concatenate([splits.private.x, splits.public.x, splits.test.x]).reshape(1797, -1)
    assert len(np.unique(images, axis=0)) == 1797  # nothing is in two splits
    assert (images.min(), images.max()) == (0, 1)
    assert (catalogue_load("digits").private.x == splits.private.x).all()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_mnist(data_dir):
    seen = []
    splits = catalogue_load("mnist", data_dir, lambda done, total: seen.append(done == total))
    assert [rows.x.shape for rows in (splits.private, splits.public, splits.test)] == [
        (number, 28, 28) for number in (60_000, 9_000, 1_000)
    ]
    raw = (splits.private.x * 255).round().astype(np.uint8).tobytes()
    header = bytes.fromhex("00000803 0000ea60 0000001c 0000001c")
    assert hashlib.sha256(header + raw).hexdigest() == next(iter(CATALOGUE["mnist"].files.values()))
    # As the datasets' description in the project gives it: the oracle that the pinned SHA-256 is the right one.
    assert hashlib.md5(header + raw).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    assert len(set(splits.private.holders)) == 60_000 and seen[-1]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_adult_in_its_publishers_archive(tmp_path, data_dir):
    """Found inside a zip file."""
    (tmp_path / "adult").mkdir()
    with zipfile.ZipFile(tmp_path / "adult" / "adult.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("adult.data", "adult.test", "adult.names"):
            archive.write(data_dir / "adult" / name, name)
    splits = catalogue_load("adult", tmp_path)
    assert [len(rows) for rows in (splits.private, splits.public, splits.test)] == [32_561, 13_000, 3_281]
    assert splits.private.y.sum() == 7_841
    assert splits.public.y.sum() + splits.test.y.sum() == 3_846
    assert len(set(splits.private.holders)) == 32_561
    everyone = np.concatenate([splits.private.x, splits.public.x, splits.test.x])
    complete = np.ones(len(everyone), bool)
    for column in ("workclass", "occupation", "native-country"):
        places = [i for i, name in enumerate(splits.schema.feature_names) if name.startswith(f"{column} = ")]
        complete &= everyone[:, places].sum(axis=1) == 1
    assert complete.sum() == 45_222
    assert everyone.min() >= 0 and everyone.max() <= 1


@pytest.mark.slow
@pytest.mark.exhaustive
def test_diabetes_is_split_by_patient(data_dir):
    splits = catalogue_load("diabetes", data_dir)
    rows = [splits.private, splits.public, splits.test]
    assert sum(map(len, rows)) == 101_766
    assert sum(int(part.y.sum()) for part in rows) == 11_357
    assert len(set(splits.private.holders)) == 60_000 < len(splits.private)
    assert all(np.isfinite(part.x).all() and part.x.min() >= 0 and part.x.max() <= 1 for part in rows)
    assert schema_from_json(schema_to_json(splits.schema)) == splits.schema
    # Told from the file itself, not from the splits: every record of a private patient must be private.
    with (
        zipfile.ZipFile(data_dir / "diabetes130" / "dataset_diabetes.zip") as archive,
        archive.open("dataset_diabetes/diabetic_data.csv") as file,
    ):
        next(file)
        patients = [line.split(b",", 2)[1].decode() for line in file]
    counts = dict(zip(*np.unique(patients, return_counts=True), strict=True))
    found, times = np.unique(splits.private.holders, return_counts=True)
    assert all(counts[name.removeprefix("patient-")] == n for name, n in zip(found, times, strict=True))


def test_a_missing_or_changed_file_is_refused(tmp_path):
    with pytest.raises(DataError) as error:
        catalogue_load("adult", tmp_path)
    for part in ("adult.data is missing", "archive.ics.uci.edu/dataset/2", str(tmp_path / "adult"), "5b00264637db"):
        assert part in str(error.value)
    with pytest.raises(DataError, match="IPATE_DATA_DIR"):
        catalogue_load("mnist")
    with pytest.raises(DataError, match=r"no known dataset “cifar”.*digits, mnist, adult, diabetes"):
        catalogue_load("cifar", tmp_path)
    (tmp_path / "adult").mkdir()
    for name in ("adult.data", "adult.test"):
        (tmp_path / "adult" / name).write_text("39, State-gov\n")
    with pytest.raises(DataError, match="SHA-256"):
        catalogue_load("adult", tmp_path)


def test_rows_fit_together_and_stay_so_where_some_are_chosen():
    for labels, holders, problem in (
        ([1], None, "2 records but 1 labels"),
        (None, ["a"] * 3, "2 records but 3 holders"),
    ):
        with pytest.raises(DataError, match=problem):
            Rows(np.zeros((2, 1), np.float32), None if labels is None else np.array(labels), holders)
    rows = Rows(np.arange(3, dtype=np.float32)[:, np.newaxis], np.array([0, 1, 2]), ["a", "b", "c"])
    for which in (np.array([2, 0]), np.array([True, False, True]), slice(1, None)):
        chosen = rows[which]
        assert chosen.x[:, 0].tolist() == chosen.y.tolist() == ["abc".index(name) for name in chosen.holders]
