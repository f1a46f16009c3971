"""Encoders as nodes of an ONNX graph, used both to encode records and in the files of published models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import compose, inliner, shape_inference, version_converter

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.encoders.files import FIRST, EncoderError, EncoderFile, ImageInput
from learning.exports.graph import FLOAT, INT64, OPSETS, Graph

IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
_AGAIN = _("Export the network again as a single ONNX file that uses only standard operators.")
_RANKS = (2, 3, 4)

_NAMES = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift
    BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Concat Constant ConstantOfShape Conv
    ConvInteger ConvTranspose Cos Cosh CumSum DFT DepthToSpace DequantizeLinear Div Dropout
    DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements
    GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample
    GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish Identity InstanceNormalization IsInf IsNaN
    LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul
    MatMulInteger Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg Not OneHot Or PRelu Pad Pow
    QLinearConv QLinearMatMul QuantizeLinear RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round STFT
    ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign
    SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where
    Xor
"""
OPERATORS = frozenset(_NAMES.split())
"""ONNX operators that an encoder may use, because their outputs depend only on the inputs, not on a state or a seed.

Excluded are operators that contain graphs (Loop, Scan, If, SequenceMap), and operators for sequences and strings.
"""


def network_of(content: bytes) -> onnx.ModelProto:
    """Return the network in a file, converted to the operator set used for model files.

    Raises:
        EncoderError: The file is not an ONNX network, or refers to other files.
    """
    try:
        network = onnx.load_model_from_string(content)
    except DecodeError:
        raise EncoderError(_("The file is not an ONNX file."), _AGAIN) from None
    if not network.graph.node or any(map(onnx.external_data_helper.uses_external_data, _tensors(network))):
        raise EncoderError(_("The file contains no network, or its weights are in another file."), _AGAIN)
    try:
        if network.functions:
            network = inliner.inline_local_functions(network)
        _operators_check(network)
        versions = {each.domain if each.domain != "ai.onnx" else "": each.version for each in network.opset_import}
        if versions.get("") != OPSETS[""]:
            network = version_converter.convert_version(network, OPSETS[""])
        network = shape_inference.infer_shapes(network)
    except EncoderError:
        raise
    except Exception as error:  # C++ code raises many types of exceptions
        problem = Sentence(_("The network cannot be read (%(error)s)."), error=str(error)[:200])
        raise EncoderError(problem, _AGAIN) from None
    _operators_check(network)  # checks the network that will actually run
    return network


def _operators_check(network: onnx.ModelProto) -> None:
    """Check that a record's vector depends only on the record; see `OPERATORS`.

    Raises:
        EncoderError: An operator is not in the list, or is in training mode.
    """
    constants = {each.name: each for each in network.graph.initializer}
    for node in _nodes(network):
        if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            problem = Sentence(_("The network uses an operator that encoders may not use: %(name)s."), name=name[:100])
            raise EncoderError(
                problem, _("Export the network without randomness or loops, using only standard ONNX operators.")
            )
        if node.op_type == "Constant":
            constants.update((node.output[0], each.t) for each in node.attribute if each.name == "value")
        training = {each.name: each.i for each in node.attribute}.get("training_mode")
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            training = node.input[2] not in constants or onnx.numpy_helper.to_array(constants[node.input[2]]).any()
        if training:
            problem = Sentence(_("The network's operator %(name)s is in training mode."), name=node.op_type)
            raise EncoderError(problem, _("Export the network for inference: in PyTorch, call eval() first."))


def _nodes(network: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes of a network in order, each node before the nodes of any graphs inside it."""
    left = list(network.graph.node)[::-1]
    while left:
        node = left.pop()
        yield node
        for attribute in node.attribute:
            left += [each for graph in (attribute.g, *attribute.graphs) for each in graph.node][::-1]


def _tensors(network: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from network.graph.initializer
    for node in _nodes(network):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)


def image_vectors(graph: Graph, encoder: EncoderFile, images: str, shape: tuple[int, ...]) -> str:
    """Add nodes that compute float vectors `(rows, width)` from float images `(rows, *shape)` in [0, 1]."""
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
    """Add nodes that compute float vectors `(rows, width)` from tokens `(rows, pieces, tokens)` and their mask."""
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
    if rank == 3:  # one vector per token
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
    """Add inputs for tokens `(rows, pieces, tokens)` and their mask, and return their names."""
    return graph.input(IDS, INT64, ("pieces", "tokens")), graph.input(MASK, INT64, ("pieces", "tokens"))


def _weighted_mean(graph: Graph, values: str, weights: str) -> str:
    """Return the mean `(n, width)` over the second axis of `(n, m, width)`, with weights `(n, m, 1)` of 0 or 1."""
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
    return EncoderError(problem, Sentence(_("Export the network with: %(wanted)s."), wanted=wanted))


def _inserted(graph: Graph, network: onnx.ModelProto, inputs: dict[str, str]) -> tuple[str, int]:
    """Add a network's nodes; return its first output, in single precision, and the number of the output's axes."""
    output = network.graph.output[0].type.tensor_type
    rank = len(output.shape.dim) if output.HasField("shape") else 0
    if rank not in _RANKS:
        problem = Sentence(_("The network's output has %(rank)s axes."), rank=rank)
        raise EncoderError(problem, _("Export the network so that its first output is a vector or a feature map."))
    network = compose.add_prefix(network, f"{graph.unused('encoder')}/")
    names = dict(zip(inputs, _inputs(network), strict=True))
    graph.insert(network.graph, {names[name]: value for name, value in inputs.items()})
    return graph.cast(network.graph.output[0].name, FLOAT), rank
