"""Tests of storing models as bytes."""

import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import skops.io
from django.conf import settings
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import FunctionTransformer

from learning.learners import LEARNERS, learner_create
from learning.published import published_load

pytestmark = pytest.mark.slow

SMALL = {"random_forest": {"trees": 5}, "cnn": {"epochs": 1}}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("records", [1, 100], ids=["one class", "all classes"])
def test_a_stored_model_predicts_as_before(name, records, digits):
    learner = learner_create(name, SMALL.get(name))
    model = learner.fit(digits.private.x[:records], digits.private.y[:records], classes=10, seed=1)
    restored = published_load(name, model.to_bytes())
    assert (restored.classes, restored.shape) == (10, (8, 8))
    assert (restored.predict_proba(digits.test.x) == model.predict_proba(digits.test.x)).all()


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("data", [b"", b"junk" * 10, b"PK\x03\x04junk"])
def test_bytes_that_are_no_model_are_refused(name, data):
    with pytest.raises(ValueError, match="cannot be read; train it again"):
        published_load(name, data)


def test_the_model_of_another_learner_is_refused(digits):
    stored = learner_create("logistic_regression").fit(digits.test.x, digits.test.y, classes=10, seed=1).to_bytes()
    with pytest.raises(ValueError, match="is a LogisticRegression, not one of random_forest"):
        published_load("random_forest", stored)
    with pytest.raises(ValueError, match="cannot be read"):
        published_load("cnn", stored)
    with pytest.raises(ValueError, match="no learner “oracle”"):
        published_load("oracle", stored)


def test_types_beyond_the_listed_ones_are_refused():
    stored = skops.io.dumps({"estimator": FunctionTransformer(subprocess.run), "classes": 2, "shape": [1]})
    with pytest.raises(ValueError, match="types that are not trusted"):
        published_load("random_forest", stored)
    other = GaussianNB().fit(np.array([[0.0], [1.0]]), np.array([0, 1]))
    with pytest.raises(ValueError, match="is a GaussianNB"):
        published_load("random_forest", skops.io.dumps({"estimator": other, "classes": 2, "shape": [1]}))


def test_a_tampered_schema_runs_nothing(digits, tmp_path):
    """A file that names a callable of the standard library to be called while it is read."""
    stored = learner_create("logistic_regression").fit(digits.test.x, digits.test.y, classes=10, seed=1).to_bytes()
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


def test_a_network_with_missing_tensors_is_refused(digits):
    from safetensors.torch import load, save

    stored = learner_create("cnn", {"epochs": 1}).fit(digits.test.x, digits.test.y, classes=10, seed=1).to_bytes()
    tensors = load(stored)
    del tensors["hidden.weight"]
    with pytest.raises(ValueError, match="cannot be read"):
        published_load("cnn", save(tensors))


def test_pages_and_commands_load_neither_torch_nor_scikit_learn():
    """Each would double the time that a process takes to start, and its memory."""
    code = (
        "import os, sys, django; os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'ipate_web.settings'); "
        "django.setup(); import training.tasks, learning.learners as t; from django.urls import get_resolver; "
        "t.parameter_fields(t.LEARNERS['cnn']); assert get_resolver().url_patterns; "
        "sys.exit(len({'torch', 'sklearn', 'scipy.stats', 'scipy.signal'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_TRAINS = """
import hashlib, numpy as np
from learning.learners import learner_create
x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
model = learner_create("random_forest", {"trees": 5}).fit(x, np.arange(60) % 3, classes=3, seed=1)
digest = hashlib.sha256(model.to_bytes()).hexdigest()
"""


def test_equal_models_of_two_processes_are_equal_files():
    """Of scikit-learn's models, in which skops notes where objects lie in memory."""
    command = [sys.executable, "-c", f"{_TRAINS}print(digest)"]
    other = subprocess.run(command, check=True, capture_output=True, text=True, cwd=settings.BASE_DIR).stdout.strip()
    exec(_TRAINS, here := {})
    assert len(other) == 64 and here["digest"] == other
