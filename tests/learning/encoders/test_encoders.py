"""Encoders handle each record independently, bit for bit, in a limited process, and are part of published models."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from learning.encoders import (
    EncoderError,
    EncoderFile,
    EncoderProcess,
    ImageInput,
    TextInput,
    input_from_json,
    sample_of,
)
from learning.encoders.files import LAST, Pieces
from learning.formats import ImageSchema, TabularSchema
from learning.formats.columns import TextColumn
from learning.representations import Encoded, LinearModel, Words, representation_load, representation_save
from tests.learning.encoders.networks import (
    bright_network,
    image_encoder,
    image_network,
    model_bytes,
    noisy_network,
    of_pixels,
    text_encoder,
)
from tests.learning.lazily import LocalModel, TensorProto, graphs, helper, onnx, onnx_file, onnxruntime, torch

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
SAID = ["win a prize", "see you soon .", "Win win a a prize . see you soon", "", "what ?"]


@pytest.fixture(scope="module")
def images_process():
    """Start the encoder of images."""
    with EncoderProcess(image_encoder(), IMAGES.shape[1:]) as process:
        yield process


@pytest.fixture(scope="module")
def texts_process():
    """Start the encoder of texts."""
    with EncoderProcess(text_encoder(), (60,)) as process:
        yield process


def reference(images):
    """Compute vectors independently in NumPy: cubic resizing, two convolutions, mean over the map."""
    weights = [onnx.numpy_helper.to_array(each) for each in onnx.load_from_string(image_network()).graph.initializer]
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    x = torch.nn.functional.interpolate(x, (12, 12), mode="bicubic", align_corners=False)
    x = (x - 0.5) / 0.25
    for each in weights:
        x = torch.relu(torch.nn.functional.conv2d(x, torch.from_numpy(each.copy()), stride=2, padding=1))
    return x.mean((2, 3)).numpy()


def test_images_are_encoded_as_declared_and_each_by_itself(images_process):
    found = images_process.encode(IMAGES)
    assert images_process.width == 6 and found == pytest.approx(reference(IMAGES), abs=1e-4)
    assert (images_process.encode(IMAGES[::-1][:7])[::-1] == found[-7:]).all(), "regardless of other records"
    assert (images_process.encode(IMAGES[3:4]) == found[3]).all()
    threads = Path(f"/proc/{images_process._process._process.pid}/task")
    assert len(list(threads.iterdir())) == 1, "a copy could wait for a lock that another thread held"


def test_grey_images_fill_all_channels_and_an_encoder_leaves_no_copy_of_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    grey = IMAGES[..., 0]
    with EncoderProcess(image_encoder(), (8, 8)) as process:
        assert list(tmp_path.iterdir()) == [], "it is read"
        found = process.encode(grey)
        assert process.encode(grey[:0]).shape == (0, 6)
    assert found == pytest.approx(reference(np.repeat(grey[..., None], 3, axis=3)), abs=1e-4)


def test_layouts_differ():
    nodes = [helper.make_node("Transpose", ["pixels"], ["out"], perm=[0, 1, 2, 3])]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8, 8, 3]) for name in ("pixels", "out")]
    last = EncoderFile(model_bytes(nodes, value[:1], value[1:]), ImageInput(8, (0.0,) * 3, (1.0,) * 3, LAST))
    with EncoderProcess(last, (8, 8, 3)) as process:
        assert process.encode(IMAGES) == pytest.approx(IMAGES.mean(axis=(1, 2)) / 255, abs=1e-6)
    for takes in (last.takes, TextInput(64)):
        assert input_from_json(takes.to_json()) == takes
    assert image_encoder().digest != image_encoder(size=16).digest


def text_reference(text):
    """Compute the mean over pieces of the mean over their tokens, in NumPy."""
    table = np.random.default_rng(2).normal(size=(11, 5)).astype(np.float32)
    ids, mask = Pieces(text_encoder().tokenizer, 6)(text)
    return np.mean([table[piece[there > 0]].mean(axis=0) for piece, there in zip(ids[0], mask[0], strict=True)], axis=0)


def test_long_texts_are_encoded_in_pieces(texts_process):
    x = TextColumn("m", 60).encode(SAID)
    ids, mask = Pieces(text_encoder().tokenizer, 6)(SAID[2])
    assert ids.shape == (1, 3, 6) and ids[0, :, 0].tolist() == [2, 2, 2] and mask[0].sum(axis=1).tolist() == [6, 6, 3]
    found = texts_process.encode(x)
    assert found == pytest.approx(np.array([text_reference(text) for text in SAID]), abs=1e-5)
    assert (texts_process.encode(x[2:3]) == found[2]).all()


def test_invalid_encoders_are_refused_with_a_remedy():
    from learning.encoders.graphs import image_vectors

    floats = lambda *names: [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3, 4, 4]) for n in names]  # noqa: E731
    takes = ImageInput(4, (0.0,) * 3, (1.0,) * 3)
    own = model_bytes([helper.make_node("Own", ["x"], ["y"], domain="me")], floats("x"), floats("y"), domains=["me"])
    two = model_bytes([helper.make_node("Add", ["x", "z"], ["y"])], floats("x", "z"), floats("y"))
    wrong = model_bytes([helper.make_node("Relu", ["q"], ["y"])], floats("x"), floats("y"))
    wide = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 70_000])]
    sizes = [("shape", np.array([1, 70_000])), ("first", np.array(0))]
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("Gather", ["f", "first"], ["g"], axis=1)]
    last = [helper.make_node("Unsqueeze", ["g", "axis"], ["h"]), helper.make_node("Expand", ["h", "shape"], ["y"])]
    many = model_bytes([*nodes, *last], floats("x"), wide, [*sizes, ("axis", np.array([1]))])
    for content, problem in ((b"GIF89a", "not an ONNX"), (own, "may not use: me.Own"), (two, "the inputs x, z")):
        graph = graphs.Graph()
        with pytest.raises(EncoderError, match=problem) as error:
            image_vectors(graph, EncoderFile(content, takes), graph.input("image", graphs.FLOAT, (4, 4, 3)), (4, 4, 3))
        assert error.value.remedy
    for content, problem in ((own, "may not use: me.Own"), (wrong, "cannot"), (many, "have 70000 numbers")):
        with pytest.raises(EncoderError, match=problem) as error:
            EncoderProcess(EncoderFile(content, takes), (4, 4, 3)).__enter__()
        assert error.value.remedy
    for document, problem in (
        ({"kind": "sound"}, "is missing"),
        ({"kind": "image", "size": 4}, "not declared"),
        ({"kind": "text", "from 4 to 8192": 1}, "length"),
        ({"kind": "image", "size": 8, "mean": [0], "spread": [0]}, "spread"),
        ({"kind": "image", "size": 8, "mean": [0, 0], "spread": [1, 1]}, "mean and the spread"),
    ):
        with pytest.raises(EncoderError, match=problem):
            input_from_json(document)


AS_THEY_ARE = ImageInput(8, (0.0,) * 3, (1.0,) * 3)


def stateful():
    """Return networks that would make a record's vector, or whether it fails, depend on the records before it."""
    node, graph, value = helper.make_node, helper.make_graph, helper.make_tensor_value_info
    number = value("y", TensorProto.FLOAT, [1])
    drawn = node("RandomUniform", [], ["y"], shape=[1], seed=7.0)
    body = graph([drawn], "draws", [], [number])
    yes = [("yes", np.array(True)), ("no", np.array(False)), ("half", np.float32(0.5))]
    add = node("Add", ["pixels", "y"], ["sum"])
    yield "RandomUniform", noisy_network()
    yield "RandomNormal", noisy_network("RandomNormal")
    yield "If", of_pixels([node("If", ["yes"], ["y"], then_branch=body, else_branch=body), add], "sum", yes)
    function = helper.make_function("mine", "draws", [], ["y"], [drawn], [helper.make_opsetid("", 17)])
    called = onnx.load_from_string(of_pixels([node("draws", [], ["y"], domain="mine"), add], "sum", domains=["mine"]))
    called.functions.append(function)
    yield "RandomUniform", called.SerializeToString()
    yield "Bernoulli", of_pixels([node("Bernoulli", ["pixels"], ["sum"])], "sum")
    yield "Dropout", of_pixels([node("Dropout", ["pixels", "half", "yes"], ["sum"])], "sum", yes)
    norms = [(name, np.ones(3, np.float32)) for name in ("scale", "bias", "mean", "variance")]
    names = [name for name, _ in norms]
    training = node("BatchNormalization", ["pixels", *names], ["sum", "m", "v"], training_mode=1)
    yield "BatchNormalization", of_pixels([training], "sum", norms)


