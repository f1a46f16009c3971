"""Small encoders made for tests, as anybody could export them."""

import json

import numpy as np

from learning.encoders import EncoderFile, ImageInput, TextInput
from tests.learning.lazily import TensorProto, helper, onnx

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "win", "a", "prize", "see", "you", "soon", "."]


def model_bytes(nodes, inputs, outputs, weights=(), opset=17, domains=()):
    graph = helper.make_graph(nodes, "small", inputs, outputs, [onnx.numpy_helper.from_array(w, n) for n, w in weights])
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def image_network(channels=3, width=6, **kept):
    """Return a network of two convolutions with random weights, whose feature map is averaged."""
    rng = np.random.default_rng(1)
    first = rng.normal(size=(8, channels, 3, 3)).astype(np.float32) / 3
    second = rng.normal(size=(width, 8, 3, 3)).astype(np.float32) / 8
    nodes = [
        helper.make_node("Conv", ["pixels", "first"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["features"]),
    ]
    given = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", channels, "h", "w"])
    result = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", width, None, None])
    return model_bytes(nodes, [given], [result], [("first", first), ("second", second)], **kept)


def image_encoder(size=12, channels=3):
    return EncoderFile(image_network(channels), ImageInput(size, (0.5,) * channels, (0.25,) * channels))


def noisy_network(operator="RandomUniform", **attributes):
    """Return a network that adds a number drawn for each call from a seed."""
    drawn = {"shape": [1], "seed": 7.0} | attributes
    nodes = [helper.make_node(operator, [], ["drawn"], **drawn), helper.make_node("Add", ["pixels", "drawn"], ["sum"])]
    return of_pixels(nodes, "sum")


def of_pixels(nodes, result, weights=(), **kept):
    """Return a network that outputs the image; see `model_bytes` for ``kept``."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, 8, 8]) for name in ("pixels", result)]
    return model_bytes(nodes, values[:1], values[1:], weights, **kept)


def bright_network(times=0):
    """Return a network that outputs the image, but fails for a white one: with NaN, or with too many copies."""
    constants = {"half": np.float32(1.5), "many": np.float32([0, 0, times, times]), "one": np.float32([1, 1, 1, 1])}
    steps = [
        ("ReduceMin", ["pixels", "all"], "lightest", {"keepdims": 0}),
        ("Greater", ["lightest", "limit"], "white", {}),
        ("Cast", ["white"], "is_white", {"to": TensorProto.FLOAT}),
    ]
    if times:
        steps += [
            ("Mul", ["is_white", "many"], "more", {}),
            ("Add", ["more", "one"], "repeats", {}),
            ("Cast", ["repeats"], "whole", {"to": TensorProto.INT64}),
            ("Tile", ["pixels", "whole"], "large", {}),
            ("Cos", ["large"], "result", {}),
        ]
    else:
        steps += [("Sub", ["half", "is_white"], "left", {}), ("Sub", ["left", "one"], "sign", {})]
        steps += [("Sqrt", ["sign"], "root", {}), ("Mul", ["pixels", "root"], "result", {})]
        constants["one"] = np.float32(1)
    constants |= {"all": np.array([0, 1, 2, 3]), "limit": np.float32(0.99)}
    used = {name for _operator, inputs, _output, _attributes in steps for name in inputs}
    nodes = [helper.make_node(name, inputs, [output], **options) for name, inputs, output, options in steps]
    return of_pixels(nodes, "result", [(name, np.asarray(value)) for name, value in constants.items() if name in used])


def text_encoder(length=6, width=5):
    """Return an encoder that looks up a vector for each token; the tokenizer splits at blanks."""
    table = np.random.default_rng(2).normal(size=(len(WORDS), width)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["each"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["each", "column"], ["hidden"]),
    ]
    names = ("input_ids", "attention_mask")
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in names]
    result = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["n", "t", width])
    content = model_bytes(nodes, given, [result], [("table", table), ("last", np.array([2]))])
    return EncoderFile(content, TextInput(length), tokenizer())


def tokenizer():
    plain = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": place, "content": word} | plain for place, word in enumerate(WORDS[:4])]
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    single.append({"SpecialToken": {"id": "[SEP]", "type_id": 0}})
    marks = {word: {"id": word, "ids": [WORDS.index(word)], "tokens": [word]} for word in ("[CLS]", "[SEP]")}
    model = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(WORDS)}, "unk_token": "[UNK]"}
    after = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": marks}
    made = {"version": "1.0", "added_tokens": added, "normalizer": {"type": "Lowercase"}, "model": model}
    return json.dumps(made | {"pre_tokenizer": {"type": "Whitespace"}, "post_processor": after})
