"""Which models are published and withdrawn, thresholds, and recomputing a card."""

import csv
import re
import runpy
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ValidationError
from ipate_client import LocalModel
from rest_framework.test import APIClient
from scipy.special import softmax

from accounting.models import Release
from accounting.verification import study_faults
from common.artifacts import arrays_load, model_fetch
from common.noise import SimulationNoise
from consent.models import Mail, Role, Study
from consent.services import membership_add
from ipate_web.tokens.models import ApiToken
from learning.calibration import Calibration
from learning.formats import Rows
from learning.measures import base_loss, calibration, losses
from learning.published import published_load
from tests.factories import study_open, user_create
from tests.pages import as_, run_text, url
from tests.snapshots import built_once
from tests.training.asking import EVERYBODY, SAMPLED_RUN, STEPS_RUN
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_finish, run_start, study_fill, study_with_table
from training.engine import questions
from training.measures import evaluated
from training.models import Run, StudentModel
from training.services.downloads import onnx_store, version_load
from training.services.publication import model_threshold_set, publication_doubts
from training.services.students import student_ask, student_learn, student_predict, student_publish, student_withdraw
from training.verification import release_faults

pytestmark = pytest.mark.django_db

GOOD = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 40.0}}
NOISY = {"student_learner": "logistic_regression"}


def finished(**fields: object) -> Run:
    run = run_finish(run_start(study_with_table(points=30), **GOOD | fields))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_a_useless_model_needs_a_person_and_a_reason_to_publish(settings: Any) -> None:
    """There are too few test points to show that the model is useful."""
    settings.LEAST_TEST_POINTS = 1000
    run = finished(wanted_labels=10)
    assert run.student is None and run.students.count() == 1
    assert list(release_faults(run)) == []
    browser, address = as_("olga"), url("run_student_publish", run, 1)
    page = browser.get(url("run", run)).text
    assert "did not publish it" in page and address in page
    assert browser.post(address, {}).status_code == 422
    run.refresh_from_db()
    assert run.student is None
    with pytest.raises(ValidationError, match="Enter a reason"):
        student_publish(run=run, version=1, acting_user=user_create("olga"))
    assert browser.post(address, {"reason": "To show what too few labels do."}).status_code == 302
    run.refresh_from_db()
    assert run.student is not None and run.student.publication_reason == "To show what too few labels do."
    assert "To show what too few labels do." in run_text(browser, run)
    release = Release.objects.get(run=run.pk, kind=Release.Kind.CHOICE)
    assert release.content["reason"] == "To show what too few labels do."
    assert list(release_faults(run)) == [] and list(study_faults(run.study)) == []


def test_only_a_useful_and_well_tested_model_is_published_automatically(settings: Any) -> None:
    settings.LEAST_TEST_POINTS = 100
    truth = np.arange(120) % 2
    good = np.where(np.arange(120) < 90, 0.8, 0.2)
    shares = np.column_stack([np.where(truth == 0, good, 1 - good), np.where(truth == 0, 1 - good, good)])
    names = ["no", "yes"]
    assert publication_doubts(evaluated(shares, truth, names)) == []
    assert publication_doubts(evaluated(shares[:99], truth[:99], names))
    assert publication_doubts(evaluated(shares[:, ::-1], truth, names)), "it says the opposite"
    assert publication_doubts(evaluated(np.tile([0.9, 0.1], (120, 1)), truth, names)), "the useless run"
    assert publication_doubts(evaluated(shares, np.zeros(120, np.int64), names)), "test points of one class"
    assert publication_doubts(None)
    rare = np.arange(120) < 20
    at_risk = np.where(rare, 0.4, 0.1)
    evaluation = evaluated(np.column_stack([1 - at_risk, at_risk]), rare.astype(np.int64), names)
    assert evaluation["area"] == 1, "it can tell who is at risk"
    assert "On the test data, the model may be no better" in publication_doubts(evaluation)[0], "and always says no"


