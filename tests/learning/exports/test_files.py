"""Published models as ONNX: whoever runs them with nothing of iPATE gets the site's predictions."""

import json
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from ipate_client import LocalModel

from learning.exports.files import onnx_file
from learning.formats import (
    CATALOGUE,
    DataError,
    Rows,
    Schema,
    Splits,
    TabularSchema,
    catalogue_files,
    catalogue_load,
    read_file,
    schema_from_json,
)
from learning.formats.catalogue import _table_schema
from learning.formats.columns import CategoricalColumn, CodeColumn, DateColumn, NumericColumn
from learning.learners import Model, learner_create
from learning.mechanisms.sampled_steps.networks import NETWORKS, NetworkModel, network_create
from learning.published import network_learner, published_load
from learning.representations import REPRESENTATIONS, LinearModel, Whitened, layers_of_model
from learning.students import STUDENTS, labelled, student_create, student_learn
from tests.learning.exports.rows import rows_of

pytestmark = pytest.mark.slow

FAST = {
    "random_forest": {"trees": 15},
    "cnn": {"epochs": 1},
    "consistency": {"steps": 2, "filters": 6, "thorough": True},
    "boosting": {"iterations": 8},
    "nearest_neighbour": {"neighbours": 3},
}
POINTS, ROWS = 300, 100


TABLE = TabularSchema(
    (
        NumericColumn("label", 0, 7),
        NumericColumn("weight", -1, 1, missing=("?",)),
        CategoricalColumn("place", ("here", "there"), missing=("", "none")),
        CategoricalColumn("other", ("a", "ü"), other=True),
        CodeColumn("code", "icd9", missing=("?",)),
        CodeColumn("diagnosis", "icd10", missing=("?", "U00")),
        CodeColumn("drug", "atc"),
        CodeColumn("test", "loinc", missing=("",)),
        DateColumn("born", 0, 100, missing=("",), reference="2026-01-01"),
    ),
    ("no", "yes"),
)


def made_up() -> Splits:
    """A table with a column of every type, which needs no file."""
    rng = np.random.default_rng(3)
    labels, codes = rng.uniform(0, 7, POINTS + ROWS), ("?", "001", "140.2", "250.01", "401", "V30.0", "E880")
    rows = [
        {
            "label": label,
            "weight": rng.choice(["?", "-0.5", "0.9"]),
            "place": rng.choice(["here", "there", ""]),
            "other": rng.choice(["a", "ü", "elsewhere"]),
            "code": rng.choice(codes),
            "diagnosis": rng.choice(["?", "U00", "E11.90", "C7A.0", "I50", "T80.1XXA"]),
            "drug": rng.choice(["A10BA02", "C07", "V"]),
            "test": rng.choice(["", "2345-7", "718-7", "99999-9"]),
            "born": rng.choice(["", "12.5", "80"]),
        }
        for label in labels
    ]
    all_of_it = Rows(TABLE.encode(rows), (labels > 3).astype(np.int64))
    return Splits(private=all_of_it[:1], public=all_of_it[:POINTS], test=all_of_it[POINTS:], schema=TABLE)


def first_rows(path: Path, folder: Path, schema: Schema) -> Splits:
    """The first records of the zip file of the diabetes records: all hundred thousand take ten seconds to read."""
    with zipfile.ZipFile(path) as archive, archive.open("dataset_diabetes/diabetic_data.csv") as file:
        (folder / "first.csv").write_bytes(b"".join(islice(file, 1 + POINTS + ROWS)))
    rows = read_file(folder / "first.csv", schema, holders=False)
    return Splits(private=rows[:1], public=rows[:POINTS], test=rows[POINTS:], schema=schema)


@pytest.fixture(scope="module", params=[*CATALOGUE, "made up"])
def splits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Splits:
    """A dataset of the catalogue, of which all but the digits are files that have to be there; or a made-up table."""
    name = request.param
    if name == "made up":
        return made_up()
    if name == "diabetes":
        (path,) = catalogue_files(name, request.getfixturevalue("data_dir"))
        return first_rows(path, tmp_path_factory.mktemp(name), _table_schema(name))
    return catalogue_load(name, request.getfixturevalue("data_dir") if CATALOGUE[name].files else None)


