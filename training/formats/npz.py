"""Arrays saved by NumPy: ``x``, and where there are any, ``y`` (class numbers) and ``holder`` (pseudonyms)."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from training.formats.arrays import checked_features, checked_holders, checked_labels
from training.formats.files import cannot_open
from training.formats.rows import DataError, Progress, Rows
from training.formats.schema import Schema


def read_npz(
    path: Path, schema: Schema, *, labels: bool = True, holders: bool = True, progress: Progress | None = None
) -> Rows:
    """Read all records of an npz file. Arrays of Python objects are refused, as they would need pickle.

    Raises:
        DataError: the file cannot be read or does not match the schema.
    """
    size = path.stat().st_size if path.exists() else 0
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in ("x", "y", "holder") if name in archive}
    except OSError as error:
        raise cannot_open(path, error) from error
    except (ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        remedy = "Save it with numpy.savez, as plain numbers and texts."
        raise DataError(f"The file is no sound npz file ({error}).", remedy, file=path) from error
    if progress:
        progress(size, size)
    try:
        return _rows(arrays, schema, labels=labels, holders=holders)
    except DataError as error:
        raise error.at(file=path) from None


def _rows(arrays: dict[str, np.ndarray], schema: Schema, *, labels: bool, holders: bool) -> Rows:
    for name in ("x", *(("y",) if labels else ()), *(("holder",) if holders else ())):
        if name not in arrays:
            raise DataError("The array is missing.", f"It holds: {', '.join(arrays) or 'none known'}.", column=name)
    x = checked_features(arrays["x"], schema)
    return Rows(
        x,
        checked_labels(arrays["y"], schema.classes, len(x)) if labels else None,
        checked_holders(arrays["holder"], len(x)) if holders else None,
    )
