"""Published models as files for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from learning.encoders.files import EncoderFile
from learning.exports.encoding import encoded
from learning.exports.graph import DOUBLE, STRING, Graph
from learning.formats import Schema
from learning.formats.documents import schema_to_json
from learning.learners import Model
from learning.thresholds import Threshold


def onnx_file(model: Model, schema: Schema, card: Mapping[str, Any], encoder: EncoderFile | None = None) -> bytes:
    """A model as ONNX, from the values of a row to the name of a class.

    Its inputs are what `encoding.encoded` says. Its outputs are ``label``, the name of the likeliest class, or of
    that which the card's threshold leads to, and ``probabilities``, double `(rows, classes)`. A row that the schema
    does not allow has the label "" and NaN. Of another outcome it has the output ``values``, double `(rows, columns)`,
    whose columns are named beside it.

    Args:
        model: For records of the schema.
        schema: Of the values of a row.
        card: Stored in the file, beside the schema.
        encoder: Whose vectors the model takes. The file contains it, and takes what it takes; without a large one it
            takes the vectors. A tokenizer is stored beside the schema.
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
            _documents(columns=list(columns), schema=schema_to_json(schema), card=card) | text,
        )
    choice = card.get("threshold")
    if choice:
        threshold = Threshold(schema.classes.index(choice["class"]), choice["least"])
        likeliest = threshold.to_graph(graph, probabilities, len(schema.classes))
    else:
        likeliest = graph.node("ArgMax", probabilities, axis=1, keepdims=0)
    label = graph.node("Gather", graph.constant(np.array(schema.classes)), likeliest)
    label = graph.node("Where", allowed, label, graph.constant(np.array("")))
    probabilities = graph.node("Where", column, probabilities, graph.constant(np.nan))
    return graph.to_bytes(
        {"label": (label, STRING, ()), "probabilities": (probabilities, DOUBLE, (len(schema.classes),))},
        _documents(classes=list(schema.classes), schema=schema_to_json(schema), card=card) | text,
    )


def _documents(**documents: Any) -> dict[str, str]:
    """Documents that are stored in a file, as texts."""
    return {name: json.dumps(document, ensure_ascii=False) for name, document in documents.items()}
