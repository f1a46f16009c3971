"""Learners that train teachers: what they learn, what they refuse, and how their models are stored as bytes."""

import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from django.conf import settings

from learning.learners import LEARNERS, learner_create, learner_parameters, parameter_fields
from learning.learners.learner import augment
from learning.published import published_load

#: Parameters that make a learner fast enough for tests; learners that are not listed use their defaults.
FAST = {"random_forest": {"trees": 20}, "nearest_neighbour": {"copies": 2}, "cnn": {"epochs": 3, "copies": 1}}


@pytest.fixture(params=LEARNERS)
def learner(request):
    return learner_create(request.param, FAST.get(request.param))


@pytest.fixture(scope="module")
def stored(digits):
    """Return a stored logistic regression."""
    return learner_create("logistic_regression").fit(digits.test.x, digits.test.y, classes=10, seed=1).to_bytes()


def test_it_learns(learner, digits):
    model = learner.fit(digits.private.x, digits.private.y, classes=10, seed=1)
    assert (model.predict(digits.test.x) == digits.test.y).mean() > 0.9


def test_predictions_have_the_promised_form_and_the_seed_decides_everything(learner, digits):
    x, y = digits.private.x[:60].copy(), digits.private.y[:60].copy()
    model, again = (learner.fit(x, y, classes=10, seed=5) for _ in range(2))
    assert (x == digits.private.x[:60]).all() and (y == digits.private.y[:60]).all(), "the data do not change"
    probabilities, predictions = model.predict_proba(digits.test.x), model.predict(digits.test.x)
    assert (again.predict_proba(digits.test.x) == probabilities).all()
    assert again.to_bytes() == model.to_bytes(), "no memory addresses are stored"
    assert probabilities.shape == (197, 10) and probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert predictions.dtype == np.int64 and (predictions == probabilities.argmax(axis=1)).all()
    assert model.predict(digits.test.x[:0]).shape == (0,)
    assert (model.predict(digits.test.x[:1]) == predictions[:1]).all()
    restored = published_load(learner.name, model.to_bytes())
    assert (restored.classes, restored.shape) == (10, (8, 8))
    assert (restored.predict_proba(digits.test.x) == probabilities).all()
    with pytest.raises(ValueError, match=r"shape \(28, 28\); this model was trained on \(8, 8\)"):
        model.predict(np.zeros((1, 28, 28)))
    for data in (b"", b"junk" * 10, b"PK\x03\x04junk"):
        with pytest.raises(ValueError, match="cannot be read; train it again"):
            published_load(learner.name, data)
    fields = parameter_fields(type(learner))  # forms use them
    assert all(field.help and field.type in (int, float, bool) for field in fields)
    assert learner_create(learner.name, {field.name: field.default for field in fields}) == learner_create(learner.name)
    assert learner_create(learner.name, learner_parameters(learner)) == learner


def test_classes_that_the_part_lacks_keep_their_place(learner, digits):
    some = np.isin(digits.private.y, (2, 7))
    model = learner.fit(digits.private.x[some], digits.private.y[some], classes=10, seed=1)
    assert (model.predict_proba(digits.test.x).sum(axis=0) > 0).tolist() == [k in (2, 7) for k in range(10)]
    known = np.isin(digits.test.y, (2, 7))
    assert (model.predict(digits.test.x) == digits.test.y)[known].mean() > 0.9


@pytest.mark.parametrize("records", [1, 3])
def test_a_part_of_one_class_says_that_class(learner, records, digits):
    sevens = np.flatnonzero(digits.private.y == 7)[:records]
    model = learner.fit(digits.private.x[sevens], digits.private.y[sevens], classes=10, seed=1)
    assert (model.predict_proba(digits.test.x) == np.eye(10)[7]).all()
    assert (published_load(learner.name, model.to_bytes()).predict(digits.test.x) == 7).all()


