"""Reader for any file described by a schema; the format is determined by the file's name or first bytes.

`preview` shows the first encoded records, in words and pictures, to the person who imports a file.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from common.progress import Progress, silent
from common.sentences import gettext_noop as _
from learning.formats import cells
from learning.formats.arrays import Array, checked_rows, idx_arrays, mat_arrays, npz_arrays
from learning.formats.cells import parquet_batches
from learning.formats.columns import FeatureColumn, NumericColumn, TextColumn, shown, texts
from learning.formats.files import kind_of, open_content
from learning.formats.image_files import image_arrays
from learning.formats.records import Batch, Keeper, RecordEncoder, RowLists, wanted_names
from learning.formats.rows import DataError, Report, Rows, as_numbers
from learning.formats.schema import ImageSchema, Schema
from learning.formats.table import table_batches

_IDX = b"\x00\x00"
_SUFFIXES = {
    ".npz": "npz",
    ".mat": "MATLAB",
    ".parquet": "Parquet",
    ".dta": "Stata",
    ".sav": "SPSS",
    ".zsav": "SPSS",
    ".por": "SPSS portable",
    ".sas7bdat": "SAS",
    ".xpt": "SAS transport",
    ".arff": "ARFF",
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "Excel"),
}
_WITH_HOLDERS = ("npz", "images")
_NO_HOLDERS = _(
    "Save the images as npz with the array “holder”, or use --holder-per-row if each belongs to a different person."
)

FIRST = 5


def format_of(path: Path) -> str:
    """Return a file's format, judging by its content or else its name; “table” or “idx” by default.

    Raises:
        DataError: The file cannot be opened, or its format is not supported.
    """
    kind = kind_of(path) or _SUFFIXES.get(path.suffix.lower(), "")
    if kind:
        return kind
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
    """Return all records of a CSV, Parquet, npz, mat or idx file, with labels and holders if requested.

    Args:
        label_file: File with the labels of an idx file, or with the class and holder of each image in a zip file.
        member: File to read within a zip file.
        holders: Whether holders are read; must be False for mat and idx files, which cannot store holders. Use
            ``Rows.one_holder_per_row`` if each record has its own holder.
        report: Collects all errors; the records without errors are then returned.

    Raises:
        DataError: Contains all errors, if there is no ``report``.
    """
    faults, kept = Report() if report is None else report, RowLists()
    read_into(
        kept,
        path,
        schema,
        label_file=label_file,
        member=member,
        labels=labels,
        holders=holders,
        progress=progress,
        report=faults,
    )
    if report is None:
        faults.raise_faults()
    return kept.rows(no_rows(schema), labels=labels, holders=holders)


def no_rows(schema: Schema) -> Array:
    return np.empty((0, *schema.shape), schema.dtype)


def read_into(
    keeper: Keeper,
    path: Path,
    schema: Schema,
    *,
    label_file: Path | None,
    member: str | None,
    labels: bool,
    holders: bool,
    progress: Progress | None,
    report: Report,
) -> None:
    """Read records like `read_file`, pass them to a keeper, and add errors to the report."""
    followed, own = progress or silent, Report()
    with own.noting():
        kind = "table" if member else format_of(path)
        if isinstance(schema, ImageSchema) or kind == "npz":
            if holders and kind not in _WITH_HOLDERS:
                own.add(
                    DataError(_("This format cannot store which person a record belongs to."), _NO_HOLDERS, file=path)
                )
            if labels and kind == "idx" and label_file is None:
                problem = _("An idx file of images contains no labels.")
                own.add(DataError(problem, _("Add the label file."), file=path))
            wanted = ["x", *(["y"] if labels else []), *(["holder"] if holders and kind in _WITH_HOLDERS else [])]
            arrays = _arrays(path, kind, schema, wanted, label_file if labels else None, own, followed)
            rows = checked_rows(schema, own, arrays)
            own.balance.check()
            if rows is not None:
                keeper.add(rows.x, rows.y, rows.holders)
        elif kind in ("MATLAB", "idx", "images"):
            raise DataError(
                _("The file contains images, but the schema declares a table."), _("Change the file or the schema.")
            )
        else:
            encoder = RecordEncoder(schema, own, keeper, labels=labels, holders=holders)
            with own.noting():
                for columns, numbers in _batches(path, kind, encoder, member, followed):
                    encoder.add(columns, numbers)
                own.balance.check()
            encoder.end()
    report.take(own, path)


def preview(schema: Schema, rows: Rows) -> list[dict[str, Any]]:
    """Return the first records, each as ``cells`` by column or as an ``image``.

    ``holder`` and ``class`` (or another outcome) are empty if the records have none.

    >>> from learning.formats.schema import TabularSchema
    >>> table = TabularSchema((NumericColumn("age", 0, 100),), ("no", "yes"))
    >>> preview(table, Rows(np.array([[0.5]], np.float32), np.array([1])))
    [{'class': 'yes', 'holder': '', 'cells': [['age', '0.5']]}]
    """
    pictures = []
    for place, record in enumerate(as_numbers(rows.x[:FIRST])):
        picture: dict[str, Any] = {
            "class": "" if rows.y is None else schema.outcome.written(int(rows.y[place])),
            "holder": "" if rows.holders is None else rows.holders[place],
        }
        if isinstance(schema, ImageSchema):
            picture["image"] = _picture(record)
        else:
            picture["cells"] = _values(schema.features, record)
        pictures.append(picture)
    return pictures


def _arrays(
    path: Path,
    kind: str,
    schema: Schema,
    wanted: list[str],
    label_file: Path | None,
    report: Report,
    progress: Progress,
) -> dict[str, Array]:
    """Return the requested arrays that a file contains."""
    match kind:
        case "npz":
            arrays = npz_arrays(path, wanted, report)
        case "MATLAB":
            arrays = mat_arrays(path, wanted, len(schema.classes), report)
        case "idx":
            arrays = idx_arrays(path, label_file, schema, report, progress)
        case "images" if isinstance(schema, ImageSchema):
            return image_arrays(path, label_file, schema, wanted, report, progress)
        case _:
            problem = _("The file is not a zip file of images, npz, mat or idx.")
            raise DataError(problem, _("Save the images in one of these formats."))
    progress(path.stat().st_size, path.stat().st_size)
    return arrays


def _batches(path: Path, kind: str, encoder: RecordEncoder, member: str | None, progress: Progress) -> Iterator[Batch]:
    names = wanted_names(encoder.schema, labels=encoder.labels, holders=encoder.holders)
    if kind == "Parquet":
        return parquet_batches(path, encoder.schema, names, encoder.report, progress)
    if kind in cells.KINDS:
        return cells.record_batches(path, kind, encoder.schema, names, encoder.report, progress)
    return table_batches(path, member, encoder.schema, names, encoder.report, progress)


def _values(columns: tuple[FeatureColumn, ...], record: np.ndarray) -> list[list[str]]:
    values, start = [], 0
    for column in columns:
        if isinstance(column, TextColumn):
            values.append([column.name, shown(texts(record[None])[0])])
            continue
        part = record[start : start + len(column.features)]
        start += len(column.features)
        if isinstance(column, NumericColumn):
            text = "–" if len(part) > 1 and part[1] else f"{part[0]:.4g}"
        else:
            text = column.features[int(part.argmax())].removeprefix(f"{column.name} = ") if part.any() else "–"
        values.append([column.name, text])
    return values


def _picture(record: np.ndarray) -> str:
    """Return a PNG of an image as a data URL; unless it has three colour channels, only the first channel is shown."""
    pixels = np.round(record * 255).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[2] != 3:
        pixels = pixels[:, :, 0]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
