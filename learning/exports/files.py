"""Published models as ONNX files that apply the model to a row's values, encoded bit for bit as by the schema.

A table has one input per feature column: numbers as double (NaN if unknown), categories and codes as strings. Images
are a single input of pixels between 0 and 1. A graph cannot raise errors, so it marks values that the schema forbids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from learning.calibration import rule_of_card
from learning.encoders.files import MOST_CHAINED, EncoderFile, TextInput
from learning.encoders.graphs import image_vectors, text_vectors, token_inputs
from learning.exports.graph import DOUBLE, FLOAT, STRING, UINT8, Graph
from learning.formats import ImageSchema, Schema, TabularSchema
from learning.formats.columns import SEVERAL, CategoricalColumn, CodeColumn, NumericColumn
from learning.formats.documents import schema_to_json
from learning.formats.values import key
from learning.learners import Model

_NONE, _REFUSED = -1, -2
_CELLS = (
    "Write texts in the site's spelling: without spaces around them, in Unicode's normal form C. Categories and codes "
    "are then matched letter by letter; “Yes” is not “yes”."
)
_BLANK = "[ \\t]*"
IMAGE, TEXT, VECTORS = "image", "text", "vectors"
"""Names of the inputs for images, texts, and vectors from an encoder that the file does not contain."""


def onnx_file(model: Model, schema: Schema, card: Mapping[str, Any], encoder: EncoderFile | None = None) -> bytes:
    """Return a model as an ONNX file that maps the values of a row to the name of a class.

    The file's inputs are described in `encoded`. Its outputs are ``label``, the name of the most likely class or of the
    class selected by the card's threshold or balance, and ``probabilities``, double `(rows, classes)`. For a row that
    the schema does not allow, these are "" and NaN. For outcomes other than classes, the output is ``values``, double
    `(rows, columns)`, with the names of the columns in the metadata.

    Args:
        schema: Schema of the values of a row.
        card: Stored in the file, with the schema.
        encoder: Encoder whose vectors are the model's input. The file contains the encoder and has its inputs; if the
            encoder is too large, it is left out and the vectors are the input. A tokenizer is stored with the schema.
    """
    graph = Graph()
    records, allowed = encoded(graph, schema, encoder, model.shape)
    text = {} if encoder is None or not encoder.tokenizer else {"tokenizer": encoder.tokenizer}
    probabilities = model.to_graph(graph, records)
    column = graph.node("Unsqueeze", allowed, graph.constant(np.array([1])))
    if schema.target is not None:
        values = graph.node("Where", column, probabilities, graph.constant(np.nan))
        columns = schema.target.columns
        return graph.to_bytes(
            {"values": (values, DOUBLE, (len(columns),))},
            _documents(columns=list(columns), schema=schema_to_json(schema), card=card, **_codes_of(schema)) | text,
        )
    rule = rule_of_card(card, schema.classes)
    if rule is not None:
        chosen = rule.to_graph(graph, probabilities, len(schema.classes))
    else:
        chosen = graph.node("ArgMax", probabilities, axis=1, keepdims=0)
    label = graph.node("Gather", graph.constant(np.array(schema.classes)), chosen)
    label = graph.node("Where", allowed, label, graph.constant(np.array("")))
    probabilities = graph.node("Where", column, probabilities, graph.constant(np.nan))
    return graph.to_bytes(
        {"label": (label, STRING, ()), "probabilities": (probabilities, DOUBLE, (len(schema.classes),))},
        _documents(classes=list(schema.classes), schema=schema_to_json(schema), card=card, **_codes_of(schema)) | text,
    )


def encoded(
    graph: Graph, schema: Schema, encoder: EncoderFile | None = None, shape: tuple[int, ...] = ()
) -> tuple[str, str]:
    """Add inputs for the records of a schema, and return the encoded records.

    Texts are a single input: UTF-8 bytes padded with 0 or, if there is an encoder, tokens in pieces.

    Args:
        graph: Graph to which the inputs are added.
        encoder: Encoder whose vectors are requested, if any.

    Returns:
        The encoded records, float `(rows, *shape)` or the bytes of texts, and whether the schema allows each record,
        bool `(rows,)`.
    """
    if encoder is not None and len(encoder.content) > MOST_CHAINED:
        return _all_allowed(graph, graph.input(VECTORS, FLOAT, shape))
    if encoder is not None and isinstance(encoder.takes, TextInput):
        ids, mask = token_inputs(graph)
        return text_vectors(graph, encoder, ids, mask), _all_allowed(graph, ids)[1]
    if isinstance(schema, ImageSchema):
        pixels, allowed = _image(graph, schema)
        return (pixels if encoder is None else image_vectors(graph, encoder, pixels, schema.shape)), allowed
    if schema.text is not None:
        return _all_allowed(graph, graph.input(TEXT, UINT8, ("bytes",)))
    parts, each_allowed = zip(*_columns(graph, schema), strict=True)
    all_allowed = each_allowed[0]
    for each in each_allowed[1:]:
        all_allowed = graph.node("And", all_allowed, each)
    return graph.node("Concat", *parts, axis=1), all_allowed


def _documents(**documents: Any) -> dict[str, str]:
    """Return the documents as JSON strings, for a file's metadata."""
    return {
        name: json.dumps(document, ensure_ascii=False) for name, document in (documents | {"cells": _CELLS}).items()
    }