def study_of_chance() -> Study:
    """Return 160 people of three classes with weakly informative records, and 400 test points."""
    parts = {}
    for seed, (kind, number) in enumerate((("private", 160), ("public", 150), ("test", 400))):
        rng = np.random.default_rng(seed)
        x = rng.random((number, 2))
        chances = softmax(2.5 * np.stack([0.5 - x[:, 0], np.full(number, -0.1), x[:, 0] - 0.5], axis=1), axis=1)
        classes = (rng.random((number, 1)) > chances.cumsum(axis=1)[:, :2]).sum(axis=1)
        owners = [f"p-{place}" for place in range(number)] if kind == "private" else None
        parts[kind] = Rows(x.astype(np.float32), classes, owners)
    return study_fill(study_open("chance", delta=1e-4), parts)


@pytest.mark.exhaustive
def test_an_over_confident_run_publishes_probabilities_that_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small ridge, the steps fit their noise, and the weights become overconfident.

    Their loss is above that of always predicting the class shares; that of the published model is below.
    """
    monkeypatch.setattr(questions, "noise_of", lambda run: SimulationNoise(1))
    run = run_finish(run_start(study_of_chance(), **STEPS_RUN | {"choices": {"ridge": 2.0}, "batch_size": 60}))
    assert run.status == Run.Status.FINISHED, run.message
    run.refresh_from_db()
    model, test = run.student, arrays_load(run.test_dataset.artifact)
    assert model is not None and model.calibration["scale"] < 0.6
    x, truth = test["x"], test["y"]
    before = published_load(model.learner, model_fetch(model.artifact)).predict_proba(x)
    rows = [{"length": float(length), "width": float(width)} for length, width in x]
    after = np.array(student_predict(model, rows)["probabilities"])
    np.testing.assert_allclose(LocalModel.of(model_fetch(model.onnx)).predictions(rows).probabilities, after, atol=1e-9)
    base = base_loss(truth, 3)
    assert losses(before, truth).mean() > base + 0.1 > base - 0.02 > losses(after, truth).mean()
    evaluation, sure = model.card["evaluation"], calibration(before, truth)[0].value
    assert evaluation["log_loss"] < evaluation["base_log_loss"] and evaluation["calibration_error"] < 0.6 * sure
    assert before.max(axis=1).mean() > evaluation["accuracy"] + 0.15, "or it was not overconfident"
    assert abs(evaluation["confidence"] - evaluation["accuracy"]) < 0.1


def test_a_threshold_is_the_same_on_the_site_in_the_file_and_in_the_client() -> None:
    run, olga = finished(**NOISY), user_create("olga")
    before = run.student.onnx_digest
    public = arrays_load(run.test_dataset.artifact)["x"]
    rows = [{"length": float(x[0]), "width": float(x[1])} for x in public]
    usual = student_predict(run.student, rows)
    model = model_threshold_set(run=run, acting_user=olga, class_name="b", missed=9.0, false_alarm=1.0)
    assert model.onnx_digest != before
    run.refresh_from_db()
    served, local = student_predict(run.student, rows), LocalModel.of(model_fetch(run.student.onnx)).predictions(rows)
    assert served["probabilities"] == usual["probabilities"]
    assert served["predictions"] == local.labels.tolist()
    pairs = zip(served["predictions"], served["probabilities"], strict=True)
    assert all((said == "b") == (row[1] >= 0.1) for said, row in pairs)
    threshold = run.student.card["threshold"]
    assert (threshold["class"], threshold["least"], threshold["by"]) == ("b", 0.1, {"missed": 9.0, "false_alarm": 1.0})
    truth = arrays_load(run.test_dataset.artifact)["y"]
    found = np.mean([said == "b" for said, true in zip(served["predictions"], truth, strict=True) if true == 1])
    assert threshold["evaluation"]["sensitivity"] == pytest.approx(found, abs=0.0051)
    assert list(release_faults(run)) == []
    assert Release.objects.get(run=run.pk, kind=Release.Kind.THRESHOLD).content["threshold"] == threshold
    model_threshold_set(run=run, acting_user=olga)
    run.refresh_from_db()
    assert student_predict(run.student, rows) == usual
    assert list(release_faults(run)) == []


def test_a_wanted_sensitivity_lowers_the_threshold_and_one_that_nobody_chose_is_found() -> None:
    run, olga = finished(**NOISY), user_create("olga")
    least = []
    for wanted in (0.5, 0.99):
        model = model_threshold_set(run=run, acting_user=olga, class_name="c", sensitivity=wanted)
        least.append(model.card["threshold"]["least"])
    assert least[1] < least[0]
    for lacks in ({"class_name": "d"}, {"class_name": "a"}, {"class_name": "a", "sensitivity": 0.9, "missed": 1.0}):
        with pytest.raises(ValidationError):
            model_threshold_set(run=run, acting_user=olga, **lacks)
    card = model.card | {"threshold": {"class": "a", "least": 0.01, "by": {}, "evaluation": None}}
    run.students.update(card=card, calibration=model.calibration | {"scale": 9.0})
    faults = " ".join(release_faults(Run.objects.get(pk=run.pk)))
    assert "threshold of student version 1" in faults and "calibration of student version 1" in faults


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(GOOD | NOISY, id="pate"),
        *(
            pytest.param(fields, id=name, marks=pytest.mark.exhaustive)
            for name, fields in {
                "neighbours": EVERYBODY | NOISY | {"choices": {"rounds": 1, "sigma": 3.0}, "batch_size": 30},
                "balanced steps": STEPS_RUN | {"choices": {"steps": 20, "balance": True}, "batch_size": 20},
                "samples' network": SAMPLED_RUN | {"choices": SAMPLED_RUN["choices"] | {"network": "mlp"}},
            }.items()
        ),
    ],
)
def test_every_number_of_a_card_follows_from_the_file_and_the_test_data(fields: dict, tmp_path: Path) -> None:
    """As published, and with a threshold; the calibration is part of the file."""
    run = run_finish(run_start(study_with_table(levels="L", holders=60, points=30), share=0.5, **fields))
    assert run.status == Run.Status.FINISHED, run.message
    run.refresh_from_db()
    model = run.student
    assert model.calibration != Calibration.none(3).to_json()
    result = card_computed(run, tmp_path)
    assert "area:" in result
    model_threshold_set(run=run, acting_user=user_create("olga"), class_name="b", missed=9.0, false_alarm=1.0)
    run.refresh_from_db()
    assert card_computed(run, tmp_path).startswith(result), "a threshold does not change probabilities"
    run.student.card["threshold"]["evaluation"]["sensitivity"] = 0.123
    run.student.onnx, _digest = onnx_store("forged", version_load(run.student), run, run.student.card)
    with pytest.raises(AssertionError, match="sensitivity"):
        card_computed(run, tmp_path)


def card_computed(run: Run, folder: Path) -> str:
    """Return what the documents' script computes for the published model."""
    text = (Path(django_settings.BASE_DIR) / "docs" / "evaluation.md").read_text()
    script = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert script is not None and script[1].count("\n") <= 30
    (folder / "card.py").write_text(script[1])
    (folder / "model.onnx").write_bytes(model_fetch(run.student.onnx))
    arrays = arrays_load(run.test_dataset.artifact)
    with (folder / "test.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["length", "width", "class"])
        lines.writerows(
            [*map(repr, map(float, x)), run.classes[y]] for x, y in zip(arrays["x"], arrays["y"], strict=True)
        )
    said = StringIO()
    arguments = ["card.py", f"{folder}/model.onnx", f"{folder}/test.csv", "class"]
    with patch.object(sys, "argv", arguments), redirect_stdout(said):
        runpy.run_path(f"{folder}/card.py")
    return said.getvalue()


REASON = "Its labels of class b were swapped."
ROWS = {"rows": [{"length": 0.2, "width": 0.5}]}


@pytest.fixture
@built_once
def run() -> Run:
    return used_by_many(study_with_table())


def used_by_many(study: Study) -> Run:
    """Return a finished run of a study with people of every role that may use its model."""
    for name in ("rita", "rob", "ruth", "olaf", "anna"):
        role = Role.RESEARCHER if name.startswith("r") else Role.OPERATOR
        membership_add(study=study, user=user_create(name), role=role, acting_user=None)
    return run_finish(run_start(study, **TABLE_RUN))


def program(name: str) -> APIClient:
    """Return a program that sends this user's token."""
    _row, token = ApiToken.objects.create(user=user_create(name), name="notebook")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client


def test_registry_downloads_and_predictions_show_a_withdrawal(run: Run) -> None:
    address, rita = f"/api/v1/models/{run.pk}", program("rita")
    assert rita.post(f"{address}/predict", ROWS, format="json").status_code == 200
    assert as_("olaf").get(url("run_student_model", run, 1)).status_code == 200
    assert as_("anna").get(url("run_student_onnx", run, 1)).status_code == 200
    assert program("ruth").get(f"{address}/onnx").status_code == 200
    assert program("rob").get(address).status_code == 200, "reading a card is not using the model"

    page = url("run_student_withdraw", run, 1)
    operator = as_("olga")
    assert "4 accounts that downloaded the model" in operator.get(page).text
    assert operator.post(page, {"reason": " "}).status_code == 422
    assert not StudentModel.objects.get().is_withdrawn
    assert operator.post(page, {"reason": REASON}).status_code == 302

    (listed,) = rita.get("/api/v1/models").json()["results"]
    assert listed["withdrawal_reason"] == REASON and listed["withdrawn_at"]
    refused = [rita.get(f"{address}{part}") for part in ("", "/file", "/file?version=1", "/onnx", "/statement")]
    for answer in (*refused, rita.post(f"{address}/predict", ROWS, format="json")):
        assert (answer.status_code, answer["Content-Type"]) == (410, "application/problem+json")
        assert REASON in answer.json()["detail"]
    for page in (url("run_student_model", run, 1), url("run_student_onnx", run, 1)):
        answer = operator.get(page)
        assert answer.status_code == 410 and REASON in answer.text
    html = run_text(operator, run)
    addresses = [url(f"run_student_{kind}", run, 1) for kind in ("model", "onnx")]
    assert REASON in html and not [address for address in addresses if address in html]

    mails = Mail.objects.filter(kind="model_withdrawn")
    assert sorted(mails.values_list("user__username", flat=True)) == ["anna", "olaf", "rita", "ruth"]
    (entry,) = Release.objects.filter(run=run.pk, kind=Release.Kind.WITHDRAWAL)
    assert entry.content["reason"] == REASON and entry.charge == 0 and entry.recorded_by.username == "olga"
    assert list(study_faults(run.study)) == [] and list(release_faults(run)) == []
    student_withdraw(run=run, version=1, reason="Again.", acting_user=user_create("olga"))
    assert mails.count() == 4 and StudentModel.objects.get().withdrawal_reason == REASON


def test_another_version_can_take_its_place_and_it_never_comes_back(run: Run) -> None:
    olga = user_create("olga")
    body = student_ask(run=run, student_learner="nearest_neighbour", student_parameters={}, acting_user=olga)
    student_learn(body.pk)
    student_withdraw(run=run, version=1, reason=REASON, acting_user=olga)
    student_publish(run=run, version=2, acting_user=olga)
    with pytest.raises(ValidationError, match="withdrawn"):
        student_publish(run=run, version=1, acting_user=olga)
    rita, address = program("rita"), f"/api/v1/models/{run.pk}"
    assert rita.get(f"{address}/file").status_code == 200
    assert rita.get(f"{address}/file", {"version": 1}).status_code == 410
    versions = rita.get(f"/api/v1/runs/{run.pk}/students").json()["versions"]
    assert [version["withdrawal_reason"] for version in versions] == [REASON, ""]
    assert list(release_faults(Run.objects.get(pk=run.pk))) == []


def test_a_withdrawal_notifies_all_users_of_a_rehearsal_and_one_that_is_not_in_the_register_is_found(run: Run) -> None:
    rehearsed = used_by_many(rehearsal_with_table())
    student_withdraw(run=rehearsed, version=1, reason=REASON, acting_user=user_create("olga"))
    mails = set(Mail.objects.filter(kind="model_withdrawn").values_list("user__username", flat=True))
    assert {"rita", "rob", "olaf", "olga"} <= mails
    assert not Release.objects.filter(run=rehearsed.pk).exists()
    run.students.update(withdrawn_at=run.ended_at, withdrawal_reason="Behind the register's back.")
    assert any("withdrawn" in fault for fault in release_faults(run))
