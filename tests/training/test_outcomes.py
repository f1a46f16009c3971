"""Numbers, times and labels, from importing a file to the model's predictions; some features support only classes."""

import html
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.test import override_settings
from ipate_client import LocalModel

from common.artifacts import model_fetch
from consent.models import DataHolder, Study
from consent.promises.uses import results_of, usage_of
from learning.formats import Rows, read_file, schema_from_json, schema_to_json
from learning.outcomes import OUTCOME_LABELS
from tests.draws import NoNoise
from tests.factories import study_open, user_create
from tests.pages import as_, run_text, text, url
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, COUNTS_RUN, assert_whole
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, study_fill
from training.comparison import forecast_outcomes
from training.engine import questions
from training.engine.records import records_load
from training.models import Run
from training.services.datasets import dataset_import
from training.services.downloads import labels_table
from training.services.publication import model_threshold_set
from training.services.students import student_ask, student_predict

pytestmark = pytest.mark.django_db

COLUMNS = [
    {"name": "who", "role": "holder"},
    *(
        {"name": name, "role": "feature", "type": "numeric", "minimum": 0, "maximum": 1, "missing": []}
        for name in ("length", "width")
    ),
]
TARGETS: dict[str, dict[str, Any]] = {
    "numbers": {
        "target": {"kind": "numbers", "minimum": 0, "maximum": 50, "unit": "kg"},
        "columns": [*COLUMNS, {"name": "weight", "role": "target", "part": "value"}],
    },
    "times": {
        "target": {"kind": "times", "ends": [5, 10, 20, 40], "unit": "days"},
        "columns": [
            *COLUMNS,
            {"name": "days", "role": "target", "part": "time"},
            {"name": "state", "role": "target", "part": "event", "numbers": {"dead": 1, "alive": 0}},
        ],
    },
    "labels": {
        "target": {"kind": "labels", "names": ["long", "wide"]},
        "columns": [
            *COLUMNS,
            {"name": "a", "role": "target", "part": "long", "numbers": {"y": 1, "n": 0}},
            {"name": "b", "role": "target", "part": "wide"},
        ],
    },
}
KINDS = list(TARGETS)
STUDENT = {"student_learner": "shares", "student_parameters": {}}
RUN: dict[str, Any] = {"method": Run.Method.SGD, "choices": {"steps": 20, "ridge": 0.0}, "batch_size": 10} | STUDENT
ROW = {"length": 0.9, "width": 0.2}


def document(kind: str) -> dict[str, Any]:
    return {"kind": "table", "classes": [], **TARGETS[kind]}


def lines(kind: str, number: int, seed: int) -> list[str]:
    """Return a file whose first measurement determines nearly everything."""
    rng = np.random.default_rng(seed)
    length, width = rng.random((2, number))
    answers: dict[str, Callable[[float, float], str]] = {
        "numbers": lambda a, b: f"{10 + 30 * a + rng.normal(0, 2):.3f}",
        "times": lambda a, b: f"{rng.exponential(40 * np.exp(-4 * a)):.2f},{rng.choice(['dead'] * 4 + ['alive'])}",
        "labels": lambda a, b: f"{'y' if a > 0.5 else 'n'},{int(b > 0.5)}",
    }
    heads = {"numbers": "weight", "times": "days,state", "labels": "a,b"}
    values = [(a, b, answers[kind](a, b)) for a, b in zip(length, width, strict=True)]
    rows = [f"p-{place},{a:.4f},{b:.4f},{answer}" for place, (a, b, answer) in enumerate(values)]
    return [f"who,length,width,{heads[kind]}", *rows]


def rows_of(kind: str, number: int, seed: int, folder: Path, **fields: bool) -> Rows:
    path = folder / f"{kind}-{seed}.csv"
    path.write_text("\n".join(lines(kind, number, seed)))
    return read_file(path, schema_from_json(document(kind)), **fields)


@built_once
def study_of(kind: str, folder: str = "") -> Study:
    """Return a study of 120 people, with its files in ``folder`` or in a temporary one."""
    study, schema = study_open(kind, delta=1e-4, retain_votes=True), schema_from_json(document(kind))
    with TemporaryDirectory() as temporary:
        at = Path(folder or temporary)
        parts = {
            "private": rows_of(kind, 120, 1, at),
            "public": rows_of(kind, 60, 2, at, labels=False, holders=False),
            "test": rows_of(kind, 150, 3, at, holders=False),
        }
    return study_fill(study, parts, schema=schema)


