"""Cropped house numbers as SVHN publishes them (Netzer et al. 2011): a MATLAB file with ``X`` and ``y``."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from training.formats.arrays import checked_features, checked_labels
from training.formats.files import cannot_open
from training.formats.rows import DataError, Progress, Rows
from training.formats.schema import ImageSchema


def read_mat(path: Path, schema: ImageSchema, *, labels: bool = True, progress: Progress | None = None) -> Rows:
    """Read images ``X`` (height, width, channels, n) with labels ``y`` (n, 1), numbered 1 to len(classes).

    The last number means class 0: SVHN writes the digit 0 as 10. The format has no holders.

    Raises:
        DataError: the file cannot be read or does not match the schema.
    """
    try:
        content = loadmat(path, variable_names=("X", "y"))
    except OSError as error:
        raise cannot_open(path, error) from error
    except (ValueError, TypeError, NotImplementedError, EOFError, MatReadError, zlib.error) as error:
        raise DataError(f"The file is no sound MATLAB file ({error}).", "Get it again.", file=path) from error
    if progress:
        progress(path.stat().st_size, path.stat().st_size)
    for name in ("X", "y") if labels else ("X",):
        if name not in content:
            raise DataError("The array is missing.", "Choose a file of cropped digits.", file=path, column=name)
    try:
        x = checked_features(np.moveaxis(content["X"], -1, 0), schema)
        if not labels:
            return Rows(x)
        numbers = content["y"].ravel()
        zeros = numbers == len(schema.classes)
        return Rows(x, checked_labels(np.where(zeros, 0, numbers), schema.classes, len(x)))
    except DataError as error:
        raise error.at(file=path) from None
