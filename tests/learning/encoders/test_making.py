"""Encoders of PyPI become ONNX files that say what the networks say."""

import math

import numpy as np
import pytest
from ipate_client import LocalModel

from learning.encoders import EncoderProcess
from learning.encoders.making.efficientnet import efficientnet_lite0
from learning.encoders.making.minilm import minilm
from learning.exports.files import onnx_file
from learning.formats import ImageSchema, TabularSchema
from learning.formats.columns import TextColumn
from learning.representations import Encoded, LinearModel, representation_load, representation_save

SAID = ["A man is eating food.", "A man eats a meal.", "The stock market fell.", "long " * 400]

CLASSES, CARD = ("one", "other"), {"model": "made by a test"}


def linear(vectors):
    """A model of these vectors with weights at random."""
    fitted = Encoded(components=2).fit(vectors)
    weights = np.random.default_rng(0).normal(size=(fitted.dimensions + 1, 2)) / 50
    return LinearModel(representation_load(representation_save(fitted)), weights, 1.0)


@pytest.mark.slow
def test_efficientnet_sees_what_is_alike():
    y, x = np.mgrid[:32, :32]
    disc = (((x - 16) ** 2 + (y - 16) ** 2) < 100)[..., None] * np.array([200, 30, 30])
    moved, lines = np.roll(disc, 3, axis=1), ((x // 4) % 2)[..., None] * np.array([255, 255, 255])
    images = np.stack([disc, moved, lines]).astype(np.uint8)
    encoder = efficientnet_lite0()
    with EncoderProcess(encoder, (32, 32, 3)) as process:
        assert process.width == 1280
        vectors = process.encode(images)
        assert (process.encode(images[::-1][:2])[::-1] == vectors[1:]).all(), "whoever else is there"
    model = linear(vectors)
    here = LocalModel(onnx_file(model, ImageSchema(32, 32, 3, CLASSES), CARD, encoder))
    assert here.predict(images / 255).probabilities == pytest.approx(model.predict_proba(vectors), abs=1e-5)
    found = vectors.astype(float)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    assert found[0] @ found[1] > 0.8 > found[0] @ found[2]


@pytest.mark.slow
def test_minilm_knows_what_means_the_same():
    encoder, schema = minilm(), TabularSchema((TextColumn("m", 2000),), CLASSES)
    x = schema.encode([{"m": text} for text in SAID])
    with EncoderProcess(encoder, (2000,)) as process:
        vectors = process.encode(x)
        assert (process.encode(x[::-1][:2])[::-1] == vectors[2:]).all(), "whoever else is there"
    model = linear(vectors)
    card = CARD | {"encoder": {"takes": encoder.takes.to_json()}}
    here = LocalModel(onnx_file(model, schema, card, encoder))
    said = here.predict([{"m": text} for text in SAID])
    assert said.probabilities == pytest.approx(model.predict_proba(vectors), abs=1e-5)
    found = vectors.astype(float)
    assert found.shape == (4, 384) and np.linalg.norm(found[:3], axis=1) == pytest.approx(1, abs=1e-5)
    alike, other = found[0] @ found[1], found[0] @ found[2]
    assert alike > 0.8 and other < 0.2 and math.isfinite(found.sum())