def student(name: str, splits: Splits) -> Model:
    x, y = splits.public.x[:POINTS], splits.public.y[:POINTS]
    releases = labelled(np.arange(len(x)), y, classes=len(splits.schema.classes))
    return student_learn(student_create(name, FAST.get(name)), x, releases, seed=1)


def takes(name: str, splits: Splits) -> bool:
    try:
        student_create(name).shape_check(splits.schema.shape)
    except ValueError:
        return False
    return True


def models(splits: Splits) -> Iterator[tuple[str, Model]]:
    """A model of every learner that is published and takes these records, and of every representation."""
    public, classes = splits.public.x[:POINTS], len(splits.schema.classes)
    images, rng = public.ndim > 2, np.random.default_rng(1)
    students = {name: student(name, splits) for name in STUDENTS if takes(name, splits)}
    yield from students.items()
    for name, kind in REPRESENTATIONS.items():
        if kind.texts or (kind.images and not images) or (name == "student" and not images):
            continue
        chosen: dict[str, Any] = {"steps": 2} if name == "learned" else {}
        if name == "student":
            chosen = {"wavelets": True, "layers": layers_of_model(students["consistency"])}
        space = kind(**chosen).fit(public)
        yield "linear", LinearModel(space, rng.normal(0, 0.01, (space.dimensions + 1, classes)), 127.0)
    for name in NETWORKS:
        if name != "cnn" or (min(public.shape[1:3]) >= 16 and images):
            network = network_create(name, public.shape[1:], classes, 1)
            yield network_learner(name), NetworkModel(network, classes, public.shape[1:])
    space = Whitened(components=8).fit(public)
    network = network_create("mlp", (space.dimensions,), classes, 1)
    yield network_learner("mlp"), NetworkModel(network, classes, public.shape[1:], space=space, scale=1 / 127)


def test_every_file_predicts_what_the_site_does(splits: Splits) -> None:
    rows = rows_of(splits.schema, splits.test.x[:ROWS])
    x = splits.schema.encode(rows)
    names = np.array(splits.schema.classes)
    for learner, model in models(splits):
        expected = published_load(learner, model.to_bytes()).predict_proba(x)
        found = LocalModel(onnx_file(model, splits.schema, {"of": learner})).predict(rows)
        assert found.probabilities == pytest.approx(expected, abs=1e-5), learner
        assert (found.labels == names[expected.argmax(axis=1)]).all(), learner


def test_a_model_that_knows_some_classes_alone_is_exported() -> None:
    """Of one class, of two, and of some in the middle."""
    splits = catalogue_load("digits")
    for seen in ([3], [2, 7], [1, 4, 8]):
        chosen = np.isin(splits.public.y, seen)
        for name in ("random_forest", "logistic_regression", "nearest_neighbour", "cnn"):
            learner = learner_create(name, {"trees": 3} if name == "random_forest" else {})
            model = learner.fit(splits.public.x[chosen], splits.public.y[chosen], classes=10, seed=1)
            session = onnxruntime.InferenceSession(onnx_file(model, splits.schema, {}))
            found = session.run(["probabilities"], {"image": splits.test.x})[0]
            assert found == pytest.approx(model.predict_proba(splits.test.x), abs=1e-5), (name, seen)
            assert (found.argmax(axis=1) == model.predict(splits.test.x)).all(), (name, seen)