def test_networks_with_a_state_or_with_branches_are_refused():
    from learning.encoders.graphs import network_of

    for name, content in stateful():
        with pytest.raises(EncoderError, match=rf"(may not use: |operator ){name}") as error:
            network_of(content)
        assert error.value.remedy
    off = [("no", np.array(False)), ("half", np.float32(0.5))]
    for inputs in (["pixels"], ["pixels", "half"], ["pixels", "half", "no"]):
        assert network_of(of_pixels([helper.make_node("Dropout", inputs, ["sum"])], "sum", off))
    with pytest.raises(EncoderError, match="RandomUniform"):
        EncoderProcess(EncoderFile(noisy_network(), AS_THEY_ARE), (8, 8, 3)).__enter__()


def test_a_tokenizer_that_draws_how_it_splits_a_text_is_refused():
    model = {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    for dropout, problem in ((0.1, "dropout"), (None, None)):
        tokenizer = json.dumps({"version": "1.0", "model": model | {"dropout": dropout}})
        if problem:
            with pytest.raises(EncoderError, match=problem):
                Pieces(tokenizer, 8)
        else:
            assert Pieces(tokenizer, 8)("ab")[0].tolist() == [[[2]]]


def test_locality_is_checked_by_bits(images_process, texts_process, monkeypatch):
    images_process.check_locality(sample_of(image_encoder().takes, (8, 8, 3)))
    texts_process.check_locality(sample_of(text_encoder().takes, (60,)))
    encode = EncoderProcess.encode
    for change in (
        lambda vectors: vectors + np.float32(1e-6) * np.arange(len(vectors))[:, None],  # depending on its position
        lambda vectors: vectors * np.float32(1 + 1e-6 * (len(vectors) > 1)),  # depending on other records
    ):
        monkeypatch.setattr(EncoderProcess, "encode", lambda self, x, change=change: change(encode(self, x)))
        with pytest.raises(EncoderError, match="depends on which other records"):
            images_process.check_locality(IMAGES[:5])


def repeating(*times):
    """Return an encoder that repeats every image along its axes."""
    nodes = [helper.make_node("Tile", ["x", "times"], ["large"]), helper.make_node("Cos", ["large"], ["y"])]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, None, None]) for name in ("x", "y")]
    content = model_bytes(nodes, value[:1], value[1:], [("times", np.array(times))])
    return EncoderFile(content, ImageInput(4, (0.0,) * 3, (1.0,) * 3))


