"""Numbers, times and labels, from the import of a file to the model that predicts; classes alone where nothing else."""

import html
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.test import override_settings
from django.urls import reverse
from ipate_client import LocalModel

from accounting.book import charges_of
from accounting.models import Release
from common.artifacts import model_fetch
from consent.models import DataHolder, Study
from consent.uses import results_of, usage_of
from learning.formats import DataError, Report, Rows, read_file, schema_from_json, schema_to_json
from learning.outcomes import OUTCOME_LABELS
from tests.factories import study_open, user_create
from tests.pages import as_, text, url
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, COUNTS_RUN
from tests.training.people import withdraw
from tests.training.runs import TABLE_RUN, consents_give, head_counts_state, run_draft, run_finish, run_start
from training.engine.records import records_load
from training.forecast_outcomes import forecast_outcomes
from training.models import Dataset, Run
from training.services.datasets import dataset_import
from training.services.downloads import labels_table
from training.services.students import student_predict
from training.services.thresholds import model_threshold_set
from training.services.trainings import student_ask, student_learn
from training.verification import batches_kept, release_faults, replay_faults

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

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
    """A file whose first measurement says nearly everything."""
    rng = np.random.default_rng(seed)
    length, width = rng.random((2, number))
    answers: dict[str, Callable[[float, float], str]] = {
        "numbers": lambda a, b: f"{10 + 30 * a + rng.normal(0, 2):.3f}",
        "times": lambda a, b: f"{rng.exponential(40 * np.exp(-4 * a)):.2f},{rng.choice(['dead'] * 4 + ['alive'])}",
        "labels": lambda a, b: f"{'y' if a > 0.5 else 'n'},{int(b > 0.5)}",
    }
    heads = {"numbers": "weight", "times": "days,state", "labels": "a,b"}
    rows = [
        f"p-{place},{a:.4f},{b:.4f},{answers[kind](a, b)}"
        for place, (a, b) in enumerate(zip(length, width, strict=True))
    ]
    return [f"who,length,width,{heads[kind]}", *rows]


def rows_of(kind: str, number: int, seed: int, folder: Path, **fields: bool) -> Rows:
    path = folder / f"{kind}-{seed}.csv"
    path.write_text("\n".join(lines(kind, number, seed)))
    return read_file(path, schema_from_json(document(kind)), **fields)


@built_once
def study_of(kind: str, folder: str) -> Study:
    study, schema, at = study_open(kind, delta=1e-4, retain_votes=True), schema_from_json(document(kind)), Path(folder)
    for part, rows in (
        ("private", rows_of(kind, 120, 1, at)),
        ("public", rows_of(kind, 60, 2, at, labels=False, holders=False)),
        ("test", rows_of(kind, 150, 3, at, holders=False)),
    ):
        dataset_import(study=study, name=part, kind=part, rows=rows, schema=schema)
    consents_give(study, "L")
    head_counts_state(study)
    return study


@pytest.fixture(params=KINDS)
def study(request: pytest.FixtureRequest, tmp_path: Path) -> Study:
    return study_of(request.param, str(tmp_path))


def learned(study: Study, **fields: Any) -> Run:
    return run_finish(run_start(study, **RUN | fields))


@override_settings(LEAST_TEST_POINTS=100)
def test_a_run_is_learned_checked_published_and_told(study: Study, exact: None) -> None:
    kind = study.slug
    run = learned(study)
    assert run.status == Run.Status.FINISHED, run.message
    assert run.position == 20
    assert list(release_faults(run)) == []
    for batch in batches_kept(study):
        assert list(replay_faults(batch)) == []
    student = run.student
    assert student is not None, "it is better than whoever knows nothing"
    card = student.card
    assert (card["target"], card["classes"], card["fairness"]) == (run.schema["target"], [], None)
    deciding = card["evaluation"]["measures"][0]
    assert deciding["value"] > deciding["nothing"] + 0.05 and card["evaluation"]["points"] == 150
    assert bool(card["evaluation"]["curve"]) == (kind == "times")
    (forecast,) = forecast_outcomes(run)
    assert (forecast.forecast.measure, forecast.came) == (deciding["label"], deciding["value"])
    assert forecast.forecast.judged == 50 and forecast.forecast.low < forecast.forecast.high
    assert "Forecast and outcome" in text(as_("olga").get(url("run", run)))


