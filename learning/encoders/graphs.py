"""An encoder as part of a graph: the same nodes where records are encoded, and in the files of published models."""

from __future__ import annotations

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import compose, inliner, shape_inference, version_converter

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.encoders.files import FIRST, EncoderError, EncoderFile, ImageInput
from learning.exports.graph import FLOAT, INT64, OPSETS, Graph

IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
_AGAIN = _("Export it anew, as one ONNX file of standard operators.")
_RANKS = (2, 3, 4)


def network_of(content: bytes) -> onnx.ModelProto:
    """The network of a file, in the operator set of the files of models.

    Raises:
        EncoderError: the file is no such network, or needs more than itself.
    """
    try:
        network = onnx.load_model_from_string(content)
    except DecodeError:
        raise EncoderError(_("The file is no ONNX file."), _AGAIN) from None
    graph = network.graph
    if not graph.node or any(onnx.external_data_helper.uses_external_data(each) for each in graph.initializer):
        raise EncoderError(_("The file holds no network, or keeps its weights in another file."), _AGAIN)
    if network.functions:
        network = inliner.inline_local_functions(network)
    versions = {each.domain if each.domain != "ai.onnx" else "": each.version for each in network.opset_import}
    used = {node.domain for node in network.graph.node} - {"", "ai.onnx"}
    if unknown := used - set(OPSETS):
        problem = Sentence(_("The network uses operators that are not of ONNX: %(names)s."), names=", ".join(unknown))
        raise EncoderError(problem, _AGAIN)
    try:
        if versions.get("") != OPSETS[""]:
            network = version_converter.convert_version(network, OPSETS[""])
        return shape_inference.infer_shapes(network)
    except Exception as error:  # of C++, in many types
        problem = Sentence(_("The network cannot be read (%(error)s)."), error=str(error)[:200])
        raise EncoderError(problem, _AGAIN) from None


def image_vectors(graph: Graph, encoder: EncoderFile, images: str, shape: tuple[int, ...]) -> str:
    """Vectors `(rows, width)`, float, of float images `(rows, *shape)` with pixels in [0, 1]."""
    takes = encoder.takes
    assert isinstance(takes, ImageInput), "an encoder of images"
    given = 1 if len(shape) == 2 else shape[2]
    if len(shape) == 2:
        images = graph.node("Unsqueeze", images, graph.constant(np.array([3])))
    if given == 1 and takes.channels > 1:
        images = graph.node("Concat", *[images] * takes.channels, axis=3)
    images = graph.node("Transpose", images, perm=[0, 3, 1, 2])
    if (takes.size, takes.size) != shape[:2]:
        images = graph.node(
            "Resize",
            images,
            "",
            "",
            graph.constant(np.array([takes.size, takes.size])),
            mode="cubic",
            cubic_coeff_a=-0.75,
            antialias=int(min(shape[:2]) > takes.size),
            axes=[2, 3],
        )
    mean, spread = (np.array(each, np.float32)[:, None, None] for each in (takes.mean, takes.spread))
    images = graph.node("Div", graph.node("Sub", images, graph.constant(mean)), graph.constant(spread))
    if takes.layout != FIRST:
        images = graph.node("Transpose", images, perm=[0, 2, 3, 1])
    network = network_of(encoder.content)
    names = _inputs(network)
    if len(names) != 1:
        raise _wrong_inputs(names, "1")
    vectors, rank = _inserted(graph, network, {names[0]: images})
    if rank == 2:
        return vectors
    axes = [2, 3] if takes.layout == FIRST else [1, 2]
    return graph.node("ReduceMean", vectors, graph.constant(np.array(axes if rank == 4 else [1])), keepdims=0)


def text_vectors(graph: Graph, encoder: EncoderFile, ids: str, mask: str) -> str:
    """Vectors `(rows, width)`, float, of tokens `(rows, pieces, tokens)`; a mask of 0 where there is no token."""
    network = network_of(encoder.content)
    names = _inputs(network)
    if not {IDS, MASK} <= set(names) <= {IDS, MASK, TYPES}:
        raise _wrong_inputs(names, f"{IDS}, {MASK}")
    sizes = graph.node("Shape", ids)
    tokens = graph.node("Slice", sizes, graph.constant(np.array([2])), graph.constant(np.array([3])))
    flat = graph.node("Concat", graph.constant(np.array([-1])), tokens, axis=0)
    pieces = {IDS: graph.node("Reshape", ids, flat), MASK: graph.node("Reshape", mask, flat)}
    inputs = {name: pieces.get(name, "") for name in names}
    if TYPES in names:
        inputs[TYPES] = graph.node("Mul", pieces[IDS], graph.constant(np.int64(0)))
    vectors, rank = _inserted(graph, network, inputs)
    if rank == 3:  # of each token
        weights = graph.node("Unsqueeze", graph.cast(pieces[MASK], FLOAT), graph.constant(np.array([2])))
        vectors = _weighted_mean(graph, vectors, weights)
    grouped = graph.node(
        "Concat",
        graph.node("Slice", sizes, graph.constant(np.array([0])), graph.constant(np.array([2]))),
        graph.constant(np.array([-1])),
        axis=0,
    )
    has_words = graph.node("ReduceMax", mask, graph.constant(np.array([2])), keepdims=1)
    return _weighted_mean(graph, graph.node("Reshape", vectors, grouped), graph.cast(has_words, FLOAT))


def token_inputs(graph: Graph) -> tuple[str, str]:
    """Inputs of tokens `(rows, pieces, tokens)` and their mask."""
    return graph.input(IDS, INT64, ("pieces", "tokens")), graph.input(MASK, INT64, ("pieces", "tokens"))


def _weighted_mean(graph: Graph, values: str, weights: str) -> str:
    """Mean `(n, width)` over the second axis of values `(n, m, width)` with weights `(n, m, 1)` of 0 and 1."""
    used = graph.node("Greater", weights, graph.constant(np.float32(0)))
    counted = graph.node("Where", used, values, graph.constant(np.float32(0)))
    axis = graph.constant(np.array([1]))
    number = graph.node("ReduceSum", weights, axis, keepdims=0)
    total = graph.node("ReduceSum", counted, axis, keepdims=0)
    return graph.node("Div", total, graph.node("Max", number, graph.constant(np.float32(1))))


def _inputs(network: onnx.ModelProto) -> list[str]:
    weights = {each.name for each in network.graph.initializer}
    return [each.name for each in network.graph.input if each.name not in weights]


def _wrong_inputs(names: list[str], wanted: str) -> EncoderError:
    problem = Sentence(_("The network has the inputs %(names)s."), names=", ".join(names)[:200] or "–")
    return EncoderError(problem, Sentence(_("Export it with: %(wanted)s."), wanted=wanted))


def _inserted(graph: Graph, network: onnx.ModelProto, inputs: dict[str, str]) -> tuple[str, int]:
    """The network's first output in single precision, and its number of axes."""
    output = network.graph.output[0].type.tensor_type
    rank = len(output.shape.dim) if output.HasField("shape") else 0
    if rank not in _RANKS:
        problem = Sentence(_("The output of the network has %(rank)s axes."), rank=rank)
        raise EncoderError(problem, _("Export it so that its first output is a vector or a map of features."))
    network = compose.add_prefix(network, f"{graph.unused('encoder')}/")
    names = dict(zip(inputs, _inputs(network), strict=True))
    graph.insert(network.graph, {names[name]: value for name, value in inputs.items()})
    return graph.cast(network.graph.output[0].name, FLOAT), rank
