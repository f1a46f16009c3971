"""Rows as people write them, from encoded records."""

from typing import Any

import numpy as np

from learning.formats import ImageSchema, Schema
from learning.formats.codes import CODE_SYSTEMS
from learning.formats.columns import CategoricalColumn, NumericColumn

_SPELLED = {
    "icd9": ("250.83", "E812.1", "V45", *(f"{number}.{number % 7}" for number in range(1, 1000))),
    "icd10": [f"{letter}{number:02}.1" for letter in "ABCDEFGHIJKLMNOPQRSTUVXYZ" for number in range(99)],
    "atc": [f"{letter}10BA02" for letter in "ABCDGHJLMNPRSV"],
    "loinc": ("8480-6", "2345-7", "718-7", "5902-2", "5811-5", "99999-9"),
}
_CODES = {name: {CODE_SYSTEMS[name].place(code): code for code in codes} for name, codes in _SPELLED.items()}


def rows_of(schema: Schema, x: np.ndarray) -> list[Any]:
    """A row for each record; what is not known is written by the first of the declared markers."""
    if isinstance(schema, ImageSchema):
        return list(x)
    rows = []
    for record in x:
        row, start = {}, 0
        for column in schema.features:
            part = record[start : start + len(column.features)]
            start += len(column.features)
            row[column.name] = _value(column, part)
        rows.append(row)
    return rows


def _value(column: Any, part: np.ndarray) -> object:
    if isinstance(column, NumericColumn):
        if len(part) > 1 and part[1]:
            return column.missing[0]
        return float(column.minimum + part[0] * (column.maximum - column.minimum))
    if not part.any():
        return column.missing[0]
    place = int(part.argmax())
    if isinstance(column, CategoricalColumn):
        return column.values[place] if place < len(column.values) else "anything else"
    return _CODES[column.system][place]