def test_the_site_the_file_and_the_page_say_the_same(study: Study, exact: None) -> None:
    run = learned(study)
    rows = [ROW, {"length": 0.1, "width": 0.8}, {"length": 7, "width": 0.5}]
    served, local = student_predict(run.student, rows), LocalModel(model_fetch(run.student.onnx)).predict(rows)
    assert local.classes == served["columns"]
    np.testing.assert_allclose(local.probabilities, served["values"], atol=1e-9)
    assert local.outside == served["outside"] == [[], [], ["length"]]
    assert local.frame().shape == (3, 1 + len(served["columns"]))
    values = np.array(served["values"])
    match study.slug:
        case "numbers":
            assert (values[:, 1] <= values[:, 0]).all() and (values[:, 0] <= values[:, 2]).all()
            assert served["predictions"][0] > served["predictions"][1]  # shrunk, as the noise of the plan has it
        case "times":
            assert (np.diff(values, axis=1) <= 0).all() and values[0, 1] < values[1, 1]
        case _:
            assert values[0, 0] > values[1, 0] and values[1, 1] >= values[0, 1]
            entries = [[name for name, p in zip(served["columns"], row, strict=True) if p > 0.5] for row in values]
            assert served["predictions"] == entries
    page = text(as_("olga").get(url("run", run)))
    assert "Judged by 150 points" in page and "choose the threshold" not in page


def test_holders_read_what_was_learned_and_which_records_are_theirs(study: Study, exact: None) -> None:
    run = learned(study)
    (result,) = results_of(study)
    assert result.worth and "150 test records" in result.quality
    assert result.predicts.startswith(("It estimates", "It answers"))
    holder = DataHolder.objects.get(study=study, pseudonym="p-0")
    document = usage_of(holder).records()["private"]["labels"]
    private = records_load(run.private_dataset)
    (code,) = private["y"][private["holder"] == holder.pk].tolist()
    assert document == [run.learns.written(code)]
    assert run.private_dataset.seen_classes == []


def test_methods_for_classes_refuse_other_outcomes_when_proposed(study: Study) -> None:
    words = OUTCOME_LABELS[study.slug]
    for method in (TABLE_RUN, *([ASKING_RUN] if study.slug == "times" else [])):
        with pytest.raises(ValidationError, match=f"does not learn {words}"):
            run_draft(study, **method)
    with pytest.raises(ValidationError, match="class"):
        run_draft(study, **COUNTS_RUN)
    assert run_draft(study, **COUNTS_RUN | {"choices": {"column": "width"}}).status == Run.Status.DRAFT


def test_runs_are_proposed_changed_and_repeated_on_pages(study: Study) -> None:
    draft, olga = run_draft(study, **RUN), as_("olga")
    for address in (url("run_new", study), f"{url('run_new', study)}?like={draft.pk}"):
        assert olga.get(address).status_code == 200
    assert as_("otto").get(url("run_edit", draft)).status_code == 200


def test_what_is_about_classes_refuses_a_finished_run(study: Study, exact: None) -> None:
    run, olga = learned(study), user_create("olga")
    with pytest.raises(ValidationError, match="threshold"):
        model_threshold_set(run=run, acting_user=olga, class_name="a", missed=1, false_alarm=1)


@override_settings(LEAST_TEST_POINTS=100)
def test_a_model_that_knows_nothing_is_not_published(study: Study, exact: None, tmp_path: Path) -> None:
    """Test records whose answers are others'."""
    rows = rows_of(study.slug, 150, 3, tmp_path, holders=False)
    mixed = Rows(rows.x[::-1].copy(), rows.y)
    schema = schema_from_json(document(study.slug))
    test = dataset_import(study=study, name="mixed", kind="test", rows=mixed, schema=schema)
    run = learned(study, test_dataset=test)
    assert run.status == Run.Status.FINISHED and run.student is None, run.message
    assert "no better than whoever knows nothing" in text(as_("olga").get(url("run", run)))


def test_a_schema_of_another_target_does_not_fit(study: Study, tmp_path: Path) -> None:
    other = document("numbers" if study.slug != "numbers" else "labels")
    schema = schema_from_json(other)
    rows = Rows(np.zeros((3, 2), np.float32))
    dataset_import(study=study, name="other", kind="public", rows=rows, schema=schema)
    assert schema_from_json(schema_to_json(schema)) == schema
    with pytest.raises(ValidationError, match="differ from those of the private dataset"):
        run_draft(study, **RUN | {"public_dataset": Dataset.objects.get(name="other")})


