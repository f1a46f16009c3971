"""Arrays that other programs saved (npz, mat, idx), checked against a schema. Errors go into a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from common.identities import spelling
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.balance import IMAGES, ROWS
from learning.formats.records import pseudonym_faults
from learning.formats.report import Report
from learning.formats.rows import DataError, Rows
from learning.formats.schema import ImageSchema, Schema, TabularSchema
from learning.outcomes import Target

Array = npt.NDArray[np.generic]


def array_missing(name: str, remedy: str) -> DataError:
    """DataError for an array that a file lacks."""
    return DataError(_("The array is missing."), remedy, column=name)


def checked_rows(schema: Schema, report: Report, arrays: Mapping[str, Array]) -> Rows | None:
    """Records of arrays ``x``, ``y`` and ``holder``, if the report has no fault; their number is that of ``x``.

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
    """Records in the schema's shape; images of whole bytes stay bytes, a quarter of the size of numbers.

    >>> checked_features(np.full((1, 1, 2), 255, np.uint8), ImageSchema(1, 2, 1, ("a", "b")), Report()).tolist()
    [[[255, 255]]]
    """
    if isinstance(schema, TabularSchema) and schema.text is not None and x.dtype.kind == "U" and x.ndim == 1:
        limits.check_numbers(len(x), *schema.shape)
        return schema.text.encode(x.tolist())
    if x.dtype.kind not in "fiub":
        holds = Sentence(_("x contains %(type)s."), type=x.dtype)
        report.add(DataError(holds, _("Save it as numbers."), column="x"))
        return None
    if x.shape[1:] != schema.shape or not len(x):
        differs = Sentence(
            _("x has the shape %(found)s, but the schema requires %(wanted)s."),
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
    """Class numbers, one per record.

    >>> checked_labels(np.array([1, 0]), ("no", "yes"), 2, Report()).tolist()
    [1, 0]
    """
    text = _("y contains %(type)s and has the shape %(shape)s, but there are %(count)d records.")
    if not _one_each(y, "iu", "y", records, text, _("Save one class number per record, as a whole number."), report):
        return None
    unknown_classes(y, len(classes), report, "y")
    return y.astype(np.int64)


def checked_targets(y: Array, target: Target, records: int, report: Report) -> npt.NDArray[np.int64] | None:
    """Codes of targets, one per record: y has a column for each part, and may be flat if there is only one.

    >>> from learning.outcomes import Numbers
    >>> checked_targets(np.array([0.5, 1.0]), Numbers(0, 1), 2, Report()).tolist()
    [524288, 1048576]
    """
    parts = y.reshape(len(y), -1) if y.ndim in (1, 2) else y
    if y.dtype.kind not in "fiub" or parts.shape != (records, len(target.parts)):
        problem = Sentence(
            _("y contains %(type)s and has the shape %(shape)s, but there are %(count)d records."),
            type=y.dtype,
            shape=y.shape,
            count=records,
        )
        remedy = Sentence(_("Save numbers with these columns: %(names)s."), names=", ".join(target.parts))
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
    """Report every whole number that is not one of so many classes."""
    report.add_rows(
        np.flatnonzero((y < 0) | (y >= classes)).tolist(),  # type: ignore[operator]
        lambda place: Sentence(
            _("The label %(label)s is not a class; there are %(count)d, counted from 0."), label=y[place], count=classes
        ),
        _("Correct the label or the schema."),
        column,
    )


def checked_holders(holders: Array, records: int, report: Report) -> list[str] | None:
    """Pseudonyms, one per record.

    >>> checked_holders(np.array(["ada", "ben"]), 2, Report())
    ['ada', 'ben']
    """
    text = _("holder contains %(type)s in the shape %(shape)s, but there are %(count)d records.")
    remedy = _("Save one pseudonym per record, as text or whole number.")
    if not _one_each(holders, "Uiuf", "holder", records, text, remedy, report):
        return None
    names = holders.tolist()
    report.add(*pseudonym_faults(names, "holder"))
    return [spelling(name) for name in names]


def _one_each(array: Array, kinds: str, name: str, records: int, problem: str, remedy: str, report: Report) -> bool:
    """Whether an array is a list of such values; the report says so, too, if there is not one per record."""
    listed = array.dtype.kind in kinds and array.ndim == 1
    if not listed or len(array) != records:
        text = Sentence(problem, type=array.dtype, shape=array.shape, count=records)
        report.add(DataError(text, remedy, column=name))
    return listed