def learned(study: Study, **fields: Any) -> Run:
    """Return a run without noise that has ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "noise_of", lambda run: NoNoise())
        run = run_finish(run_start(study, **RUN | fields))
    assert run.status == Run.Status.FINISHED, run.message
    return run


@built_once
def learned_of(kind: str, **fields: Any) -> Run:
    return learned(study_of(kind), share=0.9, **fields)


@pytest.fixture(params=KINDS)
def study(request: pytest.FixtureRequest) -> Study:
    return study_of(request.param)


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Run:
    return learned_of(request.param)


def test_a_run_is_learned_checked_published_and_told(run: Run) -> None:
    kind, student = run.study.slug, run.student
    assert run.position == 20
    assert_whole(run)
    assert student is not None, "it is better than an uninformed guess"
    card = student.card
    assert (card["target"], card["classes"], card["fairness"]) == (run.schema["target"], [], None)
    deciding = card["evaluation"]["measures"][0]
    assert deciding["value"] > deciding["nothing"] + 0.05 and card["evaluation"]["points"] == 150
    assert bool(card["evaluation"]["curve"]) == (kind == "times")
    (forecast,) = forecast_outcomes(run)
    assert (forecast.forecast.measure, forecast.came) == (deciding["label"], deciding["value"])
    assert forecast.forecast.judged == 50 and forecast.forecast.low < forecast.forecast.high
    page = text(run_text(as_("olga"), run))
    assert "Forecast and result" in page and "Measured on 150 points" in page and "choose a threshold" not in page
    with pytest.raises(ValidationError, match="threshold"):
        model_threshold_set(run=run, acting_user=user_create("olga"), class_name="a", missed=1, false_alarm=1)


def test_the_site_and_the_file_say_the_same(run: Run) -> None:
    rows = [ROW, {"length": 0.1, "width": 0.8}, {"length": 7, "width": 0.5}]
    served, local = student_predict(run.student, rows), LocalModel.of(model_fetch(run.student.onnx)).predictions(rows)
    assert local.classes == served["columns"]
    np.testing.assert_allclose(local.probabilities, served["values"], atol=1e-9)
    assert local.outside == served["outside"] == [[], [], ["length"]]
    assert local.frame().shape == (3, 1 + len(served["columns"]))
    values = np.array(served["values"])
    match run.study.slug:
        case "numbers":
            assert (values[:, 1] <= values[:, 0]).all() and (values[:, 0] <= values[:, 2]).all()
            assert served["predictions"][0] > served["predictions"][1]  # shrunk by the plan's noise
        case "times":
            assert (np.diff(values, axis=1) <= 0).all() and values[0, 1] < values[1, 1]
        case _:
            assert values[0, 0] > values[1, 0] and values[1, 1] >= values[0, 1]
            entries = [[name for name, p in zip(served["columns"], row, strict=True) if p > 0.5] for row in values]
            assert served["predictions"] == entries


def test_holders_read_what_was_learned_and_which_records_are_theirs(run: Run) -> None:
    (result,) = results_of(run.study)
    assert result.worth and "150 test records" in result.quality
    assert result.predicts.startswith(("For a new record, the model estimates", "The model answers"))
    holder = DataHolder.objects.get(study=run.study, pseudonym="p-0")
    private = records_load(run.private_dataset)
    (code,) = private["y"][private["holder"] == holder.pk].tolist()
    assert usage_of(holder).records()["private"]["labels"] == [run.learns.written(code)]
    assert run.private_dataset.seen_classes == []


@pytest.mark.parametrize("study", ["times"], indirect=True)
def test_what_does_not_learn_an_outcome_is_refused_when_proposed(study: Study) -> None:
    words = OUTCOME_LABELS[study.slug]
    for method in (TABLE_RUN, *([ASKING_RUN] if study.slug == "times" else [])):
        with pytest.raises(ValidationError, match=f"cannot learn {words}"):
            run_draft(study, **method)
    with pytest.raises(ValidationError, match="class"):
        run_draft(study, **COUNTS_RUN)
    with pytest.raises(ValidationError, match="Only a model that predicts classes can balance them"):
        run_draft(study, **RUN | {"choices": {"balance": True}})
    assert run_draft(study, **COUNTS_RUN | {"choices": {"column": "width"}}).status == Run.Status.DRAFT
    schema = schema_from_json(document("numbers" if study.slug != "numbers" else "labels"))
    assert schema_from_json(schema_to_json(schema)) == schema
    other = dataset_import(
        study=study, name="other", kind="public", rows=Rows(np.zeros((3, 2), np.float32)), schema=schema
    )
    with pytest.raises(ValidationError, match="differ from those of the private dataset"):
        run_draft(study, **RUN | {"public_dataset": other})
    draft, olga = run_draft(study, **RUN | {"public_dataset": study.datasets.get(name="public")}), as_("olga")
    for address in (url("run_new", study), f"{url('run_new', study)}?like={draft.pk}"):
        assert olga.get(address).status_code == 200
    assert as_("otto").get(url("run_edit", draft)).status_code == 200


@pytest.mark.parametrize("study", ["numbers"], indirect=True)
@override_settings(LEAST_TEST_POINTS=100)
def test_a_useless_model_is_not_published(study: Study, tmp_path: Path) -> None:
    """The test records have the answers of other people."""
    rows = rows_of(study.slug, 150, 3, tmp_path, holders=False)
    mixed = Rows(rows.x[::-1].copy(), rows.y)
    schema = schema_from_json(document(study.slug))
    test = dataset_import(study=study, name="mixed", kind="test", rows=mixed, schema=schema)
    run = learned(study, test_dataset=test)
    assert run.student is None, run.message
    assert "On the test data, the model is no better" in text(as_("olga").get(url("run", run)))


WAYS: dict[str, dict[str, Any]] = {
    "votes": STUDENT | {"method": Run.Method.NEIGHBOURS, "choices": {"sigma": 15.0, "radius_share": 0.3}},
    "student of steps": RUN | {"choices": RUN["choices"] | {"publish": "student"}},
    "samples": STUDENT
    | {"method": Run.Method.SGD, "variant": Run.Variant.SCALE, "choices": {"steps": 60, "expected": 1e6}},
    "network": STUDENT
    | {
        "method": Run.Method.SGD,
        "variant": Run.Variant.SCALE,
        "choices": {"steps": 20, "expected": 1e6, "network": "mlp", "publish": "student"},
    },
}


#: One kind of outcome for each way to learn; the others are tested at night.
QUICK = {("numbers", "votes"), ("times", "samples"), ("labels", "network")}


@pytest.mark.parametrize(
    ("study", "way"),
    [
        pytest.param(kind, way, marks=[] if (kind, way) in QUICK else [pytest.mark.exhaustive])
        for kind, way in product(KINDS, WAYS)
        if (kind, way) != ("times", "votes")  # not available for times
    ],
    indirect=["study"],
)
def test_every_way_to_learn_is_published_as_the_file_says_it(study: Study, way: str) -> None:
    run = learned(study, **WAYS[way] | {"batch_size": 20})
    assert_whole(run)
    assert run.student is not None
    deciding = run.student.card["evaluation"]["measures"][0]
    if way != "network":  # needs many more steps
        assert deciding["value"] > deciding["nothing"] + 0.05
    rows = [ROW, {"length": 0.1, "width": 0.8}, {"length": 0.4, "width": 0.5}]
    served, local = student_predict(run.student, rows), LocalModel.of(model_fetch(run.student.onnx)).predictions(rows)
    np.testing.assert_allclose(local.probabilities, served["values"], atol=1e-5, rtol=1e-5)
    assert local.classes == served["columns"] == list(run.learns.columns)
    if way == "votes":
        labels = as_("olga").get(url("run_labels", run))
        assert labels.status_code == 200 and run.learns.categories[1] in html.unescape(text(labels))
        assert labels_table(run)[0][2:] == [f"count_{name}" for name in run.learns.categories]


def test_eight_labels_are_learned_without_a_student(tmp_path: Path) -> None:
    names = list("abcdefgh")
    columns = [*COLUMNS, *({"name": name, "role": "target", "part": name} for name in names)]
    schema = schema_from_json(
        {"kind": "table", "classes": [], "target": {"kind": "labels", "names": names}, "columns": columns}
    )
    rng, parts = np.random.default_rng(1), {}
    for part, holders in (("private", [f"p-{number}" for number in range(40)]), ("public", None)):
        codes = rng.integers(0, 256, 40)
        parts[part] = Rows(rng.random((40, 2)).astype(np.float32), codes if holders else None, holders)
    study = study_fill(study_open("eight", delta=1e-4), parts, schema=schema)
    alone = {"test_dataset": None}
    with pytest.raises(ValidationError, match="That is too many labels to vote on"):
        run_draft(study, **ASKING_RUN | alone)
    for choices, message in (
        ({"rounds": 2}, "The second round needs a student, but no student"),
        ({"publish": "student"}, "too many labels for a student"),
    ):
        with pytest.raises(ValidationError, match=message):
            run_draft(study, **RUN | alone | {"choices": choices})
    run = run_finish(run_start(study, **RUN | alone))
    assert (run.status, run.student_learner) == (Run.Status.FINISHED, ""), run.message
    with pytest.raises(ValidationError, match="too many labels for a student to learn"):
        student_ask(run=run, student_learner="shares", student_parameters={}, acting_user=user_create("olga"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("run", ["times"], indirect=True)
def test_every_number_of_a_card_follows_from_the_file_and_the_test_data(run: Run, tmp_path: Path) -> None:
    """The scripts in the documents have independent formulas."""
    kind = run.study.slug
    document = (Path(settings.BASE_DIR) / "docs" / "outcomes.md").read_text()
    scripts = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    assert len(scripts) == 2 and all(script.count("\n") <= 30 for script in scripts)
    (tmp_path / "card.py").write_text(scripts[kind == "times"])
    (tmp_path / "model.onnx").write_bytes(model_fetch(run.student.onnx))
    rows_of(kind, 150, 3, tmp_path, holders=False)
    command = [sys.executable, "card.py", "model.onnx", f"{kind}-3.csv"]
    environment = {"PYTHONPATH": str(settings.BASE_DIR), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the card says") == len(run.student.card["evaluation"]["measures"])