@pytest.mark.parametrize("kind", KINDS)
def test_faults_of_a_file_name_row_and_column(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    wrong = {"numbers": "x", "times": "-3,gone", "labels": "maybe,2"}[kind]
    heading, first, *_rest = lines(kind, 3, 1)
    path.write_text("\n".join([heading, first, f"p-9,0.5,0.5,{wrong}"]))
    report = Report()
    read_file(path, schema_from_json(document(kind)), report=report)
    faults = [(fault.row, fault.column) for fault in report.faults]
    names = [column["name"] for column in TARGETS[kind]["columns"] if column["role"] == "target"]
    assert faults == [(3, name) for name in names]


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_hold_a_column_for_each_part(kind: str, tmp_path: Path) -> None:
    schema, path = schema_from_json(document(kind)), tmp_path / "rows.npz"
    y = {"numbers": [12.5, 50.0], "times": [[3.0, 1.0], [50.0, 0.0]], "labels": [[1, 0], [1, 1]]}[kind]
    np.savez(path, x=np.zeros((2, 2)), y=np.array(y))
    rows = read_file(path, schema, holders=False)
    assert rows.y is not None
    assert [schema.outcome.written(code) for code in rows.y.tolist()] == {
        "numbers": ["12.5 kg", "50 kg"],
        "times": ["3 days", "more than 40 days"],
        "labels": ["long", "long, wide"],
    }[kind]
    np.savez(path, x=np.zeros((2, 2)), y=np.full((2, 3), np.nan))
    with pytest.raises(DataError, match="Save numbers with these columns"):
        read_file(path, schema, holders=False)


def test_a_withdrawal_excludes_from_the_next_run(study: Study) -> None:
    holder = DataHolder.objects.get(study=study, pseudonym="p-3")
    withdraw(holder)
    run = learned(study)
    assert run.status == Run.Status.FINISHED, run.message
    for release in Release.objects.filter(run=run.pk, batch__isnull=False):
        assert holder.pk not in charges_of(release).holders


def test_lists_and_comparisons_tell_the_first_measure_in_place_of_an_accuracy(study: Study, exact: None) -> None:
    run = learned(study, share=0.4)
    assert run.student is not None
    evaluation = run.student.card["evaluation"]["measures"]
    first = f"{evaluation[0]['label']}: {evaluation[0]['of']}" if evaluation[0]["of"] else evaluation[0]["label"]
    page = as_("olga").get(reverse("staff:runs", args=[study.slug]))
    assert f"{first} {evaluation[0]['value']:.3f}" in html.unescape(text(page))
    counted = run_start(study, share=0.1, **COUNTS_RUN | {"choices": {"column": "length", "bins": 2}})
    address = reverse("staff:run_compare", args=[study.slug])
    found = as_("olga").get(address, {"run": [run.pk, counted.pk]})
    assert found.status_code == 200
    names, rows = zip(*((name, row) for name, _shared, row in found.context["measures"]), strict=True)
    assert (names[0], len(names)) == (first, len(evaluation))
    assert (rows[0][0].value, rows[0][1].value) == (f"{evaluation[0]['value']:.3f}", "–")
    for of_classes in ("Accuracy on the test data", "Most frequent class", "Labels that are right"):
        assert of_classes not in found.text


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


@override_settings(LEAST_TEST_POINTS=None)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_learn_is_published_as_the_file_says_it(study: Study, exact: None, way: str) -> None:
    if way == "votes" and study.slug == "times":
        pytest.skip("votes are not for times")
    run = learned(study, **WAYS[way] | {"batch_size": 20})
    assert run.status == Run.Status.FINISHED, run.message
    assert list(release_faults(run)) == []
    for batch in batches_kept(study):
        assert list(replay_faults(batch)) == []
    assert run.student is not None
    deciding = run.student.card["evaluation"]["measures"][0]
    if way != "network":  # which takes far more steps
        assert deciding["value"] > deciding["nothing"] + 0.05
    rows = [ROW, {"length": 0.1, "width": 0.8}, {"length": 0.4, "width": 0.5}]
    served, local = student_predict(run.student, rows), LocalModel(model_fetch(run.student.onnx)).predict(rows)
    np.testing.assert_allclose(local.probabilities, served["values"], atol=1e-5, rtol=1e-5)
    assert local.classes == served["columns"] == list(run.learns.columns)
    page = text(as_("olga").get(url("run", run)))
    assert "Judged by 150 points" in page
    if way == "votes":
        labels = as_("olga").get(url("run_labels", run))
        assert labels.status_code == 200 and run.learns.categories[1] in html.unescape(text(labels))
        assert labels_table(run)[0][2:] == [f"count_{name}" for name in run.learns.categories]


@override_settings(LEAST_TEST_POINTS=None)
def test_another_student_learns_from_the_same_releases(study: Study, exact: None) -> None:
    run = learned(study)
    training = student_ask(run=run, student_learner="boosting", student_parameters={}, acting_user=user_create("olga"))
    student_learn(training.pk)
    version = run.students.latest("version")
    assert (version.version, version.learner) == (2, "boosting"), training.message
    page, listed = (html.unescape(as_("olga").get(url(*where)).text) for where in (("run", run), ("models", study)))
    for each in run.students.all():
        first = each.card["evaluation"]["measures"][0]
        label = f"{first['label']}: {first['of']}" if first["of"] else first["label"]
        assert f"{label} {first['value']:.3f}" in page.partition("Held-out agreement")[2]
        assert each.pk != run.student_id or f"{label} {first['value']:.3f}" in listed
    deciding = version.card["evaluation"]["measures"][0]
    assert deciding["value"] > deciding["nothing"]
    rows = student_predict(version, [ROW])
    assert len(rows["values"][0]) == len(run.learns.columns)


@override_settings(LEAST_TEST_POINTS=None)
def test_pages_and_api_tell_what_a_student_learned_from_true_answers(study: Study, exact: None, tmp_path: Path) -> None:
    schema, rows = schema_from_json(document(study.slug)), rows_of(study.slug, 60, 5, tmp_path, holders=False)
    public = dataset_import(study=study, name="answered", kind="public", rows=rows, schema=schema)
    run = learned(study, public_dataset=public, choices=RUN["choices"] | {"publish": "student"})
    student_learn(run.trainings.get().pk)
    version, olga = run.students.get(), as_("olga")
    for page in ("run", "ledger_report"):
        assert olga.get(url(page, run)).status_code == 200
    answer = olga.get(reverse("api:run-students", args=[run.pk]))
    (told,) = answer.json()["versions"]
    assert told["evaluation"]["measures"] == version.card["evaluation"]["measures"]
    assert "accuracy" not in told["evaluation"]
    if study.slug == "times":  # of people who were censored early the true category is not known
        assert told["reference"] is None
    else:
        assert told["reference"]["measures"] == version.reference["measures"]


def test_eight_labels_are_learned_without_a_student(tmp_path: Path) -> None:
    names = list("abcdefgh")
    columns = [*COLUMNS, *({"name": name, "role": "target", "part": name} for name in names)]
    schema = schema_from_json(
        {"kind": "table", "classes": [], "target": {"kind": "labels", "names": names}, "columns": columns}
    )
    study = study_open("eight", delta=1e-4)
    rng = np.random.default_rng(1)
    for part, holders in (("private", [f"p-{number}" for number in range(40)]), ("public", None)):
        codes = rng.integers(0, 256, 40)
        rows = Rows(rng.random((40, 2)).astype(np.float32), codes if holders else None, holders)
        dataset_import(study=study, name=part, kind=part, rows=rows, schema=schema)
    consents_give(study, "L")
    head_counts_state(study)
    alone = {"test_dataset": None}
    with pytest.raises(ValidationError, match="Votes cannot be for so many labels"):
        run_draft(study, **ASKING_RUN | alone)
    for choices, message in (
        ({"rounds": 2}, "none learns so many labels"),
        ({"publish": "student"}, "no student learns"),
    ):
        with pytest.raises(ValidationError, match=message):
            run_draft(study, **RUN | alone | {"choices": choices})
    run = learned(study, **alone)
    assert (run.status, run.student_learner) == (Run.Status.FINISHED, ""), run.message
    with pytest.raises(ValidationError, match="So many labels no student learns"):
        student_ask(run=run, student_learner="shares", student_parameters={}, acting_user=user_create("olga"))


@override_settings(LEAST_TEST_POINTS=None)
def test_every_number_of_a_card_follows_from_the_file_and_the_test_data(
    study: Study, exact: None, tmp_path: Path
) -> None:
    """By the scripts of the documents, which have their own formulas."""
    run = learned(study)
    document = (Path(settings.BASE_DIR) / "docs" / "outcomes.md").read_text()
    scripts = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    assert len(scripts) == 2 and all(script.count("\n") <= 30 for script in scripts)
    (tmp_path / "card.py").write_text(scripts[study.slug == "times"])
    (tmp_path / "model.onnx").write_bytes(model_fetch(run.student.onnx))
    rows_of(study.slug, 150, 3, tmp_path, holders=False)
    command = [sys.executable, "card.py", "model.onnx", f"{study.slug}-3.csv"]
    environment = {"PYTHONPATH": str(settings.BASE_DIR), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the card says") == len(run.student.card["evaluation"]["measures"])
