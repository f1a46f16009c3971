"""Cropped house numbers as SVHN publishes them (Netzer et al. 2011): a MATLAB file with ``X`` and ``y``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import scipy

from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.arrays import Array, array_missing
from learning.formats.files import sound
from learning.formats.report import Report

_ARRAYS = {"x": "X", "y": "y"}
NO_DIGITS = _("Choose a file of cropped digits.")


def mat_arrays(path: Path, wanted: Sequence[str], classes: int, report: Report) -> dict[str, Array]:
    """Images ``x`` of ``X`` (height, width, channels, n) with labels of ``y`` (n, 1), numbered 1 to ``classes``.

    The last number means class 0: SVHN writes the digit 0 as 10. The format has no holders.

    Raises:
        DataError: the file is no sound MATLAB file, or holds more than is read.
    """
    shapes(path)
    with _sound(path):
        content = scipy.io.loadmat(path, variable_names=list(_ARRAYS.values()))
    report.add(*(array_missing(_ARRAYS[name], NO_DIGITS) for name in wanted if _ARRAYS[name] not in content))
    arrays = {name: content[_ARRAYS[name]] for name in wanted if _ARRAYS[name] in content}
    if "x" in arrays:
        arrays["x"] = np.moveaxis(arrays["x"], -1, 0)
    if "y" in arrays:
        y = arrays["y"].ravel()
        arrays["y"] = np.where(y == classes, 0, y) if y.dtype.kind in "iu" else y
    return arrays


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of each array of a MATLAB file, by its header alone.

    Raises:
        DataError: the file is no sound MATLAB file, or holds more than is read.
    """
    with _sound(path):
        shape_of = {name: tuple(shape) for name, shape, _kind in scipy.io.whosmat(path)}
    for name in _ARRAYS.values():
        limits.check_numbers(*shape_of.get(name, ()))
    return shape_of


def _sound(path: Path) -> AbstractContextManager[None]:
    unsound = scipy.io.matlab.MatReadError
    return sound(path, _("The file is no sound MATLAB file (%(error)s)."), _("Get it again."), unsound)
