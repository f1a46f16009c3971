"""The first records as they are encoded, in words and pictures, for whoever imports them."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from learning.formats.columns import FeatureColumn, NumericColumn, TextColumn, shown, texts
from learning.formats.rows import Rows, as_numbers
from learning.formats.schema import ImageSchema, Schema

FIRST = 5


def preview(schema: Schema, rows: Rows, count: int = FIRST) -> list[dict[str, Any]]:
    """The first records, each with ``cells`` by column or an ``image``.

    ``holder`` and ``class``, or what else is learned, are empty where they have none.

    >>> from learning.formats.schema import TabularSchema
    >>> table = TabularSchema((NumericColumn("age", 0, 100),), ("no", "yes"))
    >>> preview(table, Rows(np.array([[0.5]], np.float32), np.array([1])))
    [{'class': 'yes', 'holder': '', 'cells': [['age', '0.5']]}]
    """
    pictures = []
    for place, record in enumerate(as_numbers(rows.x[:count])):
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
    """PNG of an image as a data URL; of more or fewer than three colours the first one."""
    pixels = np.round(record * 255).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[2] != 3:
        pixels = pixels[:, :, 0]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
