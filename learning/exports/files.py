"""Published models as files for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from learning.exports.encoding import encoded
from learning.exports.graph import DOUBLE, STRING, Graph
from learning.formats import Schema
from learning.formats.documents import schema_to_json
from learning.learners import Model


def onnx_file(model: Model, schema: Schema, card: Mapping[str, Any]) -> bytes:
    """A model as ONNX, from the values of a row to the name of a class.

    Its inputs are what `encoding.encoded` says. Its outputs are ``label``, the name of the likeliest class, and
    ``probabilities``, double `(rows, classes)`. A row that the schema does not allow has the label "" and NaN.

    Args:
        model: For records of the schema.
        schema: Of the values of a row.
        card: Stored in the file, beside the schema.
    """
    graph = Graph()
    records, allowed = encoded(graph, schema)
    probabilities = model.to_graph(graph, records)
    likeliest = graph.node("ArgMax", probabilities, axis=1, keepdims=0)
    label = graph.node("Gather", graph.constant(np.array(schema.classes)), likeliest)
    label = graph.node("Where", allowed, label, graph.constant(np.array("")))
    column = graph.node("Unsqueeze", allowed, graph.constant(np.array([1])))
    probabilities = graph.node("Where", column, probabilities, graph.constant(np.nan))
    documents = {"classes": list(schema.classes), "schema": schema_to_json(schema), "card": card}
    return graph.to_bytes(
        {"label": (label, STRING, ()), "probabilities": (probabilities, DOUBLE, (len(schema.classes),))},
        {name: json.dumps(document, ensure_ascii=False) for name, document in documents.items()},
    )