def _codes_of(schema: Schema) -> dict[str, Any]:
    """Return the code systems of a table's columns, so that programs can explain invalid codes."""
    columns = schema.features if isinstance(schema, TabularSchema) else ()
    systems = {column.type: column.codes for column in columns if isinstance(column, CodeColumn)}
    codes = {
        name: {
            **{"name": system.name, "code": system.code, "examples": system.examples, "others": system.has_others},
            "groups": [pattern for _name, pattern in system.groups],
        }
        for name, system in systems.items()
    }
    return {"codes": codes} if codes else {}


def _all_allowed(graph: Graph, records: str) -> tuple[str, str]:
    rows = graph.node("Shape", records, start=0, end=1)
    return records, graph.node("Expand", graph.constant(np.array(True)), rows)


def _image(graph: Graph, schema: ImageSchema) -> tuple[str, str]:
    pixels = graph.input(IMAGE, FLOAT, schema.shape)
    flat = graph.node("Flatten", pixels, axis=1)
    zero, one = graph.constant(np.float32(0)), graph.constant(np.float32(1))
    inside = graph.node("And", graph.node("GreaterOrEqual", flat, zero), graph.node("LessOrEqual", flat, one))
    axis = graph.constant(np.array([1]))
    least = graph.node("ReduceMin", graph.cast(inside, FLOAT), axis, keepdims=0)
    return pixels, graph.node("Greater", least, zero)


def _columns(graph: Graph, schema: TabularSchema) -> Iterator[tuple[str, str]]:
    """Yield the features `(rows, features)` of each column, and whether each of its values is allowed."""
    for column in schema.features:
        match column:
            case NumericColumn():
                yield _numeric(graph, column)
            case CategoricalColumn():
                yield _categorical(graph, column)
            case CodeColumn():
                yield _codes(graph, column)


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
    places = {each: place for place, value in enumerate(column.values) for each in _spellings(value)}
    places |= {each: _NONE for marker in column.missing for each in _spellings(marker)}
    position = _positions(graph, value, places, len(column.values) if column.other else _REFUSED)
    return _one_hot(graph, position, len(column.features)), _allowed(graph, position)


def _spellings(value: str) -> list[str]:
    """Return the accepted spellings of a declared value. Spaces around them are not accepted: a graph cannot trim.

    >>> _spellings("1"), _spellings("TRUE"), _spellings("no")
    (['1', '1.0'], ['TRUE', 'true', 'True'], ['no'])
    """
    name = key(value)
    others = [name, name.title(), name.upper()] if name in ("true", "false") else [name]
    if name.removeprefix("-").isdecimal() and name.isascii():
        others.append(f"{name}.0")
    return list(dict.fromkeys([value, *others]))


def _codes(graph: Graph, column: CodeColumn) -> tuple[str, str]:
    value = graph.input(column.name, STRING)
    if column.several:
        return _several_codes(graph, column, value)
    within, allowed = _groups(graph, column, value)
    if column.missing:
        marked = _positions(graph, value, dict.fromkeys(column.missing, 1), 0)
        is_marked = graph.node("Greater", marked, graph.constant(np.int64(0)))
        within = [graph.node("And", each, graph.node("Not", is_marked)) for each in within]
        allowed = graph.node("Or", allowed, is_marked)
    return _side_by_side(graph, [graph.cast(each, FLOAT) for each in within]), allowed


def _several_codes(graph: Graph, column: CodeColumn, value: str) -> tuple[str, str]:
    """Encode codes separated by semicolons; each must be a valid code or a marker for unknown values."""
    split = graph.node("StringConcat", value, graph.constant(np.array(SEVERAL, object)))
    parts = graph.node("StringSplit", split, outputs=2, delimiter=SEVERAL)  # at least one part for every row
    within, allowed = _groups(graph, column, parts, _BLANK)
    blank = graph.node("RegexFullMatch", parts, pattern=_BLANK)
    markers = "|".join(map(re.escape, column.missing))
    unknown = graph.node("RegexFullMatch", parts, pattern=f"{_BLANK}(?:{markers}){_BLANK}")  # or blank
    axis = graph.constant(np.array([1]))
    each_allowed = graph.cast(graph.node("Or", allowed, graph.node("Or", blank, unknown)), FLOAT)
    all_allowed = graph.node("ReduceMin", each_allowed, axis, keepdims=0)
    half = graph.constant(np.float32(0.5))
    sound = graph.node("Greater", all_allowed, half)
    if "" not in column.missing:
        filled = graph.node("ReduceMax", graph.cast(graph.node("Not", blank), FLOAT), axis, keepdims=0)
        sound = graph.node("And", sound, graph.node("Greater", filled, half))
    set_ = [graph.node("ReduceMax", graph.cast(each, FLOAT), axis, keepdims=0) for each in within]
    return _side_by_side(graph, set_), sound


def _groups(graph: Graph, column: CodeColumn, codes: str, around: str = "") -> tuple[list[str], str]:
    """Return whether each string of an array is a code in each group, and whether it is a code in any group."""
    system = column.codes
    allowed = graph.node("RegexFullMatch", codes, pattern=f"{around}(?:{system.code}){around}")
    within = [
        graph.node("RegexFullMatch", codes, pattern=f"{around}(?:{pattern}){around}")
        for _name, pattern in system.groups
    ]
    any_of = within[0]
    for each in within[1:]:
        any_of = graph.node("Or", any_of, each)
    if system.has_others:
        within.append(graph.node("And", allowed, graph.node("Not", any_of)))
    else:
        allowed = graph.node("And", allowed, any_of)
    return within, allowed


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
