"""Arrays that other programs saved (npz, mat), checked against a schema."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from training.formats.rows import DataError
from training.formats.schema import ImageSchema, Schema


def checked_features(x: npt.NDArray[np.generic], schema: Schema) -> npt.NDArray[np.float32]:
    """Records in the schema's shape; images of whole bytes are scaled from 0…255 to [0, 1].

    Raises:
        DataError: wrong shape, type or range.

    >>> checked_features(np.full((1, 1, 2), 255, np.uint8), ImageSchema(1, 2, 1, ("a", "b"))).tolist()
    [[[1.0, 1.0]]]
    """
    if x.dtype.kind not in "fiub":
        raise DataError(f"x holds {x.dtype}.", "Save it as numbers.", column="x")
    if x.shape[1:] != schema.shape or not len(x):
        problem = f"x has the shape {x.shape}, the schema asks for {('n', *schema.shape)}."
        raise DataError(problem, "Save one record per place of the first axis.", column="x")
    scale = 255 if isinstance(schema, ImageSchema) and x.dtype == np.uint8 else 1
    numbers = x.astype(np.float32) / np.float32(scale)
    usable = np.isfinite(numbers)
    if isinstance(schema, ImageSchema):
        usable &= (numbers >= 0) & (numbers <= 1)
    if not usable.all():
        row = int(np.argmin(usable.reshape(len(x), -1).all(axis=1))) + 1
        what = "between 0 and 1" if isinstance(schema, ImageSchema) else "finite"
        raise DataError(f"A value is not {what}.", "Correct the record.", row=row, column="x")
    return numbers


def checked_labels(y: npt.NDArray[np.generic], classes: Sequence[str], records: int) -> npt.NDArray[np.int64]:
    """Class numbers, one per record.

    Raises:
        DataError: not one label per record, or not a class number.

    >>> checked_labels(np.array([1, 0]), ("no", "yes"), 2).tolist()
    [1, 0]
    """
    if y.shape != (records,) or y.dtype.kind not in "iu":
        problem = f"y holds {y.dtype} in the shape {y.shape}; there are {records} records."
        raise DataError(problem, "Save one whole class number per record.", column="y")
    unknown = np.flatnonzero((y < 0) | (y >= len(classes)))  # type: ignore[operator]
    if unknown.size:
        problem = f"The label {y[unknown[0]]} is no class; there are {len(classes)}, counted from 0."
        raise DataError(problem, "Correct the label or the schema.", row=int(unknown[0]) + 1, column="y")
    return y.astype(np.int64)


def checked_holders(holders: npt.NDArray[np.generic], records: int) -> list[str]:
    """Pseudonyms, one per record.

    Raises:
        DataError: not one pseudonym per record.

    >>> checked_holders(np.array(["ada", "ben"]), 2)
    ['ada', 'ben']
    """
    if holders.shape != (records,) or holders.dtype.kind not in "Uiu":
        problem = f"holder holds {holders.dtype} in the shape {holders.shape}; there are {records} records."
        raise DataError(problem, "Save one pseudonym per record, as text or whole number.", column="holder")
    names = [str(holder).strip() for holder in holders]
    if "" in names:
        raise DataError("The record has no holder.", "Say whose it is.", row=names.index("") + 1, column="holder")
    return names