GOOD = {
    "label": 3.3,
    "weight": 0.25,
    "place": "there",
    "other": "ü",
    "code": "250.01",
    "diagnosis": "I50.1",
    "drug": "A10BA02",
    "test": "718-7",
    "born": 40.25,
}
ALLOWED = [
    *({**GOOD, "label": value} for value in (-5, 7, 1e9, "0.1")),
    *({**GOOD, "weight": value} for value in ("?", -2, 1.5, "1e-3")),
    *({**GOOD, "place": value} for value in ("here", "", "none")),
    *({**GOOD, "other": value} for value in ("a", "elsewhere", "")),
    *({**GOOD, "code": value} for value in ("?", "1", "001", "139.9", "140", "250", "251.", "999", "E8", "V001.3")),
    *({**GOOD, "diagnosis": value} for value in ("?", "U00", "E11", "C7A.0", "S72.001A", "E11.90G", "I10.-", "U07.1!")),
    *({**GOOD, "drug": value} for value in ("V", "C07", "C07AB02")),
    *({**GOOD, "test": value} for value in ("", "8480-6", "1234567-8")),
]
REFUSED = [
    *({**GOOD, "label": value} for value in (float("nan"), float("inf"), float("-inf"))),
    {**GOOD, "weight": float("inf")},
    *({**GOOD, "place": value} for value in ("Here", "nowhere")),
    *({**GOOD, "code": value} for value in ("", "0", "000.1", "1000", "X12", "12a", "1.x", ".5", "V", "e8")),
    *({**GOOD, "diagnosis": value} for value in ("", "D99", "e11", "E1", "E11.12345", "E11\n", "250.01")),
    *({**GOOD, "drug": value} for value in ("", "E01", "A1", "c07", "C07AB022")),
    *({**GOOD, "test": value} for value in ("2345", "2345-77", "x")),
]


def _shown(model: Model) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(onnx_file(model, TABLE, {"purpose": "to test"}))


@pytest.fixture(scope="module")
def table_model() -> Model:
    """A model that tells any two records apart."""
    rng = np.random.default_rng(2)
    x = rng.random((60, *TABLE.shape)).astype(np.float32)
    return learner_create("logistic_regression").fit(x, rng.integers(0, 2, 60), classes=2, seed=1)


def test_rows_are_encoded_as_the_site_does(table_model: Model) -> None:
    found = LocalModel(onnx_file(table_model, TABLE, {})).predict(ALLOWED)
    expected = table_model.predict_proba(TABLE.encode(ALLOWED))
    assert found.probabilities == pytest.approx(expected, abs=1e-7)
    assert set(found.labels) <= {"no", "yes"}


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_a_row_that_the_site_refuses_has_no_prediction(row: dict[str, Any], table_model: Model) -> None:
    found = LocalModel(onnx_file(table_model, TABLE, {})).predict([GOOD, row])
    with pytest.raises(DataError):
        TABLE.encode([row])
    assert found.labels[0] and np.isfinite(found.probabilities[0]).all()
    assert found.labels[1] == "" and np.isnan(found.probabilities[1]).all()


def test_a_pixel_beyond_its_range_has_no_prediction() -> None:
    splits = catalogue_load("digits")
    model = learner_create("logistic_regression").fit(splits.public.x, splits.public.y, classes=10, seed=1)
    session = onnxruntime.InferenceSession(onnx_file(model, splits.schema, {}))
    images = np.zeros((3, 8, 8), np.float32)
    images[1, 0, 0], images[2, 7, 7] = 1.01, np.nan
    labels, found = session.run(None, {"image": images})
    assert labels[0] and list(labels[1:]) == ["", ""] and np.isnan(found[1:]).all()


def test_the_file_says_what_it_is(table_model: Model) -> None:
    """A column may even have the name of an output."""
    session = _shown(table_model)
    assert [each.name for each in session.get_outputs()] == ["label_", "probabilities"]
    assert [each.name for each in session.get_inputs()] == [column.name for column in TABLE.features]
    document = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    assert document["classes"] == ["no", "yes"] and document["card"] == {"purpose": "to test"}
    assert schema_from_json(document["schema"]).features == TABLE.features


def test_the_same_model_gives_the_same_file(table_model: Model) -> None:
    assert onnx_file(table_model, TABLE, {}) == onnx_file(table_model, TABLE, {})
