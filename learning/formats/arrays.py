"""Reader for arrays saved by other programs (npz, mat, idx), which are checked against a schema."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from numpy.lib import format as npy

from common.identities import spelling
from common.progress import Progress, silent
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.files import open_content, sound
from learning.formats.records import pseudonym_faults
from learning.formats.rows import IMAGES, ROWS, DataError, Report, Rows
from learning.formats.schema import ImageSchema, Schema, TabularSchema
from learning.outcomes import Target

Array = npt.NDArray[np.generic]


def array_missing(name: str, remedy: str) -> DataError:
    """Return a DataError for an array that is missing from a file."""
    return DataError(_("The array is missing."), remedy, column=name)


def checked_rows(schema: Schema, report: Report, arrays: Mapping[str, Array]) -> Rows | None:
    """Return the records in arrays ``x``, ``y`` and ``holder``, one per row of ``x``; None if the report has errors.

    >>> report = Report()
    >>> checked_rows(ImageSchema(1, 2, 1, ("a", "b")), report, {"x": np.zeros((1, 3)), "y": np.array([2])})
    >>> [fault.column for fault in report.faults]
    ['x', 'y']
    """
    if "x" not in arrays:
        return None
    features = checked_features(arrays["x"], schema, report)
    records = arrays["x"].shape[0] if arrays["x"].ndim else 0
    labels = None
    if "y" in arrays:
        target = schema.target
        labels = (
            checked_labels(arrays["y"], schema.classes, records, report)
            if target is None
            else checked_targets(arrays["y"], target, records, report)
        )
    names = checked_holders(arrays["holder"], records, report) if "holder" in arrays else None
    part, is_used = IMAGES if isinstance(schema, ImageSchema) else ROWS, features is not None and not report.count
    report.balance.see(part, records)
    (report.balance.use if is_used else report.balance.refuse)(part, records)
    return Rows(features, labels, names) if features is not None and is_used else None


def checked_features(x: Array, schema: Schema, report: Report) -> npt.NDArray[Any] | None:
    """Return records in the schema's shape. Images stored as bytes stay bytes, a quarter of the size of floats.

    >>> checked_features(np.full((1, 1, 2), 255, np.uint8), ImageSchema(1, 2, 1, ("a", "b")), Report()).tolist()
    [[[255, 255]]]
    """
    if isinstance(schema, TabularSchema) and schema.text is not None and x.dtype.kind == "U" and x.ndim == 1:
        limits.check_numbers(len(x), *schema.shape)
        return schema.text.encode(x.tolist())
    if x.dtype.kind not in "fiub":
        holds = Sentence(_("“x” contains %(type)s."), type=x.dtype)
        report.add(DataError(holds, _("Save the array as numbers."), column="x"))
        return None
    if x.shape[1:] != schema.shape or not len(x):
        differs = Sentence(
            _("“x” has the shape %(found)s, but the schema requires %(wanted)s."),
            found=x.shape,
            wanted=str(("n", *schema.shape)),
        )
        report.add(DataError(differs, _("Save one record per entry of the first axis."), column="x"))
        return None
    limits.check_numbers(*x.shape)
    if schema.dtype == np.uint8 or (isinstance(schema, ImageSchema) and x.dtype == np.uint8):
        if x.dtype != np.uint8:
            report.add(
                DataError(_("x does not contain texts as bytes."), _("Save the texts, one per record."), column="x")
            )
            return None
        return x.astype(np.uint8)
    with np.errstate(over="ignore"):
        numbers = x.astype(np.float32)
    usable, problem = np.isfinite(numbers), _("A value is not finite.")
    if isinstance(schema, ImageSchema):
        usable &= (numbers >= 0) & (numbers <= 1)
        problem = _("A value is not between 0 and 1.")
    wrong = np.flatnonzero(~usable.reshape(len(x), -1).all(axis=1))
    report.add_rows(wrong.tolist(), lambda _place: problem, _("Correct the record."), "x")
    return numbers


def checked_labels(y: Array, classes: Sequence[str], records: int, report: Report) -> npt.NDArray[np.int64] | None:
    """Return class numbers, one per record.

    >>> checked_labels(np.array([1, 0]), ("no", "yes"), 2, Report()).tolist()
    [1, 0]
    """
    text = _("“y” contains %(type)s and has the shape %(shape)s, but there are %(count)d records.")
    if not _one_each(y, "iu", "y", records, text, _("Save one class number per record, as a whole number."), report):
        return None
    unknown_classes(y, len(classes), report, "y")
    return y.astype(np.int64)


def checked_targets(y: Array, target: Target, records: int, report: Report) -> npt.NDArray[np.int64] | None:
    """Return target codes, one per record.

    ``y`` has a column for each part of the target; for a single part, it may be flat.

    >>> from learning.outcomes import Numbers
    >>> checked_targets(np.array([0.5, 1.0]), Numbers(0, 1), 2, Report()).tolist()
    [524288, 1048576]
    """
    parts = y.reshape(len(y), -1) if y.ndim in (1, 2) else y
    if y.dtype.kind not in "fiub" or parts.shape != (records, len(target.parts)):
        problem = Sentence(
            _("“y” contains %(type)s and has the shape %(shape)s, but there are %(count)d records."),
            type=y.dtype,
            shape=y.shape,
            count=records,
        )
        remedy = Sentence(
            _("Save “y” as numbers, with one column for each of these: %(names)s."), names=", ".join(target.parts)
        )
        report.add(DataError(problem, remedy, column="y"))
        return None
    values = [each.astype(np.float64) for each in parts.T]
    for part, numbers in zip(target.parts, values, strict=True):
        text = Sentence(_("A value is not valid for “%(part)s”."), part=part)
        wrong = np.flatnonzero(~target.allowed(part, numbers)).tolist()
        report.add_rows(wrong, lambda _place, text=text: text, target.remedy(part), "y")  # type: ignore[misc]
    with np.errstate(invalid="ignore"):
        return target.coded(values)


def unknown_classes(y: Array, classes: int, report: Report, column: str | None = None) -> None:
    """Report every integer that is not a class number from 0 to ``classes`` - 1."""
    report.add_rows(
        np.flatnonzero((y < 0) | (y >= classes)).tolist(),  # type: ignore[operator]
        lambda place: Sentence(
            _("The label %(label)s is not a class; there are %(count)d classes, counted from 0."),
            label=y[place],
            count=classes,
        ),
        _("Correct the label or the schema."),
        column,
    )


def checked_holders(holders: Array, records: int, report: Report) -> list[str] | None:
    """Return pseudonyms, one per record.

    >>> checked_holders(np.array(["ada", "ben"]), 2, Report())
    ['ada', 'ben']
    """
    text = _("“holder” contains %(type)s and has the shape %(shape)s, but there are %(count)d records.")
    remedy = _("Save one pseudonym per record, as text or whole number.")
    if not _one_each(holders, "Uiuf", "holder", records, text, remedy, report):
        return None
    names = holders.tolist()
    report.add(*pseudonym_faults(names, "holder"))
    return [spelling(name) for name in names]


def _one_each(array: Array, kinds: str, name: str, records: int, problem: str, remedy: str, report: Report) -> bool:
    """Return whether an array has one axis and values of these kinds, one per record; if not, report an error."""
    listed = array.dtype.kind in kinds and array.ndim == 1
    if not listed or len(array) != records:
        text = Sentence(problem, type=array.dtype, shape=array.shape, count=records)
        report.add(DataError(text, remedy, column=name))
    return listed


_UNSIGNED_BYTES = b"\x00\x00\x08"
_CHUNK = 1 << 22

_MAT_ARRAYS = {"x": "X", "y": "y"}
NO_DIGITS = _("Choose a file of cropped digits.")

ARRAYS = ("x", "y", "holder")


def idx_arrays(
    images: Path, labels: Path | None, schema: Schema, report: Report, progress: Progress
) -> dict[str, Array]:
    """Return pixels ``x`` and, if there is a label file, ``y``. ``progress`` counts bytes. The format has no holders.

    The report contains the errors in both files, each with its file name.
    """
    arrays: dict[str, Array] = {}
    with report.noting():
        x = _read_array(images, 1 + len(schema.shape), progress)
        if x.shape[1:] != schema.shape:
            text = _("The images have the size %(found)s, but the schema says %(declared)s.")
            problem = Sentence(text, found=" × ".join(map(str, x.shape[1:])), declared=schema.shape)
            raise DataError(problem, _("Correct the schema, or choose another file."))
        arrays["x"] = x
    if labels is not None:
        with report.noting(labels):
            arrays["y"] = y = _read_array(labels, 1, silent)
            if "x" in arrays and len(y) != len(arrays["x"]):
                text = _("There are %(labels)d labels for %(count)d images.")
                problem = Sentence(text, labels=len(y), count=len(arrays["x"]))
                report.add(DataError(problem, _("Choose the two files that belong together."), file=labels))
            inner = Report()
            unknown_classes(y, len(schema.classes), inner)
            report.take(inner, labels)
    if report.count:
        arrays.pop("y", None)  # label errors have been reported, but the images are still counted
    return arrays


def idx_shape(path: Path) -> tuple[int, ...]:
    """Return the axis lengths declared by an idx file of bytes; empty for any other file."""
    with open_content(path) as content:
        magic = content.stream.read(4)
        axes = magic[3] if magic[:3] == _UNSIGNED_BYTES and len(magic) == 4 else 0
        lengths = content.stream.read(4 * axes)
    return tuple(np.frombuffer(lengths, ">u4").tolist()) if axes and len(lengths) == 4 * axes else ()


def mat_arrays(path: Path, wanted: Sequence[str], classes: int, report: Report) -> dict[str, Array]:
    """Return images ``x`` from ``X`` (height, width, channels, n) and labels from ``y`` (n, 1), 1 to ``classes``.

    The largest number means class 0, because SVHN writes the digit 0 as 10. The format stores no holders.

    Raises:
        DataError: The file is not a valid MATLAB file, or is too large.
    """
    mat_shapes(path)
    with _sound_mat(path):
        content = scipy.io.loadmat(path, variable_names=list(_MAT_ARRAYS.values()))
    report.add(*(array_missing(_MAT_ARRAYS[name], NO_DIGITS) for name in wanted if _MAT_ARRAYS[name] not in content))
    arrays = {name: content[_MAT_ARRAYS[name]] for name in wanted if _MAT_ARRAYS[name] in content}
    if "x" in arrays:
        arrays["x"] = np.moveaxis(arrays["x"], -1, 0)
    if "y" in arrays:
        y = arrays["y"].ravel()
        arrays["y"] = np.where(y == classes, 0, y) if y.dtype.kind in "iu" else y
    return arrays


def mat_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array in a MATLAB file, reading only the header.

    Raises:
        DataError: The file is not a valid MATLAB file, or is too large.
    """
    with _sound_mat(path):
        shape_of = {name: tuple(shape) for name, shape, _kind in scipy.io.whosmat(path)}
    for name in _MAT_ARRAYS.values():
        limits.check_numbers(*shape_of.get(name, ()))
    return shape_of


