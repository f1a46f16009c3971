"""Tests of the catalogue of known datasets."""

import hashlib
import zipfile
from collections import Counter

import numpy as np
import pytest

from learning.formats import DataError, Rows, catalogue_load, schema_from_json, schema_to_json


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
@pytest.mark.parametrize(
    ("name", "records", "private", "positive"),
    [
        ("mnist", 70_000, 60_000, None),
        ("adult", 32_561 + 16_281, 32_561, 7_841 + 3_846),
        ("diabetes", 101_766, None, 11_357),
    ],
)
def test_published_datasets_are_split_as_their_publishers_count_them(
    name, records, private, positive, data_dir, tmp_path
):
    folder, seen = data_dir, []
    if name == "adult":  # in its publisher's archive
        folder = tmp_path
        (folder / "adult").mkdir()
        with zipfile.ZipFile(folder / "adult" / "adult.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for file in ("adult.data", "adult.test", "adult.names"):
                archive.write(data_dir / "adult" / file, file)
    splits = catalogue_load(name, folder, lambda done, total: seen.append(done == total))
    rows = [splits.private, splits.public, splits.test]
    assert sum(map(len, rows)) == records and private in (None, len(splits.private))
    assert positive in (None, sum(int(part.y.sum()) for part in rows))
    assert all(np.isfinite(part.x).all() and part.x.min() >= 0 and part.x.max() <= 1 for part in rows)
    assert schema_from_json(schema_to_json(splits.schema)) == splits.schema
    assert len(set(splits.private.holders)) == (60_000 if name == "diabetes" else len(splits.private))
    if name == "mnist":
        assert seen[-1], "progress ends at all of it"
        raw = (splits.private.x * 255).round().astype(np.uint8).tobytes()
        header = bytes.fromhex("00000803 0000ea60 0000001c 0000001c")
        # As the datasets' description in the project gives it.
        assert hashlib.md5(header + raw).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    if name == "diabetes":  # every record of a private patient must be private, told from the file itself
        with (
            zipfile.ZipFile(data_dir / "diabetes130" / "dataset_diabetes.zip") as archive,
            archive.open("dataset_diabetes/diabetic_data.csv") as file,
        ):
            next(file)
            patients = [line.split(b",", 2)[1].decode() for line in file]
        counts, found = Counter(patients), Counter(splits.private.holders)
        assert all(counts[holder.removeprefix("patient-")] == number for holder, number in found.items())


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
