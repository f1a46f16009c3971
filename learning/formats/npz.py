"""Arrays saved by NumPy: ``x``, and where there are any, ``y`` (class numbers) and ``holder`` (pseudonyms)."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.arrays import Array, array_missing
from learning.formats.files import sound
from learning.formats.report import Report

ARRAYS = ("x", "y", "holder")


def npz_arrays(path: Path, wanted: Sequence[str], report: Report) -> dict[str, Array]:
    """The wanted arrays of an npz file. Arrays of Python objects are refused, as they would need pickle.

    Raises:
        DataError: the file is no sound npz file, or holds more than is read.
    """
    shapes(path)
    with _sound(path), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in ARRAYS if name in archive}
    contents = Sentence(_("It holds: %(names)s."), names=", ".join(arrays) or "–")
    report.add(*(array_missing(name, contents) for name in wanted if name not in arrays))
    return {name: arrays[name] for name in wanted if name in arrays}


def shapes(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of each array that a reader looks for, by its header alone.

    Raises:
        DataError: the file is no sound npz file, or holds more than is read.
    """
    shape_of = {}
    with _sound(path), zipfile.ZipFile(path) as archive:
        for name in ARRAYS:
            if f"{name}.npy" not in archive.namelist():
                continue
            size = archive.getinfo(f"{name}.npy").file_size
            with archive.open(f"{name}.npy") as file:
                read = npy.read_array_header_2_0 if npy.read_magic(file) >= (2, 0) else npy.read_array_header_1_0
                shape, _fortran, dtype = read(file)
                if not dtype.hasobject and file.tell() + prod(shape) * dtype.itemsize != size:
                    raise ValueError(f"{name} does not hold what it announces")
            limits.check_numbers(*shape, max(1, dtype.itemsize // 8))
            shape_of[name] = (shape, dtype)
    return shape_of


def _sound(path: Path) -> AbstractContextManager[None]:
    remedy = _("Save it with numpy.savez, as plain numbers and texts.")
    return sound(path, _("The file is no sound npz file (%(error)s)."), remedy)
