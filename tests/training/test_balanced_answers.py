"""Models that nearly always give the same answer, and runs that balance the answers between the classes."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.utils.translation import override
from rest_framework.test import APIClient
from scipy.special import log_softmax

from common.artifacts import arrays_load, model_fetch
from common.noise import SimulationNoise
from common.sentences import Sentence
from consent.models import Role, Study
from consent.services import membership_add
from ipate_web.tokens.models import ApiToken
from learning.formats import Rows
from learning.mechanisms.steps.steps_plan import Steps
from tests.factories import study_open, user_create
from tests.learning.lazily import LocalModel, metrics
from tests.pages import as_, run_text, text, url
from tests.training.asking import SAMPLED_RUN, STEPS_RUN
from tests.training.runs import TABLE, consents_give, head_counts_state, run_draft, run_finish, run_start
from training.engine import questions
from training.measures import cautions, evaluated
from training.methods import steps
from training.models import Run
from training.services.datasets import dataset_import
from training.services.downloads import version_load
from training.services.publication import publication_doubts
from training.services.students import student_predict
from training.uses import results
from training.verification import release_faults

NAMES = ["a", "b", "c"]


def rare_rows(number: int, seed: int, spread: float, owners: list[str] | None = None) -> Rows:
    """Return records of ``TABLE``, four fifths of class a; the others differ in length, but overlap with it."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(3, number, p=[0.8, 0.12, 0.08])
    length = np.array([0.5, 0.3, 0.7])[classes] + rng.normal(0.0, spread, number)
    x = np.column_stack([length, rng.random(number)]).clip(0, 1)
    return Rows(x.astype(np.float32), classes.astype(np.int64), owners)


def study_with_rare_classes(spread: float) -> Study:
    study = study_open("rare", delta=1e-4)
    owners = [f"p-{place:03}" for place in range(300)]
    parts = {"private": rare_rows(300, 0, spread, owners), "public": rare_rows(150, 1, spread)}
    parts["test"] = rare_rows(400, 2, spread)
    for kind, rows in parts.items():
        shown = Rows(rows.x, None) if kind == "public" else rows
        dataset_import(study=study, name=kind, kind=kind, rows=shown, schema=TABLE)
    consents_give(study, "L")
    head_counts_state(study)
    return study


def finished(study: Study, **fields: Any) -> Run:
    choices = {"steps": 12, "publish": "model"} | fields.pop("choices", {})
    with patch.object(questions, "noise_of", lambda run: SimulationNoise(1)):
        run = run_finish(run_start(study, **STEPS_RUN | {"choices": choices, "batch_size": 12} | fields))
    assert run.status == Run.Status.FINISHED, run.message
    run.refresh_from_db()
    return run


def program(study: Study) -> APIClient:
    """Return a program of a researcher of the study."""
    membership_add(study=study, user=user_create("rita"), role=Role.RESEARCHER, acting_user=None)
    _row, token = ApiToken.objects.create(user=user_create("rita"), name="notebook")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client


def probabilities(predicted: np.ndarray) -> np.ndarray:
    return 0.1 + 0.7 * np.eye(3)[predicted]


@pytest.mark.parametrize(("found", "warns"), [(1, True), (2, True), (3, False), (20, False)])
def test_a_model_with_nearly_always_the_same_answer_is_cautioned_against(found: int, warns: bool) -> None:
    """Of the 20 test points of rare classes, it finds this many; what counts is nine tenths of them."""
    truth = np.repeat([0, 1, 2], [80, 12, 8])
    predicted = np.where(np.arange(100) < 100 - found, 0, truth)
    evaluation = evaluated(probabilities(predicted), truth, NAMES)
    assert evaluation["balanced_accuracy"] == pytest.approx(
        metrics.balanced_accuracy_score(truth, predicted), abs=0.0051
    )
    assert evaluation["answers"] == {"class": "a", "points": 100, "share": 1 - found / 100, "missed": 1 - found / 20}
    said = cautions(evaluation, 1.0)
    assert bool(said) == warns
    if warns:
        balanced = round(100 * evaluation["balanced_accuracy"])
        assert f"“a” for {100 - found} % of the test points, including {100 - 5 * found} % of those" in said[0]
        assert f"which is {balanced} % (always giving the same answer: 33 %)" in said[0]


