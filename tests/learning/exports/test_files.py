"""Published models as ONNX files give the site's predictions without any part of iPATE."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learning.formats import DataError, ImageSchema, Rows, Splits, TabularSchema, catalogue_load, schema_from_json
from learning.formats.columns import CategoricalColumn, CodeColumn, DateColumn, NumericColumn
from learning.learners import Model, learner_create
from learning.published import network_learner, published_load
from learning.representations import REPRESENTATIONS, LinearModel, Whitened, layers_of_model
from learning.students import STUDENTS, labelled, student_create, student_learn
from tests.learning.lazily import LocalModel, graphs, network_create, networks, onnx_file, onnxruntime

FAST = {"random_forest": {"trees": 15}, "cnn": {"epochs": 1}, "nearest_neighbour": {"neighbours": 3}}
FAST |= {"boosting": {"iterations": 8}, "consistency": {"steps": 2, "filters": 6, "thorough": True}}
POINTS, ROWS = 150, 40
CODES = CodeColumn("code", "icd9", missing=("?",)), CodeColumn("diagnosis", "icd10", missing=("?", "U00"))
COLUMNS = (
    *(NumericColumn("label", 0, 7), NumericColumn("weight", -1, 1, missing=("?",))),
    CategoricalColumn("place", ("here", "there"), missing=("", "none")),
    CategoricalColumn("other", ("a", "ü"), other=True),
    *(*CODES, CodeColumn("drug", "atc"), CodeColumn("test", "loinc", missing=("",))),
    DateColumn("born", 0, 100, missing=("",), until="2026-01-01"),
)
TABLE = TabularSchema(COLUMNS, ("no", "yes"))


def made_up() -> tuple[Splits, list[dict[str, Any]]]:
    """Return a table with a column of every type, and the rows of its test records."""
    rng = np.random.default_rng(3)
    labels = rng.uniform(0, 7, POINTS + ROWS)
    values = {"weight": ["?", "-0.5", "0.9"], "place": ["here", "there", ""], "other": ["a", "ü", "elsewhere"]}
    values |= {"code": ["?", "001", "140.2", "250.01", "401", "V30.0", "E880"], "drug": ["A10BA02", "C07", "V"]}
    values |= {"diagnosis": ["?", "U00", "E11.90", "C7A.0", "I50", "T80.1XXA"], "born": ["", "12.5", "80"]}
    values |= {"test": ["", "2345-7", "718-7", "99999-9"]}
    rows = [{"label": label} | {name: rng.choice(of) for name, of in values.items()} for label in labels]
    everything = Rows(TABLE.encode(rows), (labels > 3).astype(np.int64))
    return Splits(everything[:1], everything[:POINTS], everything[POINTS:], TABLE), rows[POINTS:]


def coloured() -> Splits:
    """Return colour images, large enough for every network."""
    rng, schema = np.random.default_rng(4), ImageSchema(16, 17, 3, ("a", "b", "c"))
    labels = rng.integers(0, 3, POINTS + ROWS)
    images = 0.7 * rng.random((POINTS + ROWS, 16, 17, 3)) + 0.1 * labels[:, None, None, None]
    everything = Rows(images.astype(np.float32), labels)
    return Splits(everything[:1], everything[:POINTS], everything[POINTS:], schema)


@pytest.fixture(params=["table", "digits", pytest.param("colour", marks=pytest.mark.exhaustive)])
def splits(request: pytest.FixtureRequest) -> tuple[Splits, list[Any]]:
    """Return records, and the unencoded rows of those to be predicted."""
    if request.param == "table":
        return made_up()
    found = coloured() if request.param == "colour" else catalogue_load("digits")
    return found, list(found.test.x[:ROWS])


def student(name: str, splits: Splits) -> Model | None:
    """Return a student's model, if it accepts these records."""
    made = student_create(name, FAST.get(name))
    try:
        made.shape_check(splits.schema.shape)
    except ValueError:
        return None
    x, y = splits.public.x[:POINTS], splits.public.y[:POINTS]
    return student_learn(made, x, labelled(np.arange(len(x)), y, classes=len(splits.schema.classes)), seed=1)


