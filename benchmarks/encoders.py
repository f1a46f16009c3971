"""Images and texts in their representations, with and without an encoder: gradient steps compared with no privacy.

    python -m benchmarks.encoders images ARRAYS VECTORS [COMPONENTS [DRAWS]]   # of CIFAR-10; vectors, or "patches"
    python -m benchmarks.encoders texts ARRAYS [VECTORS]   # texts x, y
    python -m benchmarks.encoders vectors ARRAYS VECTORS [SIZE]    # SIZE: of images, in pixels
    python -m benchmarks.encoders batches IMAGES TEXTS     # time and bits of batches, by the encoders of PyPI

ARRAYS is an npz file: with `x_train`, `y_train`, `x_test`, `y_test` for images, or `x` and `y` for texts. The first
9,000 training images, or up to 2,000 texts, are public; each of the others, or of 4,000 texts, belongs to one holder.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.sgd import study
from learning.encoders import EncoderFile, EncoderProcess, ImageInput
from learning.encoders.files import Pieces
from learning.encoders.graphs import IDS, MASK, image_vectors, text_vectors, token_inputs
from learning.encoders.making import efficientnet_lite0, minilm
from learning.exports.graph import FLOAT, Graph
from learning.formats.columns import TextColumn
from learning.formats.rows import Rows
from learning.mechanisms.steps.steps_plan import Steps

Array = NDArray[Any]
_PUBLIC, _PEOPLE = 9_000, 4_000
_IMAGE_PROMISES = ((1.0, 2.0, 3.0), 1.0, 0.25, 0.1)


def images(arrays: str, vectors: str, components: str = "", draws: str = "3") -> None:
    """Measure CIFAR-10 at several promises. By default, the rule sets the number of components (256 for patches)."""
    data = np.load(arrays)
    train, truth, test, right = (data[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    reduced = {"components": int(components)} if components else {}
    steps = Steps(representation="patches", representation_parameters=reduced)
    if vectors != "patches":
        found = np.load(vectors)
        train, test = found["train"], found["test"]
        named = "encoder" if components else ""
        steps = Steps(encoder="measured", representation=named, representation_parameters=reduced)
    _compare("cifar10", steps, train, truth[: len(train)], test, right, _PUBLIC, _IMAGE_PROMISES, int(draws))


def texts(arrays: str, vectors: str = "") -> None:
    """Measure texts of two or more classes at ε = 1."""
    data = np.load(arrays)
    x, y = _texts(data["x"]), data["y"]
    steps = Steps()
    if vectors:
        x, steps = np.load(vectors)["x"], Steps(encoder="measured")
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    public = min(2_000, (len(x) - _PEOPLE) // 2)
    last = public + _PEOPLE
    study.CLASSES["texts"] = int(y.max()) + 1
    _compare("texts", steps, x[:last], y[:last], x[last:], y[last:], public, (1.0, 0.25))


def _compare(
    name: str,
    steps: Steps,
    x: Array,
    y: Array,
    test: Array,
    truth: Array,
    public: int,
    promises: tuple[float | tuple[float, ...], ...],
    draws: int = 3,
) -> None:
    begun = time.monotonic()
    private = Rows(x[public:], y[public:].astype(np.int64)).one_holder_per_row("person")
    case = study.case_of(name, private, x[:public], test, truth, steps)
    print(json.dumps({"people": case.people, "coordinates": case.fitted.dimensions, "s": time.monotonic() - begun}))
    for epsilon in promises:
        taken = [study.take(case, epsilon, steps=steps, seed=seed) for seed in range(draws)]
        found = [round(float((each.logits.argmax(axis=1) == truth).mean()), 4) for each in taken]
        placed = taken[0].case
        row = {"epsilon": epsilon, "coordinates": placed.fitted.dimensions, "accuracy": found}
        known = {} if placed is case else {"without privacy": _without_privacy(placed)}
        print(json.dumps(row | known), flush=True)
    print(json.dumps({"coordinates": case.fitted.dimensions, "without privacy": _without_privacy(case)}))


def _without_privacy(case: study.Case) -> dict[str, float]:
    """Return the accuracy of logistic regressions in the same coordinates, by the divisor of the penalty."""
    x, test = (each.astype(np.float32) / 127 for each in (case.records.x, case.test))
    models = {strength: LogisticRegression(C=strength, max_iter=200) for strength in (1.0, 10.0)}
    return {str(of): round(model.fit(x, case.records.y).score(test, case.truth), 4) for of, model in models.items()}


def vectors(arrays: str, stored: str, size: str = "") -> None:
    """Encode images of this size with EfficientNet-Lite0, or texts with MiniLM, one by one as in the application."""
    data = np.load(arrays)
    parts = {name: data[f"x_{name}"] for name in ("test", "train")} if size else {"x": _texts(data["x"])}
    shape = next(iter(parts.values())).shape[1:]
    with EncoderProcess(efficientnet_lite0(int(size)) if size else minilm(), shape) as process:
        np.savez(stored, **{name: process.encode(part) for name, part in parts.items()})


def _texts(found: Array) -> Array:
    return TextColumn("text", 1000).encode(found.tolist())


def batches(images: str, texts: str) -> None:
    """Print milliseconds of processor time per record, singly and in batches, and whether results are bit-identical."""
    x = np.load(images)["x_test"][:32].astype(np.float32) / 255
    for size in (112, 224):
        _batches_compare(f"{size} pixels", efficientnet_lite0(size), [{"image": each[None]} for each in x])
    encoder = minilm()
    read = Pieces(encoder.tokenizer, 256)
    inputs = [dict(zip((IDS, MASK), read(text), strict=True)) for text in np.load(texts)["x"][:32].tolist()]
    _batches_compare("texts", encoder, inputs)


def _batches_compare(name: str, encoder: EncoderFile, records: list[dict[str, Array]]) -> None:
    graph, options = Graph(), onnxruntime.SessionOptions()
    if isinstance(encoder.takes, ImageInput):
        shape = records[0]["image"].shape[1:]
        found = image_vectors(graph, encoder, graph.input("image", FLOAT, shape), shape)
    else:
        found = text_vectors(graph, encoder, *token_inputs(graph))
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph.to_bytes({"vectors": (found, FLOAT, ("width",))}, {}), options)

    def encoded(size: int, of: list[dict[str, Array]]) -> tuple[float, Array]:
        begun, parts = time.process_time(), []
        for start in range(0, len(of), size):
            some = {key: _side_by_side([each[key] for each in of[start : start + size]]) for key in of[0]}
            parts.append(session.run(None, some)[0])
        return (time.process_time() - begun) / len(of) * 1e3, np.concatenate(parts)

    encoded(1, records[:4])
    alone, one = encoded(1, records)
    for size in (4, 16):
        together, many = encoded(size, records)
        copies = [np.array_equal(encoded(size, [records[n]] * size)[1], [one[n]] * size) for n in range(4)]
        row = {"encoder": name, "batch": size, "alone": round(alone, 1), "together": round(together, 1)}
        same = {"same bits": bool((many == one).all()), "of copies": all(copies)}
        print(json.dumps(row | same | {"difference": float(np.abs(many - one).max())}), flush=True)


def _side_by_side(parts: list[Array]) -> Array:
    """Return records in one batch, with tokens padded with 0."""
    most = np.max([each.shape for each in parts], axis=0)
    wide = [np.pad(each, [(0, 0), *((0, int(n)) for n in (most - each.shape)[1:])]) for each in parts]
    return np.concatenate(wide)


if __name__ == "__main__":
    if sys.argv[1] == "images":
        images(*sys.argv[2:])
    elif sys.argv[1] == "texts":
        texts(*sys.argv[2:])
    elif sys.argv[1] == "batches":
        batches(*sys.argv[2:])
    else:
        vectors(*sys.argv[2:])
