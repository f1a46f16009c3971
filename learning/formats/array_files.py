"""Files of arrays: idx, MATLAB and npz.

*idx* is the format of MNIST (LeCun, Cortes, Burges), plain or gzip: images in one file, labels in another.

*MATLAB*: cropped house numbers as SVHN publishes them (Netzer et al. 2011), in ``X`` and ``y``.

*npz*: arrays saved by NumPy: ``x``, and optionally ``y`` (class numbers) and ``holder`` (pseudonyms).
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy
from numpy.lib import format as npy

from common.progress import Progress, silent
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.arrays import Array, array_missing, unknown_classes
from learning.formats.files import open_content, sound
from learning.formats.report import Report
from learning.formats.rows import DataError
from learning.formats.schema import Schema

_UNSIGNED_BYTES = b"\x00\x00\x08"
_CHUNK = 1 << 22

_MAT_ARRAYS = {"x": "X", "y": "y"}
NO_DIGITS = _("Choose a file of cropped digits.")

ARRAYS = ("x", "y", "holder")


def idx_arrays(
    images: Path, labels: Path | None, schema: Schema, report: Report, progress: Progress
) -> dict[str, Array]:
    """Pixels ``x`` and, if there is a file of labels, ``y``; ``progress`` counts bytes. The format has no holders.

    The report has the faults of both files, each with its own.
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
        arrays.pop("y", None)  # its faults are reported, and the images still counted
    return arrays


def idx_shape(path: Path) -> tuple[int, ...]:
    """Lengths of the axes that an idx file of bytes announces; empty for any other file."""
    with open_content(path) as content:
        magic = content.stream.read(4)
        axes = magic[3] if magic[:3] == _UNSIGNED_BYTES and len(magic) == 4 else 0
        lengths = content.stream.read(4 * axes)
    return tuple(np.frombuffer(lengths, ">u4").tolist()) if axes and len(lengths) == 4 * axes else ()


def mat_arrays(path: Path, wanted: Sequence[str], classes: int, report: Report) -> dict[str, Array]:
    """Images ``x`` of ``X`` (height, width, channels, n) with labels of ``y`` (n, 1), numbered 1 to ``classes``.

    The last number means class 0: SVHN writes the digit 0 as 10. The format has no holders.

    Raises:
        DataError: the file is not a valid MATLAB file, or is larger than the reader accepts.
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
    """Shape of each array of a MATLAB file, from its header only.

    Raises:
        DataError: the file is not a valid MATLAB file, or is larger than the reader accepts.
    """
    with _sound_mat(path):
        shape_of = {name: tuple(shape) for name, shape, _kind in scipy.io.whosmat(path)}
    for name in _MAT_ARRAYS.values():
        limits.check_numbers(*shape_of.get(name, ()))
    return shape_of


def npz_arrays(path: Path, wanted: Sequence[str], report: Report) -> dict[str, Array]:
    """The wanted arrays of an npz file. Arrays of Python objects are refused, because they would need pickle.

    Raises:
        DataError: the file is not a valid npz file, or is larger than the reader accepts.
    """
    npz_shapes(path)
    with _sound_npz(path), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in ARRAYS if name in archive}
    contents = Sentence(_("It contains: %(names)s."), names=", ".join(arrays) or "–")
    report.add(*(array_missing(name, contents) for name in wanted if name not in arrays))
    return {name: arrays[name] for name in wanted if name in arrays}


def npz_shapes(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of each array that a reader looks for, from its header only.

    Raises:
        DataError: the file is not a valid npz file, or is larger than the reader accepts.
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
                    raise ValueError(f"{name} does not hold what it announces")
            limits.check_numbers(*shape, max(1, dtype.itemsize // 8))
            shape_of[name] = (shape, dtype)
    return shape_of


def _read_array(path: Path, axes: int, progress: Progress) -> npt.NDArray[np.uint8]:
    """Magic number (zeros, type, number of axes), the length of each axis, then the values."""
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
        raise DataError(problem, _("It is cut off or damaged: download or export it again."), file=path)
    if not expected:
        raise DataError(_("The file contains no records."), _("Add records."), file=path)
    return np.frombuffer(values, np.uint8).reshape(shape)


def _sound_mat(path: Path) -> AbstractContextManager[None]:
    unsound = scipy.io.matlab.MatReadError
    return sound(
        path, _("The file is not a valid MATLAB file (%(error)s)."), _("Download or export it again."), unsound
    )


def _sound_npz(path: Path) -> AbstractContextManager[None]:
    remedy = _("Save it with numpy.savez, as plain numbers and texts.")
    return sound(path, _("The file is not a valid npz file (%(error)s)."), remedy)
