"""The encoding of records in a graph: what a dataset's schema does to the values of a row, bit for bit.

A table has one input per feature column: numbers as double, NaN where not known; categories and codes as text. Images
are one input of pixels between 0 and 1. What the schema would refuse cannot be refused by a graph: it is marked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from learning.exports.graph import DOUBLE, FLOAT, STRING, Graph
from learning.formats import ImageSchema, Schema, TabularSchema
from learning.formats.columns import CategoricalColumn, Icd9Column, NumericColumn
from learning.formats.icd9 import EXTERNAL_CAUSES, ICD9_GROUPS, SUPPLEMENTARY, icd9_group

_NONE, _REFUSED = -1, -2
_ICD9 = r"[EV]?[0-9]{1,3}(\.[0-9]*)?"
IMAGE = "image"
"""The name of the input of images."""


def encoded(graph: Graph, schema: Schema) -> tuple[str, str]:
    """Inputs for the records of a schema.

    Returns:
        The encoded records, float `(rows, *shape)`, and whether the schema allows each, bool `(rows,)`.
    """
    if isinstance(schema, ImageSchema):
        return _image(graph, schema)
    parts, allowed = zip(*_columns(graph, schema), strict=True)
    all_allowed = allowed[0]
    for each in allowed[1:]:
        all_allowed = graph.node("And", all_allowed, each)
    return graph.node("Concat", *parts, axis=1), all_allowed


def _image(graph: Graph, schema: ImageSchema) -> tuple[str, str]:
    pixels = graph.input(IMAGE, FLOAT, schema.shape)
    flat = graph.node("Flatten", pixels, axis=1)
    zero, one = graph.constant(np.float32(0)), graph.constant(np.float32(1))
    inside = graph.node("And", graph.node("GreaterOrEqual", flat, zero), graph.node("LessOrEqual", flat, one))
    axis = graph.constant(np.array([1]))
    least = graph.node("ReduceMin", graph.cast(inside, FLOAT), axis, keepdims=0)
    return pixels, graph.node("Greater", least, zero)


def _columns(graph: Graph, schema: TabularSchema) -> Iterator[tuple[str, str]]:
    """The features `(rows, features)` of each column, and which of its values are allowed."""
    for column in schema.features:
        match column:
            case NumericColumn():
                yield _numeric(graph, column)
            case CategoricalColumn():
                yield _categorical(graph, column)
            case Icd9Column():
                yield _icd9(graph, column)


def _numeric(graph: Graph, column: NumericColumn) -> tuple[str, str]:
    value = graph.input(column.name, DOUBLE)
    unknown = graph.node("IsNaN", value)
    refused = graph.node("IsInf", value)
    low, width = graph.constant(float(column.minimum)), graph.constant(float(column.maximum - column.minimum))
    clipped = graph.node("Clip", value, low, graph.constant(float(column.maximum)))
    scaled = graph.node("Div", graph.node("Sub", clipped, low), width)
    known = graph.cast(graph.node("Where", unknown, graph.constant(0.0), scaled), FLOAT)
    parts = [known]
    if column.missing:
        parts.append(graph.cast(unknown, FLOAT))
    else:
        refused = graph.node("Or", refused, unknown)
    return _side_by_side(graph, parts), graph.node("Not", refused)


def _categorical(graph: Graph, column: CategoricalColumn) -> tuple[str, str]:
    value = graph.input(column.name, STRING)
    places = {each: place for place, each in enumerate(column.values)} | dict.fromkeys(column.missing, _NONE)
    position = _positions(graph, value, places, len(column.values) if column.other else _REFUSED)
    return _one_hot(graph, position, len(column.features)), _allowed(graph, position)


def _icd9(graph: Graph, column: Icd9Column) -> tuple[str, str]:
    value = graph.input(column.name, STRING)
    # A point at the end, so that every text has something before one.
    parts = graph.node("StringConcat", value, graph.constant(np.array(".")))
    split = graph.node("StringSplit", parts, outputs=2, delimiter=".", maxsplit=1)
    before = graph.node("Gather", split, graph.constant(np.int64(0)), axis=1)
    group = _positions(graph, before, _icd9_places(), _REFUSED)
    is_code = graph.node("RegexFullMatch", value, pattern=_ICD9)
    group = graph.node("Where", is_code, group, graph.constant(np.int64(_REFUSED)))
    if column.missing:
        marked = _positions(graph, value, dict.fromkeys(column.missing, _NONE), 0)
        is_marked = graph.node("Less", marked, graph.constant(np.int64(0)))
        group = graph.node("Where", is_marked, graph.constant(np.int64(_NONE)), group)
    return _one_hot(graph, group, len(ICD9_GROUPS)), _allowed(graph, group)


def _icd9_places() -> dict[str, int]:
    """The group of what stands before the point, for all that may stand there."""
    digits = [str(number).zfill(width) for width in (1, 2, 3) for number in range(10**width)]
    places = {code: ICD9_GROUPS.index(icd9_group(code)) for code in digits if int(code)}
    for prefix, group in (("E", EXTERNAL_CAUSES), ("V", SUPPLEMENTARY)):
        places |= {f"{prefix}{code}": ICD9_GROUPS.index(group) for code in digits}
    return places


def _positions(graph: Graph, texts: str, places: dict[str, int], otherwise: int) -> str:
    return graph.node(
        "LabelEncoder",
        texts,
        domain="ai.onnx.ml",
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=otherwise,
    )


def _one_hot(graph: Graph, positions: str, width: int) -> str:
    row = graph.constant(np.arange(width, dtype=np.int64)[None])
    return graph.cast(graph.node("Equal", _column(graph, positions), row), FLOAT)


def _allowed(graph: Graph, positions: str) -> str:
    return graph.node("Greater", positions, graph.constant(np.int64(_REFUSED)))


def _side_by_side(graph: Graph, parts: list[str]) -> str:
    return graph.node("Concat", *(_column(graph, part) for part in parts), axis=1)


def _column(graph: Graph, values: str) -> str:
    return graph.node("Unsqueeze", values, graph.constant(np.array([1], np.int64)))