def test_a_model_is_not_cautioned_against_if_the_data_have_a_single_class() -> None:
    truth = np.zeros(50, np.int64)
    evaluation = evaluated(probabilities(truth), truth, NAMES)
    assert evaluation["answers"]["missed"] is None and evaluation["balanced_accuracy"] == 1.0
    assert cautions(evaluation, 1.0) == []


@pytest.mark.django_db
def test_pages_and_api_say_that_a_model_nearly_always_gives_the_same_answer(settings: Any) -> None:
    """The rare classes overlap so much with the first that no point more probably belongs to them."""
    settings.LEAST_TEST_POINTS = None
    run = finished(study_with_rare_classes(0.35))
    evaluation = run.student.card["evaluation"]
    assert evaluation["answers"]["class"] == "a" and evaluation["answers"]["missed"] >= 0.9
    assert evaluation["accuracy"] > 0.75 > 0.45 > evaluation["balanced_accuracy"]
    browser = as_("olga")
    for page in (url("run_tab", run, "result"), url("run_tab", run, "card"), url("model", run)):
        shown = text(browser.get(page))
        assert "The model answers “a” for" in shown, page
        assert "Judge the model by its balanced accuracy, the mean" in shown, page
    assert "this model nearly always answers “a”, balanced accuracy:" in run_text(browser, run)
    assert "this model nearly always answers “a”" in text(browser.get(url("runs", run.study)))
    client = program(run.study)
    (listed,) = client.get("/api/v1/runs").json()["results"]
    (model,) = client.get("/api/v1/models").json()["results"]
    assert listed["balanced_accuracy"] == model["measures"]["balanced_accuracy"] == evaluation["balanced_accuracy"]
    assert listed["balanced_accuracy"] < listed["majority"]
    assert model["measures"]["answers"] == evaluation["answers"]
    assert model["cautions"][0].startswith("The model answers “a” for")


@pytest.mark.django_db
def test_without_test_data_public_points_show_that_a_model_always_gives_the_same_answer(settings: Any) -> None:
    settings.LEAST_TEST_POINTS = None
    run = finished(study_with_rare_classes(0.35), test_dataset=None)
    card = run.student.card
    assert card["evaluation"] is None and card["answers"]["class"] == "a" and not card["answers"]["labelled"]
    shown = text(as_("olga").get(url("run_tab", run, "result")))
    assert "According to its own probabilities, these include" in shown