def npz_arrays(path: Path, wanted: Sequence[str], report: Report) -> dict[str, Array]:
    """Return the requested arrays of an npz file. Arrays of Python objects are refused, because they require pickle.

    Raises:
        DataError: The file is not a valid npz file, or is too large.
    """
    npz_shapes(path)
    with _sound_npz(path), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in ARRAYS if name in archive}
    contents = Sentence(_("The file contains: %(names)s."), names=", ".join(arrays) or "–")
    report.add(*(array_missing(name, contents) for name in wanted if name not in arrays))
    return {name: arrays[name] for name in wanted if name in arrays}


def npz_shapes(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return the shape and type of each array that a reader uses, reading only the header.

    Raises:
        DataError: The file is not a valid npz file, or is too large.
    """
    shape_of = {}
    with _sound_npz(path), zipfile.ZipFile(path) as archive:
        for name in ARRAYS:
            if f"{name}.npy" not in archive.namelist():
                continue
            size = archive.getinfo(f"{name}.npy").file_size
            with archive.open(f"{name}.npy") as file:
                read = npy.read_array_header_2_0 if npy.read_magic(file) >= (2, 0) else npy.read_array_header_1_0
                shape, _fortran, dtype = read(file)
                if not dtype.hasobject and file.tell() + math.prod(shape) * dtype.itemsize != size:
                    raise ValueError(f"{name} does not match its header")
            limits.check_numbers(*shape, max(1, dtype.itemsize // 8))
            shape_of[name] = (shape, dtype)
    return shape_of


def _read_array(path: Path, axes: int, progress: Progress) -> npt.NDArray[np.uint8]:
    """Read an array: a magic number (zeros, type, number of axes), then the length of each axis, then the values."""
    with open_content(path) as content:
        magic = content.stream.read(4)
        if magic != _UNSIGNED_BYTES + bytes([axes]):
            problem = Sentence(
                _("The file starts with %(found)s instead of %(wanted)s."),
                found=magic.hex() or "–",
                wanted=f"{_UNSIGNED_BYTES.hex()}{axes:02x}",
            )
            remedy = Sentence(_("Use an idx file of unsigned bytes with %(axes)d axes."), axes=axes)
            raise DataError(problem, remedy, file=path)
        lengths = content.stream.read(4 * axes)
        shape = tuple(np.frombuffer(lengths, ">u4").tolist()) if len(lengths) == 4 * axes else ()
        limits.check_numbers(*shape)
        expected, values = math.prod(shape) if shape else 0, bytearray()
        while len(values) <= expected and (chunk := content.stream.read(_CHUNK)):
            values += chunk
            progress(content.position(), content.size)
    if not shape or len(values) != expected:
        text = _("The file should contain %(expected)s values, but contains %(found)s.")
        count = f"> {expected:,}" if len(values) > expected else f"{len(values):,}"
        problem = Sentence(text, expected=f"{expected:,}", found=count)
        raise DataError(problem, _("The file is cut off or damaged. Download or export it again."), file=path)
    if not expected:
        raise DataError(_("The file contains no records."), _("Add records."), file=path)
    return np.frombuffer(values, np.uint8).reshape(shape)


def _sound_mat(path: Path) -> AbstractContextManager[None]:
    unsound = scipy.io.matlab.MatReadError
    return sound(
        path, _("The file is not a valid MATLAB file (%(error)s)."), _("Download or export the file again."), unsound
    )


def _sound_npz(path: Path) -> AbstractContextManager[None]:
    remedy = _("Save the arrays with numpy.savez, as plain numbers and texts.")
    return sound(path, _("The file is not a valid npz file (%(error)s)."), remedy)
