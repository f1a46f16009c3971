"""Tests of the image readers."""

import gzip
import struct

import numpy as np
import pytest
from scipy.io import savemat

from learning.formats import DataError, ImageSchema, TabularSchema, read_file
from learning.formats.columns import NumericColumn
from learning.formats.rows import as_numbers

DIGITS = tuple("0123456789")
GREY = ImageSchema(2, 3, 1, DIGITS)
COLOUR = ImageSchema(4, 4, 3, DIGITS)
TABLE = TabularSchema((NumericColumn("a", 0, 1), NumericColumn("b", 0, 1)), ("no", "yes"))


def _idx(path, values, *, lengths=None, kind=8):
    lengths = values.shape if lengths is None else lengths
    header = struct.pack(f">BBBB{len(lengths)}I", 0, 0, kind, len(lengths), *lengths)
    path.write_bytes(header + values.astype(np.uint8).tobytes())
    return path


@pytest.fixture
def pixels():
    return np.arange(24).reshape(4, 2, 3) * 11


def test_idx_images_and_labels(tmp_path, pixels):
    images, labels = _idx(tmp_path / "images", pixels), _idx(tmp_path / "labels", np.array([3, 0, 9, 1]))
    rows = read_file(images, GREY, label_file=labels, holders=False)
    assert rows.x.dtype == np.uint8 and (rows.x == pixels).all()
    np.testing.assert_allclose(as_numbers(rows.x), pixels / 255, rtol=1e-6)
    assert rows.y.tolist() == [3, 0, 9, 1] and rows.holders is None
    gzipped = tmp_path / "images.gz"
    gzipped.write_bytes(gzip.compress(images.read_bytes()))
    assert (read_file(gzipped, GREY, labels=False, holders=False).x == rows.x).all()
    assert rows.one_holder_per_row("image").holders == ["image-1", "image-2", "image-3", "image-4"]


def test_wrong_idx_files_are_refused(tmp_path, pixels):
    images = _idx(tmp_path / "images", pixels)
    for path, labels, problem in [
        (_idx(tmp_path / "kind", pixels, kind=9), None, "begins with 00000903, not with 00000803"),
        (_idx(tmp_path / "long", pixels, lengths=(3, 2, 3)), None, "announces 18 values and holds > 18"),
        (_idx(tmp_path / "turned", pixels.reshape(4, 3, 2)), None, "measure 3 × 2"),
        (images, _idx(tmp_path / "fewer", np.array([1, 2, 3])), "3 labels for 4 images"),
        (images, _idx(tmp_path / "eleven", np.array([1, 2, 3, 10])), "row 4: The label 10 is no class"),
        (tmp_path / "nowhere", None, "cannot be opened"),
    ]:
        with pytest.raises(DataError) as error:
            read_file(path, GREY, label_file=labels, labels=labels is not None, holders=False)
        assert problem in str(error.value) and error.value.remedy
        assert str(error.value).startswith(str(labels or path))


def test_npz_with_holders(tmp_path, pixels):
    path = tmp_path / "rows.npz"
    np.savez(path, x=pixels.astype(np.uint8), y=np.array([0, 1, 2, 3]), holder=np.array(["a", "a", "b", "c"]))
    rows = read_file(path, GREY)
    assert rows.x.dtype == np.uint8 and (rows.x == pixels).all()
    np.testing.assert_allclose(as_numbers(rows.x), pixels / 255, rtol=1e-6)
    assert (rows.y.tolist(), rows.holders) == ([0, 1, 2, 3], ["a", "a", "b", "c"])
    public = read_file(path, GREY, labels=False, holders=False)
    assert (public.y, public.holders) == (None, None)


def test_house_numbers_as_svhn_publishes_them(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (4, 4, 3, 5), dtype=np.uint8)
    path = tmp_path / "train_32x32.mat"
    savemat(path, {"X": images, "y": np.array([[1], [10], [9], [2], [10]], np.uint8)})
    rows = read_file(path, COLOUR, holders=False)
    assert (rows.x[3] == images[..., 3]).all()
    assert rows.y.tolist() == [1, 0, 9, 2, 0]
    for y, problem in (
        ({"y": np.array([[1], [11], [9], [2], [10]])}, "row 2, column y: The label 11 is no class"),
        ({}, "column y: The array is missing"),
    ):
        savemat(path, {"X": images} | y)
        with pytest.raises(DataError, match=problem):
            read_file(path, COLOUR, holders=False)
    assert read_file(path, COLOUR, labels=False, holders=False).y is None


def test_the_content_of_a_file_decides_its_format(tmp_path, pixels):
    images = _idx(tmp_path / "images", pixels)
    (tmp_path / "t.csv").write_text("a,b\n1,0\n")
    assert read_file(tmp_path / "t.csv", TABLE, labels=False, holders=False).x.tolist() == [[1, 0]]
    for path, schema, options, problem in [
        (images, GREY, {"labels": False}, "no place for holders"),
        (images, GREY, {"holders": False}, "holds no labels"),
        (images, TABLE, {}, "the schema declares a table"),
        (tmp_path / "t.csv", GREY, {"holders": False}, "neither a zip file of images, npz, mat nor idx"),
    ]:
        with pytest.raises(DataError, match=problem):
            read_file(path, schema, **options)
