"""Reader for any file that a schema describes, by the format of its name or its first bytes."""

from __future__ import annotations

from pathlib import Path

from training.formats.files import open_content
from training.formats.idx import read_idx
from training.formats.mat import read_mat
from training.formats.npz import read_npz
from training.formats.rows import DataError, Progress, Rows
from training.formats.schema import Schema, TabularSchema
from training.formats.table import read_table

_IDX = b"\x00\x00"
_NO_HOLDERS = "Save the images as npz with holders, or give --holder-per-row if each belongs to a person of its own."


def read_file(
    path: Path,
    schema: Schema,
    *,
    label_file: Path | None = None,
    member: str | None = None,
    labels: bool = True,
    holders: bool = True,
    progress: Progress | None = None,
) -> Rows:
    """All records of an npz, mat, idx or CSV file, with labels and holders where asked for, or a DataError.

    ``member`` is the file to read within a zip file; ``label_file`` holds the labels of an idx file. The formats mat
    and idx know no holders: ask without, and give ``Rows.one_holder_per_row`` if each record has its own.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return read_npz(path, schema, labels=labels, holders=holders, progress=progress)
    if suffix != ".mat":
        with open_content(path, member) as content:
            begins_as_idx = content.stream.read(len(_IDX)) == _IDX
    if isinstance(schema, TabularSchema):
        if suffix == ".mat" or begins_as_idx:
            raise DataError("The file holds images, the schema declares a table.", "Change one of them.", file=path)
        return read_table(path, schema, member=member, labels=labels, holders=holders, progress=progress)
    if holders:
        raise DataError("The format has no place for holders.", _NO_HOLDERS, file=path)
    if suffix == ".mat":
        return read_mat(path, schema, labels=labels, progress=progress)
    if not begins_as_idx:
        raise DataError("The file is neither npz, mat nor idx.", "Save the images as one of them.", file=path)
    if labels and label_file is None:
        raise DataError("An idx file of images holds no labels.", "Give the file of labels as well.", file=path)
    return read_idx(path, schema, labels=label_file if labels else None, progress=progress)