def test_an_encoder_that_takes_too_much_memory_for_any_record_does_not_start():
    with pytest.raises(EncoderError, match=r"Arena|memory|alloc"):
        EncoderProcess(repeating(100, 1, 256, 256), (4, 4, 3), memory=500 << 20).__enter__()


@pytest.mark.parametrize(
    ("times", "limits"),
    [(0, {}), (8192, {"memory": 500 << 20}), (1024, {"record_time": 0.05})],
    ids=["gives no number", "memory", "time"],
)
def test_a_record_on_which_the_encoder_fails_has_zeros_and_changes_nobody_elses_vector(times, limits):
    x = IMAGES.copy()
    x[[3, 17]] = 255
    others = np.delete(np.arange(40), [3, 17])
    with EncoderProcess(EncoderFile(bright_network(times), AS_THEY_ARE), (8, 8, 3), **limits) as process:
        found = process.encode(x)
        assert (found[[3, 17]] == 0).all() and (found[others] != 0).any(axis=1).all()
        assert (process.encode(x[others]) == found[others]).all()


def test_a_block_over_which_the_process_ends_is_encoded_record_by_record(monkeypatch, images_process):
    expected = images_process.encode(IMAGES)
    with EncoderProcess(image_encoder(), IMAGES.shape[1:]) as process:
        answer = EncoderProcess._answer

        def ending(self, seconds, most=0):
            if most > 4 * self.width:
                self._process._stop()
            return answer(self, seconds, most)

        monkeypatch.setattr(EncoderProcess, "_answer", ending)
        assert (process.encode(IMAGES[:3]) == expected[:3]).all()


def linear(fitted):
    """Return a model of two classes with random weights."""
    weights = np.random.default_rng(0).normal(size=(fitted.dimensions + 1, 2)) / 50
    return LinearModel(representation_load(representation_save(fitted)), weights, 1.0)