def models(splits: Splits) -> Iterator[tuple[str, Model]]:
    """Yield a model of every published learner that accepts these records, and of every representation."""
    public, classes = splits.public.x[:POINTS], len(splits.schema.classes)
    images, rng = public.ndim > 2, np.random.default_rng(1)
    students = {name: model for name in STUDENTS if (model := student(name, splits))}
    yield from students.items()
    for name, kind in REPRESENTATIONS.items():
        if kind.texts or (kind.images and not images) or (name == "student" and not images):
            continue
        chosen: dict[str, Any] = {"steps": 2} if name == "learned" else {}
        if name == "student":
            chosen = {"wavelets": True, "layers": layers_of_model(students["consistency"])}
        space = kind(**chosen).fit(public)
        yield "linear", LinearModel(space, rng.normal(0, 0.01, (space.dimensions + 1, classes)), 127.0)
    for name in networks.NETWORKS:
        if name != "cnn" or (min(public.shape[1:3]) >= 16 and images):
            network = network_create(name, public.shape[1:], classes, 1)
            yield network_learner(name), networks.NetworkModel(network, classes, public.shape[1:])
    space = Whitened(components=8).fit(public)
    network = network_create("mlp", (space.dimensions,), classes, 1)
    yield network_learner("mlp"), networks.NetworkModel(network, classes, public.shape[1:], space=space, scale=1 / 127)


def test_every_file_predicts_what_the_site_does(splits: tuple[Splits, list[Any]]) -> None:
    records, rows = splits
    x, names = records.schema.encode(rows), np.array(records.schema.classes)
    for learner, model in models(records):
        expected = published_load(learner, model.to_bytes()).predict_proba(x)
        found = LocalModel.of(onnx_file(model, records.schema, {"of": learner})).predictions(rows)
        assert found.probabilities == pytest.approx(expected, abs=1e-5), learner
        assert (found.labels == names[expected.argmax(axis=1)]).all(), learner


def test_a_model_that_knows_only_some_classes_is_exported() -> None:
    """Only one class, two, and some in the middle."""
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


GOOD = {"label": 3.3, "weight": 0.25, "place": "there", "other": "ü", "code": "250.01", "diagnosis": "I50.1"}
GOOD |= {"drug": "A10BA02", "test": "718-7", "born": 40.25}
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


@pytest.fixture(scope="module")
def table_model() -> Model:
    """Return a model that distinguishes any two records."""
    rng = np.random.default_rng(2)
    x = rng.random((60, *TABLE.shape)).astype(np.float32)
    return learner_create("logistic_regression").fit(x, rng.integers(0, 2, 60), classes=2, seed=1)


def test_rows_are_encoded_as_the_site_does_or_have_no_prediction(table_model: Model) -> None:
    content = onnx_file(table_model, TABLE, {})
    model, session = LocalModel.of(content), onnxruntime.InferenceSession(content)
    found, expected = model.predictions(ALLOWED), table_model.predict_proba(TABLE.encode(ALLOWED))
    assert found.probabilities == pytest.approx(expected, abs=1e-7)
    assert set(model.predict(ALLOWED)) <= {"no", "yes"}
    for row in REFUSED:
        kinds = {column.name: np.float64 if isinstance(column, NumericColumn) else object for column in COLUMNS}
        inputs = {name: np.array([GOOD[name], row[name]], kind) for name, kind in kinds.items()}
        labels, probabilities = session.run(None, inputs)
        assert labels[0] and np.isfinite(probabilities[0]).all()
        assert labels[1] == "" and np.isnan(probabilities[1]).all(), row
    splits, images = catalogue_load("digits"), np.zeros((3, 8, 8), np.float32)
    digits = learner_create("logistic_regression").fit(splits.public.x, splits.public.y, classes=10, seed=1)
    images[1, 0, 0], images[2, 7, 7] = 1.01, np.nan
    session = onnxruntime.InferenceSession(onnx_file(digits, splits.schema, {}))
    labels, found = session.run(None, {"image": images})
    assert labels[0] and list(labels[1:]) == ["", ""] and np.isnan(found[1:]).all(), "pixels outside their range"


FAULTY: list[Any] = [
    *REFUSED,
    *({**GOOD, "label": value} for value in (None, True, "old", "1,5", "1,000", 10**400, [1], "Infinity", "")),
    *({**GOOD, "place": value} for value in (2.0**60, 2**60, True, "x" * 90, "a\x00b")),
    *({**GOOD, "code": value} for value in (None, 1e17)),
    *({**GOOD, "born": value} for value in ("1976-01-01", "?")),
    *({**GOOD, "extra": 1}, {name: GOOD[name] for name in list(GOOD)[1:]}, [1, 2], "row"),
]


def test_the_client_refuses_what_the_site_refuses_in_its_words(table_model: Model) -> None:
    from ipate_client import RowsError
    from ipate_client.rows import sendable

    model = LocalModel.of(onnx_file(table_model, TABLE, {}))
    unequal = [np.float32(3), np.float64(0.5), np.int64(2), Decimal("2.5"), pd.NA, pd.NaT, np.nan, np.inf, -np.inf]
    names = ("label", "weight", "place", "other", "born")
    rows = [*FAULTY, *ALLOWED, *({**GOOD, name: value} for name in names for value in unequal)]
    for row in rows:
        try:
            expected = table_model.predict_proba(TABLE.encode(sendable([GOOD, row])))
        except DataError as error:
            with pytest.raises(RowsError) as caught:
                model.predict([GOOD, row])
            assert (str(caught.value), caught.value.row, caught.value.column) == (str(error), error.row, error.column)
        else:
            assert model.predict_proba([GOOD, row]) == pytest.approx(expected, abs=1e-7), row