def test_wrong_training_data_is_refused(learner, digits):
    x, y = digits.private.x[:5], np.array([0, 1, 2, 3, 4])
    for records, labels, options, problem in [
        (x[:0], y[:0], {}, "no records to learn from"),
        (x, y[:4], {}, "one class number per record"),
        (x, y.astype(float), {}, "whole class numbers"),
        *((x, wrong, {}, "class numbers lie between 0 and 9") for wrong in (y + 6, y - 1)),
        (np.where(np.arange(8) == 3, np.nan, x), y, {}, "not finite"),
        (x[:, 0, 0], y, {}, "give records of shape"),
        (x, y, {"seed": -1}, "seed must lie between"),
        (x, y, {"classes": 0}, "classes must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=problem):
            learner.fit(records, labels, **{"classes": 10, "seed": 1, **options})


def test_only_images_can_be_augmented_or_convolved():
    flat, y = np.zeros((4, 5)), np.array([0, 1, 0, 1])
    for name, parameters, x, problem in (
        ("cnn", {}, flat, "needs images"),
        ("nearest_neighbour", {"copies": 1}, flat, "Only images can be rotated"),
        ("cnn", {}, np.zeros((4, 3, 9)), "at least 4×4"),
    ):
        with pytest.raises(ValueError, match=problem):
            learner_create(name, parameters).fit(x, y, classes=2, seed=1)


def test_the_network_takes_images_in_colour_and_reports_progress():
    """The last batch has one image, too few for batch normalisation."""
    x, y, seen = np.zeros((41, 6, 6, 3), np.float32), np.repeat([0, 1], (20, 21)), []
    x[20:, :, :, 1] = 1
    learner = learner_create("cnn", {"epochs": 5, "batch": 8})
    model = learner.fit(x, y, classes=2, seed=1, progress=lambda *step: seen.append(step))
    assert (model.predict(x) == y).all()
    assert seen == [(epoch, 5) for epoch in range(1, 6)]
    assert np.isfinite(learner.fit(x[:2], np.array([0, 1]), classes=2, seed=1).predict_proba(x)).all()


def test_unknown_learners_and_parameters_are_refused():
    for name, parameters, problem in (
        ("oracle", {}, "no learner “oracle”; choose one of: random_forest"),
        ("random_forest", {"tree": 1}, "no parameter tree; it has: trees"),
        ("random_forest", {"trees": 0}, "trees is 0; it must be at least 1"),
        ("random_forest", {"trees": 1.5}, "trees is 1.5; it must be a whole number"),
        ("random_forest", {"trees": True}, "trees is True; it must be a whole number"),
        ("random_forest", {"balanced": 1}, "balanced is 1; it must be true or false"),
        ("logistic_regression", {"inverse_penalty": "1"}, "inverse_penalty is '1'; it must be a number"),
        ("logistic_regression", {"inverse_penalty": float("nan")}, "inverse_penalty is nan"),
        ("cnn", {"learning_rate": 2}, "learning_rate is 2; it must be at least 1e-07 and at most 1"),
        ("nearest_neighbour", {"shift": -0.1}, "shift is -0.1; it must be at least 0 and at most 0.5"),
    ):
        with pytest.raises(ValueError, match=problem):
            learner_create(name, parameters)


def test_the_model_of_another_learner_or_with_missing_tensors_is_refused(stored, digits):
    from safetensors.torch import load, save

    learner = learner_create("cnn", {"epochs": 1})
    tensors = load(learner.fit(digits.test.x[:20], digits.test.y[:20], classes=10, seed=1).to_bytes())
    del tensors["hidden.weight"]
    for name, data, problem in (
        ("random_forest", stored, "is a LogisticRegression, not one of random_forest"),
        ("cnn", stored, "cannot be read"),
        ("oracle", stored, "no learner “oracle”"),
        ("cnn", save(tensors), "cannot be read"),
    ):
        with pytest.raises(ValueError, match=problem):
            published_load(name, data)


def test_types_beyond_the_listed_ones_are_refused():
    import skops.io
    from sklearn.naive_bayes import GaussianNB
    from sklearn.preprocessing import FunctionTransformer

    other = GaussianNB().fit(np.array([[0.0], [1.0]]), np.array([0, 1]))
    untrusted = FunctionTransformer(subprocess.run)
    for estimator, problem in ((untrusted, "contains untrusted types"), (other, "is a GaussianNB")):
        with pytest.raises(ValueError, match=problem):
            published_load("random_forest", skops.io.dumps({"estimator": estimator, "classes": 2, "shape": [1]}))


def test_a_tampered_schema_runs_nothing(stored):
    """The file names a callable of the standard library that would be called while it is read."""
    tampered = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(stored)) as source, zipfile.ZipFile(tampered, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                schema["content"]["estimator"] |= {"__module__": "subprocess", "__class__": "Popen"}
                content = json.dumps(schema).encode()
            target.writestr(name, content)
    with pytest.raises(ValueError, match=r"refused|cannot be read"):
        published_load("logistic_regression", tampered.getvalue())


_TRAINS = """
import hashlib, numpy as np
from learning.learners import learner_create
x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
model = learner_create("random_forest", {"trees": 5}).fit(x, np.arange(60) % 3, classes=3, seed=1)
digest = hashlib.sha256(model.to_bytes()).hexdigest()
"""


@pytest.mark.exhaustive
def test_equal_models_of_two_processes_are_equal_files():
    """This includes scikit-learn's models, in which skops stores memory addresses."""
    command = [sys.executable, "-c", f"{_TRAINS}print(digest)"]
    other = subprocess.run(command, check=True, capture_output=True, text=True, cwd=settings.BASE_DIR).stdout.strip()
    exec(_TRAINS, here := {})
    assert len(other) == 64 and here["digest"] == other


def test_rounds_repeat_the_images_in_order_and_all_channels_move_together():
    images = np.random.default_rng(1).random((3, 5, 6)).astype(np.float32)
    augmented = augment(images, copies=2, rotation=0, shift=0, seed=1)
    np.testing.assert_allclose(augmented, np.tile(images, (3, 1, 1)), atol=1e-6)
    squares = np.zeros((4, 9, 9, 3))
    squares[:, 3:6, 3:6] = np.arange(1, 5)[:, None, None, None]
    augmented = augment(squares, copies=3, rotation=5, shift=0.05, seed=1)
    assert augmented.shape == (16, 9, 9, 3)
    np.testing.assert_allclose(augmented[:, 4, 4, 0], np.tile([1, 2, 3, 4], 4), rtol=1e-5)
    assert (augmented[..., 0] == augmented[..., 2]).all()
    assert not (augmented[4:8] == augmented[8:12]).all()
