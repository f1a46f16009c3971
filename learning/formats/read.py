"""Reader for any file that a schema describes, by the format of its name or its first bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.files import kind_of, open_content
from learning.formats.idx import read_idx
from learning.formats.mat import read_mat
from learning.formats.npz import read_npz
from learning.formats.parquet import read_parquet
from learning.formats.report import Report
from learning.formats.rows import DataError, Progress, Rows
from learning.formats.schema import Schema, TabularSchema
from learning.formats.table import read_table

_IDX = b"\x00\x00"
_READ = (".npz", ".mat", ".parquet")
_TEXT = (".csv", ".tsv", ".txt", ".data")
_NO_HOLDERS = _("Save the images as npz with holders, or give --holder-per-row if each belongs to a person of its own.")


def format_of(path: Path) -> str:
    """Format in which a file is read: table, npz, mat, parquet or idx.

    Raises:
        DataError: it cannot be opened, or its content is of another kind than its name says.
    """
    suffix, found = path.suffix.lower(), kind_of(path)
    if found and found != suffix and (found not in _READ or suffix in (*_READ, *_TEXT)):
        problem = Sentence(_("The file holds %(found)s, its name says %(suffix)s."), found=found, suffix=suffix or "–")
        remedy = _("Rename it.") if found in _READ else _("Save it as CSV, Parquet, npz, mat or idx.")
        raise DataError(problem, remedy, file=path)
    if found or suffix in _READ:
        return (found or suffix).removeprefix(".")
    with open_content(path) as content:
        return "idx" if content.stream.read(len(_IDX)) == _IDX else "table"


def read_file(
    path: Path,
    schema: Schema,
    *,
    label_file: Path | None = None,
    member: str | None = None,
    labels: bool = True,
    holders: bool = True,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Rows:
    """All records of a CSV, Parquet, npz, mat or idx file, with labels and holders where asked for.

    Args:
        path: The file.
        schema: Of its records.
        label_file: Holds the labels of an idx file.
        member: The file to read within a zip file.
        labels: Whether labels are read.
        holders: Whether holders are read. The formats mat and idx know none: ask without, and give
            ``Rows.one_holder_per_row`` if each record has its own.
        progress: Told of bytes.
        report: Where everything that is wrong goes; then the records without a fault are returned.

    Raises:
        DataError: everything that is wrong, unless there is a ``report``.
    """
    told = Report() if report is None else report
    rows = None
    try:
        rows = _read(path, schema, label_file, member, labels, holders, progress, told)
    except DataError as error:
        told.add(error)
    if report is None:
        told.raise_faults()
    return Rows(np.empty((0, *schema.shape), np.float32)) if rows is None else rows


def _read(
    path: Path,
    schema: Schema,
    label_file: Path | None,
    member: str | None,
    labels: bool,
    holders: bool,
    progress: Progress | None,
    report: Report,
) -> Rows:
    kind = "table" if member else format_of(path)
    told = {"progress": progress, "report": report}
    if kind == "npz":
        return read_npz(path, schema, labels=labels, holders=holders, **told)  # type: ignore[arg-type]
    if isinstance(schema, TabularSchema):
        if kind in ("mat", "idx"):
            problem = _("The file holds images, the schema declares a table.")
            raise DataError(problem, _("Change one of them."), file=path)
        if kind == "parquet":
            return read_parquet(path, schema, labels=labels, holders=holders, **told)  # type: ignore[arg-type]
        return read_table(path, schema, member=member, labels=labels, holders=holders, **told)  # type: ignore[arg-type]
    if holders:
        report.add(DataError(_("The format has no place for holders."), _NO_HOLDERS, file=path))
    if kind == "mat":
        return read_mat(path, schema, labels=labels, **told)  # type: ignore[arg-type]
    if kind != "idx":
        raise DataError(_("The file is neither npz, mat nor idx."), _("Save the images as one of them."), file=path)
    if labels and label_file is None:
        problem = _("An idx file of images holds no labels.")
        report.add(DataError(problem, _("Give the file of labels as well."), file=path))
    return read_idx(path, schema, labels=label_file if labels else None, **told)  # type: ignore[arg-type]
