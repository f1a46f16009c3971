"""Cropped house numbers as SVHN publishes them (Netzer et al. 2011): a MATLAB file with ``X`` and ``y``."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from scipy.io import loadmat, whosmat
from scipy.io.matlab import MatReadError

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.arrays import checked_rows
from learning.formats.files import cannot_open
from learning.formats.report import Report
from learning.formats.rows import DataError, Progress, Rows
from learning.formats.schema import ImageSchema

ARRAYS = ("X", "y")
_UNSOUND: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    NotImplementedError,
    EOFError,
    MatReadError,
    zlib.error,
    MemoryError,
    struct.error,
    KeyError,
    IndexError,
    OverflowError,
)


def read_mat(
    path: Path,
    schema: ImageSchema,
    *,
    labels: bool = True,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Rows:
    """Read images ``X`` (height, width, channels, n) with labels ``y`` (n, 1), numbered 1 to len(classes).

    The last number means class 0: SVHN writes the digit 0 as 10. The format has no holders.

    Raises:
        DataError: everything that is wrong. With ``report`` it goes there instead.
    """
    told, inner = Report() if report is None else report, Report()
    rows = None
    try:
        content = _content(path)
        if progress:
            progress(path.stat().st_size, path.stat().st_size)
        wanted = ARRAYS if labels else ARRAYS[:1]
        remedy = _("Choose a file of cropped digits.")
        inner.add(*(DataError(_("The array is missing."), remedy, column=n) for n in wanted if n not in content))
        if "X" in content:
            numbers = content["y"].ravel() if labels and "y" in content else None
            if numbers is not None and numbers.dtype.kind in "iu":
                numbers = np.where(numbers == len(schema.classes), 0, numbers)
            rows = checked_rows(schema, inner, np.moveaxis(content["X"], -1, 0), numbers)
    except DataError as error:
        inner.add(error)
    told.take(inner, path)
    if report is None:
        told.raise_faults()
    return Rows(np.empty((0, *schema.shape), np.float32)) if rows is None or inner.count else rows


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of each array of a MATLAB file, by its header alone.

    Raises:
        DataError: the file is no sound MATLAB file, or holds more than is read.
    """
    try:
        found = {name: tuple(shape) for name, shape, _kind in whosmat(path)}
    except OSError as error:
        raise _failed(path, error) from error
    except _UNSOUND as error:
        raise _unsound(path, error) from error
    for name in ARRAYS:
        limits.check_numbers(*found.get(name, ()))
    return found


def _content(path: Path) -> dict[str, np.ndarray]:
    shapes(path)
    try:
        return loadmat(path, variable_names=ARRAYS)
    except OSError as error:
        raise _failed(path, error) from error
    except _UNSOUND as error:
        raise _unsound(path, error) from error


def _failed(path: Path, error: OSError) -> DataError:
    """DataError for a file that is missing, or that ends before it should, which SciPy tells alike."""
    return _unsound(path, error) if path.exists() else cannot_open(path, error)


def _unsound(path: Path, error: Exception) -> DataError:
    problem = Sentence(_("The file is no sound MATLAB file (%(error)s)."), error=error)
    return DataError(problem, _("Get it again."), file=path)