def test_the_published_file_takes_an_image_or_vectors_of_a_large_encoder_that_it_names(monkeypatch, images_process):
    encoder, schema = image_encoder(), ImageSchema(8, 8, 3, ("cat", "dog"))
    vectors = images_process.encode(IMAGES)
    model = linear(Encoded(components=4).fit(vectors))
    session = onnxruntime.InferenceSession(onnx_file(model, schema, {}, encoder))
    assert [each.name for each in session.get_inputs()] == ["image"]
    _label, found = session.run(None, {"image": IMAGES.astype(np.float32) / np.float32(255)})
    assert found == pytest.approx(model.predict_proba(vectors), abs=1e-6)
    monkeypatch.setattr("learning.exports.files.MOST_CHAINED", 1000)
    content = onnx_file(model, schema, {"encoder": {"name": "large", "file_digest": "ab12"}}, encoder)
    session = onnxruntime.InferenceSession(content)
    assert [(each.name, each.shape[1:]) for each in session.get_inputs()] == [("vectors", [6])]
    found = session.run(["probabilities"], {"vectors": vectors})[0]
    assert found == pytest.approx(model.predict_proba(vectors), abs=1e-6)
    with pytest.raises(ValueError, match=r"does not contain its encoder, large \(SHA-256 ab12\)"):
        LocalModel.of(content).predictions(IMAGES / 255)


def test_the_published_file_takes_a_sentence_with_a_tokenizer(texts_process):
    encoder, schema = text_encoder(), TabularSchema((TextColumn("m", 60),), ("ham", "spam"))
    vectors = texts_process.encode(schema.encode([{"m": text} for text in SAID]))
    model = linear(Encoded(components=4).fit(vectors))
    session = onnxruntime.InferenceSession(onnx_file(model, schema, {}, encoder))
    result = session.get_modelmeta().custom_metadata_map["tokenizer"]
    for text, vector in zip(SAID, vectors, strict=True):
        ids, mask = Pieces(result, 6)(text)
        _label, found = session.run(None, {"input_ids": ids, "attention_mask": mask})
        assert found == pytest.approx(model.predict_proba(vector[None]), abs=1e-6)


def test_texts_without_an_encoder_have_the_same_coordinates_in_the_published_file():
    letters, rng = np.array(list("abcdeXY 1.-é")), np.random.default_rng(1)
    said = ["".join(rng.choice(letters, rng.integers(0, 40))) for _ in range(80)] + SAID
    schema = TabularSchema((TextColumn("m", 50),), ("ham", "spam"))
    x = schema.encode([{"m": text} for text in said])
    fitted = Words(components=8).fit(x[:60])
    assert (fitted.transform(x[::-1])[::-1] == fitted.transform(x)).all()
    model = linear(fitted)
    session = onnxruntime.InferenceSession(onnx_file(model, schema, {}))
    _label, found = session.run(None, {"text": x})
    assert found == pytest.approx(model.predict_proba(x), abs=1e-12)
    scores = fitted.transform(x).astype(float) @ model.weights[:-1] + model.weights[-1]
    assert found == pytest.approx(softmax(scores, axis=1), abs=1e-12)
    longer = np.pad(x, ((0, 0), (0, 30)))
    assert session.run(None, {"text": longer})[1] == pytest.approx(found, abs=1e-12)
    said = ["free prize now", "see you at home", "free free prize", "home see you soon", "PRIZE free", "home at noon"]
    x = TextColumn("m", 30).encode(said * 4)
    near = Words(components=4).fit(x).transform(x[:6]).astype(float)
    alike = near @ near.T
    assert alike[0, 2] > alike[0, 1] and alike[1, 3] > alike[1, 2], "words determine which texts are similar"
    assert alike[0, 4] > alike[0, 5], "case is ignored"


def likeness(vectors):
    """Return the cosine similarity of the first vector to the next two."""
    found = vectors.astype(float)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found[0] @ found[1], found[0] @ found[2]


@pytest.mark.exhaustive
def test_minilm_recognises_similar_meanings():
    from learning.encoders.making import minilm

    said = ["A man is eating food.", "A man eats a meal.", "The stock market fell.", "long " * 400]
    encoder, schema = minilm(), TabularSchema((TextColumn("m", 2000),), ("one", "other"))
    x = schema.encode([{"m": text} for text in said])
    with EncoderProcess(encoder, (2000,)) as process:
        vectors = process.encode(x)
        assert (process.encode(x[::-1][:2])[::-1] == vectors[2:]).all(), "regardless of other records"
    model = linear(Encoded(components=2).fit(vectors))
    card = {"model": "made by a test", "encoder": {"takes": encoder.takes.to_json()}}
    here = LocalModel.of(onnx_file(model, schema, card, encoder)).predictions([{"m": text} for text in said])
    assert here.probabilities == pytest.approx(model.predict_proba(vectors), abs=1e-5)
    assert vectors.shape == (4, 384) and np.isfinite(vectors).all()
    assert np.linalg.norm(vectors[:3], axis=1) == pytest.approx(1, abs=1e-5)
    alike, other = likeness(vectors)
    assert alike > 0.8 and other < 0.2
