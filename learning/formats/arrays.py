"""Arrays that other programs saved (npz, mat), checked against a schema. What is wrong goes into a report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.records import pseudonym_faults
from learning.formats.report import Report
from learning.formats.rows import DataError, Rows
from learning.formats.schema import ImageSchema, Schema

Array = npt.NDArray[np.generic]


def checked_rows(
    schema: Schema, report: Report, x: Array, y: Array | None = None, holders: Array | None = None
) -> Rows | None:
    """Records of these arrays, if the report has no fault afterwards; their number is that of ``x``.

    >>> report = Report()
    >>> checked_rows(ImageSchema(1, 2, 1, ("a", "b")), report, np.zeros((1, 3)), np.array([2]))
    >>> [fault.column for fault in report.faults]
    ['x', 'y']
    """
    before = report.count
    features = checked_features(x, schema, report)
    records = x.shape[0] if x.ndim else 0
    labels = None if y is None else checked_labels(y, schema.classes, records, report)
    names = None if holders is None else checked_holders(holders, records, report)
    return Rows(features, labels, names) if features is not None and report.count == before else None


def checked_features(x: Array, schema: Schema, report: Report) -> npt.NDArray[np.float32] | None:
    """Records in the schema's shape; images of whole bytes are scaled from 0…255 to [0, 1].

    >>> checked_features(np.full((1, 1, 2), 255, np.uint8), ImageSchema(1, 2, 1, ("a", "b")), Report()).tolist()
    [[[1.0, 1.0]]]
    """
    if x.dtype.kind not in "fiub":
        holds = Sentence(_("x holds %(type)s."), type=x.dtype)
        report.add(DataError(holds, _("Save it as numbers."), column="x"))
        return None
    if x.shape[1:] != schema.shape or not len(x):
        differs = Sentence(
            _("x has the shape %(found)s, the schema asks for %(wanted)s."),
            found=x.shape,
            wanted=str(("n", *schema.shape)),
        )
        report.add(DataError(differs, _("Save one record per place of the first axis."), column="x"))
        return None
    limits.check_numbers(*x.shape)
    scale = 255 if isinstance(schema, ImageSchema) and x.dtype == np.uint8 else 1
    with np.errstate(over="ignore"):
        numbers = x.astype(np.float32) / np.float32(scale)
    usable, problem = np.isfinite(numbers), _("A value is not finite.")
    if isinstance(schema, ImageSchema):
        usable &= (numbers >= 0) & (numbers <= 1)
        problem = _("A value is not between 0 and 1.")
    wrong = np.flatnonzero(~usable.reshape(len(x), -1).all(axis=1))
    report.add_rows(wrong.tolist(), lambda _place: problem, _("Correct the record."), "x")
    return numbers


def checked_labels(y: Array, classes: Sequence[str], records: int, report: Report) -> npt.NDArray[np.int64] | None:
    """Class numbers, one per record.

    >>> checked_labels(np.array([1, 0]), ("no", "yes"), 2, Report()).tolist()
    [1, 0]
    """
    if y.dtype.kind not in "iu" or y.ndim != 1:
        text = _("y holds %(type)s in the shape %(shape)s; there are %(count)d records.")
        problem = Sentence(text, type=y.dtype, shape=y.shape, count=records)
        report.add(DataError(problem, _("Save one whole class number per record."), column="y"))
        return None
    if len(y) != records:
        text = _("y holds %(type)s in the shape %(shape)s; there are %(count)d records.")
        problem = Sentence(text, type=y.dtype, shape=y.shape, count=records)
        report.add(DataError(problem, _("Save one whole class number per record."), column="y"))
    unknown = np.flatnonzero((y < 0) | (y >= len(classes)))  # type: ignore[operator]
    report.add_rows(
        unknown.tolist(),
        lambda place: Sentence(
            _("The label %(label)s is no class; there are %(count)d, counted from 0."),
            label=y[place],
            count=len(classes),
        ),
        _("Correct the label or the schema."),
        "y",
    )
    return y.astype(np.int64)


def checked_holders(holders: Array, records: int, report: Report) -> list[str] | None:
    """Pseudonyms, one per record.

    >>> checked_holders(np.array(["ada", "ben"]), 2, Report())
    ['ada', 'ben']
    """
    if holders.dtype.kind not in "Uiu" or holders.ndim != 1:
        text = _("holder holds %(type)s in the shape %(shape)s; there are %(count)d records.")
        problem = Sentence(text, type=holders.dtype, shape=holders.shape, count=records)
        report.add(DataError(problem, _("Save one pseudonym per record, as text or whole number."), column="holder"))
        return None
    if len(holders) != records:
        text = _("holder holds %(type)s in the shape %(shape)s; there are %(count)d records.")
        problem = Sentence(text, type=holders.dtype, shape=holders.shape, count=records)
        report.add(DataError(problem, _("Save one pseudonym per record, as text or whole number."), column="holder"))
    names = [str(holder).strip() for holder in holders]
    report.add(*pseudonym_faults(names, "holder"))
    return names