def test_scikit_learn_finds_an_estimator(table_model: Model) -> None:
    """All of scikit-learn's checks pass except those that train the model or change its number of columns."""
    from sklearn.utils.estimator_checks import check_estimator

    passed = "do_not_raise_errors_in_init_or_set_params dont_overwrite_parameters estimator_cloneable estimator_repr"
    passed += " estimator_tags_renamed estimators_fit_returns_self estimators_overwrite_params get_params_invariance"
    passed += " fit_check_is_fitted mixin_order no_attributes_set_in_init parameters_default_constructible set_params"
    passed += " positive_only_tag_during_fit readonly_memmap_input valid_tag_types decision_proba_consistency"
    model = LocalModel.of(onnx_file(table_model, TABLE, {}))
    found = {each["check_name"] for each in check_estimator(model, on_fail=None) if each["status"] == "passed"}
    assert {f"check_{name}" for name in passed.split()} - found == set()


def test_categories_are_matched_as_the_site_spells_them(table_model: Model) -> None:
    values = ("Yes", "1", "TRUE", "M\u00fcller")
    schema = TabularSchema((CategoricalColumn("v", values, missing=("-9",), other=True),), ("no", "yes"))
    model = learner_create("logistic_regression").fit(
        np.eye(5, dtype=np.float32)[np.arange(40) % 5], np.arange(40) % 5 % 2, classes=2, seed=1
    )
    content = onnx_file(model, schema, {})
    written = [" Yes", "yes", "1.0", " 1", "1.00", "true", "True", "Mu\u0308ller ", "-9.0", "x", True, 1, 1.0]
    rows = [{"v": value} for value in written]
    found, places = LocalModel.of(content).predictions(rows), schema.encode(rows)
    assert found.probabilities == pytest.approx(model.predict_proba(places), abs=1e-7)
    assert found.outside == schema.outside(rows)
    session = onnxruntime.InferenceSession(content)
    spelled = np.array(["1.0", "true", "True", "TRUE", "-9.0"], object)
    alike = schema.encode([{"v": value} for value in spelled])
    assert session.run(None, {"v": spelled})[1] == pytest.approx(model.predict_proba(alike), abs=1e-7)
    assert "without spaces" in session.get_modelmeta().custom_metadata_map["cells"]


def test_the_file_describes_itself_and_is_reproducible(table_model: Model) -> None:
    """A column may even have the name of an output."""
    content = onnx_file(table_model, TABLE, {"purpose": "to test"})
    session = onnxruntime.InferenceSession(content)
    assert content == onnx_file(table_model, TABLE, {"purpose": "to test"})
    assert [each.name for each in session.get_outputs()] == ["label_", "probabilities"]
    assert [each.name for each in session.get_inputs()] == [column.name for column in TABLE.features]
    document = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    assert document["classes"] == ["no", "yes"] and document["card"] == {"purpose": "to test"}
    assert schema_from_json(document["schema"]).features == TABLE.features


@pytest.mark.parametrize("missing", [(), ("",), ("?", "n.a.")])
@pytest.mark.parametrize(
    "codes", ["icd9 250.83 V45 E812", "icd10 E11.90 I50 C7A.0", "loinc 2345-7 99999-9 718-7", "atc A10BA02 C07 V"]
)
def test_a_graph_reads_several_codes_as_the_schema_does(codes, missing):
    from learning.exports.files import encoded

    system, first, second, third = codes.split()
    schema = TabularSchema((CodeColumn("d", system, missing, several=True),), ("a", "b"))
    graph = graphs.Graph()
    x, sound = encoded(graph, schema)
    content = graph.to_bytes({"x": (x, graphs.FLOAT, ("width",)), "sound": (sound, graphs.BOOL, ())}, {})
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    values = [first, f"{first};{second}", f" {first} ; {second};{third};", f"{first};;{second}", f"\t{first}", ""]
    values += [";", " ; ", "?", "n.a.", f"?;{first}", f"{first}; ?", "?;?", f"{first};xx", "xx", f"{first},{second}"]
    found, allowed = session.run(None, {"d": np.array(values, object)})
    for value, record, is_allowed in zip(values, found, allowed, strict=True):
        try:
            wanted = schema.columns[0].encode([value])[0]
        except DataError:
            assert not is_allowed, value
        else:
            assert is_allowed and (record == wanted).all(), value
    with pytest.raises(DataError, match="A marker for missing values looks the same as"):
        CodeColumn("d", "icd10", ("U00",), several=True)