@pytest.mark.django_db
def test_balanced_answers_find_rare_classes_and_leave_probabilities_unchanged(settings: Any) -> None:
    """The same run without balance has the same releases, because its noise is the same."""
    settings.LEAST_TEST_POINTS = 100
    study = study_with_rare_classes(0.12)
    usual, run = (finished(study, share=0.3, choices={"balance": balance}) for balance in (False, True))
    assert "balance" not in usual.student.card and "likeliest" not in usual.student.card["evaluation"]
    card, before = run.student.card, usual.student.card["evaluation"]
    evaluation = card["evaluation"]
    assert {name: before[name] for name in ("log_loss", "brier", "calibration_error", "area", "confidence")} == {
        name: evaluation[name] for name in ("log_loss", "brier", "calibration_error", "area", "confidence")
    }
    assert evaluation["likeliest"] == {name: before[name] for name in ("accuracy", "interval", "balanced_accuracy")}
    assert evaluation["balanced_accuracy"] > before["balanced_accuracy"] + 0.03
    assert evaluation["accuracy"] < before["accuracy"]

    test, public = (arrays_load(dataset.artifact) for dataset in (run.test_dataset, run.public_dataset))
    rows = [{"length": float(length), "width": float(width)} for length, width in test["x"]]
    served, local = student_predict(run.student, rows), LocalModel.of(model_fetch(run.student.onnx)).predictions(rows)
    assert served["probabilities"] == student_predict(usual.student, rows)["probabilities"]
    assert served["predictions"] == local.labels.tolist()
    shares = version_load(run.student).predict_proba(public["x"]).mean(axis=0)
    assert card["balance"]["shares"] == pytest.approx(shares.tolist(), abs=1e-6)
    corrected = log_softmax(np.log(served["probabilities"]) - np.log(shares), axis=1)
    predicted = [NAMES.index(name) for name in served["predictions"]]
    assert predicted == corrected.argmax(axis=1).tolist()
    assert evaluation["accuracy"] == pytest.approx((np.array(predicted) == test["y"]).mean(), abs=0.0026)

    assert (
        publication_doubts(evaluation) == []
        and "balanced accuracy" in publication_doubts(evaluation | {"balanced_accuracy_interval": [0.33, 0.4]})[0]
    )
    shown = text(run_text(as_("olga"), run))
    cost = f"{round(100 * evaluation['accuracy'])} % of the answers are right, compared with"
    for words in (
        "answers are balanced: each answer is the class whose",
        cost,
        "the class whose probability is largest compared with its share",
    ):
        assert words in shown
    ordinary, balanced = (each.quality for each in reversed(results(study)))
    right, equally = (round(100 * evaluation[name]) for name in ("accuracy", "balanced_accuracy"))
    assert f"The model is right in about {right} of 100 cases" in balanced and "equally common" not in ordinary
    assert (
        f"right in about {equally} of 100 cases. Always giving the same answer would be right in 33 of 100." in balanced
    )
    with override("de"):
        assert f"in etwa {equally} von 100 Fällen richtig. Wer immer dieselbe Antwort gäbe" in results(study)[0].quality
    assert any("Answers are balanced" in str(Sentence.from_json(note)) for note in run.plan["notes"])
    forecast = card["forecasts"][0]
    assert forecast["came"] == before["accuracy"], "forecasts are about the most likely class"
    assert list(release_faults(run)) == []


@pytest.mark.django_db
def test_a_students_answers_are_balanced_by_its_own_probabilities(settings: Any) -> None:
    settings.LEAST_TEST_POINTS = None
    fields = {"student_learner": "logistic_regression", "choices": {"balance": True, "publish": "student"}}
    run = finished(study_with_rare_classes(0.12), **fields)
    assert run.student.learner == "logistic_regression"
    public = arrays_load(run.public_dataset.artifact)["x"]
    shares = version_load(run.student).predict_proba(public).mean(axis=0)
    assert run.student.card["balance"]["shares"] == pytest.approx(shares.tolist(), abs=1e-6)
    evaluation = run.student.card["evaluation"]
    assert evaluation["balanced_accuracy"] > evaluation["likeliest"]["balanced_accuracy"]


@pytest.mark.exhaustive
@pytest.mark.django_db
def test_rows_drawn_from_counts_balance_answers_if_there_are_no_public_points(settings: Any) -> None:
    settings.LEAST_TEST_POINTS = None
    fields = {"public_dataset": None, "student_learner": ""}
    run = finished(study_with_rare_classes(0.12), choices={"publish": "", "balance": True}, **fields)
    shares = version_load(run.student).predict_proba(steps.rows_of(run)).mean(axis=0)
    assert run.student.card["balance"]["shares"] == pytest.approx(shares.tolist(), abs=1e-6)


@pytest.mark.django_db
def test_sampled_steps_cannot_balance_without_public_points() -> None:
    sampled = SAMPLED_RUN | {"choices": {"balance": True}, "public_dataset": None, "student_learner": ""}
    with pytest.raises(ValidationError, match="Balancing needs public points"):
        run_draft(study_with_rare_classes(0.12), **sampled)


def test_choices_of_earlier_versions_do_not_balance() -> None:
    assert not Steps.from_json({"steps": 6, "publish": "model"}).balance
