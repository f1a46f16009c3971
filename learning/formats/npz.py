"""Arrays saved by NumPy: ``x``, and where there are any, ``y`` (class numbers) and ``holder`` (pseudonyms)."""

from __future__ import annotations

import zipfile
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.arrays import checked_rows
from learning.formats.files import cannot_open
from learning.formats.report import Report
from learning.formats.rows import DataError, Progress, Rows
from learning.formats.schema import Schema

ARRAYS = ("x", "y", "holder")
_UNSOUND: tuple[type[Exception], ...] = (
    ValueError,
    EOFError,
    TypeError,
    AttributeError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    MemoryError,
)


def read_npz(
    path: Path,
    schema: Schema,
    *,
    labels: bool = True,
    holders: bool = True,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Rows:
    """Read all records of an npz file. Arrays of Python objects are refused, as they would need pickle.

    Raises:
        DataError: everything that is wrong. With ``report`` it goes there instead.
    """
    told, inner = Report() if report is None else report, Report()
    rows = None
    try:
        arrays = _arrays(path)
        if progress:
            progress(path.stat().st_size, path.stat().st_size)
        wanted = ("x", *(("y",) if labels else ()), *(("holder",) if holders else ()))
        held = Sentence(_("It holds: %(names)s."), names=", ".join(arrays) or "–")
        inner.add(*(DataError(_("The array is missing."), held, column=name) for name in wanted if name not in arrays))
        if "x" in arrays:
            parts = [arrays.get(name) if name in wanted else None for name in ("y", "holder")]
            rows = checked_rows(schema, inner, arrays["x"], *parts)
    except DataError as error:
        inner.add(error)
    told.take(inner, path)
    if report is None:
        told.raise_faults()
    return Rows(np.empty((0, *schema.shape), np.float32)) if rows is None or inner.count else rows


def shapes(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of each array that a reader looks for, by its header alone.

    Raises:
        DataError: the file is no sound npz file, or holds more than is read.
    """
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
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
                found[name] = (shape, dtype)
    except OSError as error:
        raise cannot_open(path, error) from error
    except DataError as error:
        raise error.at(file=path) from None
    except _UNSOUND as error:
        raise _unsound(path, error) from error
    return found


def _arrays(path: Path) -> dict[str, np.ndarray]:
    shapes(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in ARRAYS if name in archive}
    except OSError as error:
        raise cannot_open(path, error) from error
    except _UNSOUND as error:
        raise _unsound(path, error) from error


def _unsound(path: Path, error: Exception) -> DataError:
    problem = Sentence(_("The file is no sound npz file (%(error)s)."), error=error)
    return DataError(problem, _("Save it with numpy.savez, as plain numbers and texts."), file=path)
