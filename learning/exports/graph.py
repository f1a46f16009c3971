"""Graphs of ONNX operators, written node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSETS = {"": 21, "ai.onnx.ml": 5}
"""Operator sets of the nodes, supported by onnxruntime 1.19 and later."""
IR_VERSION = 10
BATCH = "rows"
"""Name of the first axis of inputs and outputs."""

BOOL, DOUBLE, FLOAT, INT64, STRING, UINT8 = (
    TensorProto.BOOL,
    TensorProto.DOUBLE,
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.STRING,
    TensorProto.UINT8,
)


class Graph:
    """ONNX graph under construction. Methods that add a value return its name."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, kind: int, shape: Sequence[int | str] = ()) -> str:
        """Add an input `(rows, *shape)`; users of the file pass its values by this name."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, [BATCH, *shape]))
        return name

    def constant(self, value: npt.ArrayLike) -> str:
        """Add a constant with the type of its array; strings are Unicode."""
        array, name = np.asarray(value), f"constant/{len(self._constants)}"
        if array.dtype.kind == "U":
            texts = [text.encode() for text in array.ravel().tolist()]
            self._constants.append(helper.make_tensor(name, STRING, array.shape, texts))
        else:
            self._constants.append(numpy_helper.from_array(array.copy(order="C"), name))
        return name

    def node(
        self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, place: int = 0, **attributes: Any
    ) -> str:
        """Add an operator with these inputs, and return the name of the output at index ``place``."""
        names = [f"{operator}/{len(self._nodes)}/{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names[place]

    def insert(self, graph: onnx.GraphProto, inputs: Mapping[str, str]) -> None:
        """Add another graph's nodes, whose names must be unused; ``inputs`` maps its inputs to values."""
        self._nodes += [helper.make_node("Identity", [value], [name]) for name, value in inputs.items()]
        self._nodes += graph.node
        self._constants += graph.initializer

    def unused(self, name: str) -> str:
        """Return an unused name, made unique by a number."""
        return f"{name}/{len(self._nodes)}"

    def cast(self, value: str, kind: int) -> str:
        return self.node("Cast", value, to=kind)

    def as_double(self, value: str) -> str:
        return self.cast(value, DOUBLE)

    def rounded(self, value: str, largest: float) -> str:
        """Return a value rounded to integers, half to even, and clipped."""
        limits = self.constant(-float(largest)), self.constant(float(largest))
        return self.node("Clip", self.node("Round", value), *limits)

    def to_bytes(
        self, outputs: Mapping[str, tuple[str, int, Sequence[int | str]]], metadata: Mapping[str, str]
    ) -> bytes:
        """Return the checked graph as a file.

        Args:
            outputs: For each name in the file, the value, its type, and its shape without the first axis.
            metadata: Strings by name.
        """
        taken = {each.name for each in self._inputs}
        values = []
        for label, (value, kind, shape) in outputs.items():
            name = label
            while name in taken:  # a column may already have this name
                name += "_"
            self._nodes.append(helper.make_node("Identity", [value], [name]))
            values.append(helper.make_tensor_value_info(name, kind, [BATCH, *shape]))
        graph = helper.make_graph(self._nodes, "model", self._inputs, values, self._constants)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="iPATE")
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model)
        return model.SerializeToString(deterministic=True)
