"""The student: what it learned from, what its card tells, what it answers."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.artifacts import arrays_load, model_fetch
from training.formats import DataError
from training.models import Dataset, Run
from training.services.students import student_predict

pytestmark = pytest.mark.django_db


def finished(study: Any, **fields: Any) -> Run:
    run = run_finish(run_start(study, **TABLE_RUN | fields))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_the_student_learns_from_released_labels_alone() -> None:
    """Its answers are those of a learner that saw nothing but the answered points."""
    study = study_with_table(points=12)
    run = finished(study, aggregator={"name": "gnmax", "sigma": 40.0}, wanted_labels=5)
    public = arrays_load(Dataset.objects.get(study=study, kind="public").artifact)
    released = dict(run.queries.values_list("row", "label"))
    assert len(released) == 5
    rows = [{"length": float(x[0]), "width": float(x[1])} for x in public["x"][list(released)]]
    answers = student_predict(run.student, rows)
    assert answers["predictions"] == [answers["classes"][label] for label in released.values()]
    right = [label == public["y"][row] for row, label in released.items()]
    assert run.student.label_accuracy == pytest.approx(np.mean(right))


def test_the_stored_model_is_the_one_that_the_card_belongs_to() -> None:
    run = finished(study_with_table())
    assert hashlib.sha256(model_fetch(run.student.artifact)).hexdigest() == run.student.digest


def test_the_evaluation_is_per_class_and_counts_add_up() -> None:
    run = finished(study_with_table(), aggregator={"name": "gnmax", "sigma": 40.0})
    evaluation = run.student.card["evaluation"]
    assert [part["class"] for part in evaluation["classes"]] == ["a", "b", "c"]
    assert sum(part["points"] for part in evaluation["classes"]) == evaluation["points"] == 21
    hits = sum(part["recall"] * part["points"] for part in evaluation["classes"])
    assert hits / 21 == pytest.approx(evaluation["accuracy"])


def test_without_a_test_dataset_there_is_no_evaluation() -> None:
    run = finished(study_with_table(), test_dataset=None)
    assert run.student.accuracy is None
    assert run.student.card["evaluation"] is None


def test_the_card_tells_what_users_need_and_nothing_secret() -> None:
    study = study_with_table()
    run = finished(study, method="exact", variant="upsampling", aggregator={"name": "gnmax", "sigma": 20.0})
    card = run.student.card
    assert card["privacy"]["delta"] == study.delta
    assert card["privacy"]["unit"] == "data holder"
    assert card["learned_from"]["labels"] == run.labels
    assert card["privacy"]["mechanism"] == {"name": "gnmax", "sigma": 20.0}
    assert run.plan["aggregator"]["sigma"] != 20.0, "the scaled noise tells the sizes of the groups"
    for group, told in zip(run.account.groups.all(), card["privacy"]["groups"], strict=True):
        assert told["epsilon_promised"] == group.epsilon
        exact = float(run.account.epsilon(group.published_rdp))
        assert exact <= told["epsilon_published"] < exact + 0.1, "rounded up, so that weights are not told"
        assert set(told) == {"level", "epsilon_promised", "epsilon_published"}
    words = json.dumps(card)
    secrets = ["teacher_accuracy", "holders", "spent", "weight", "votes", "predictions", "seed", "past"]
    assert not [word for word in secrets if f'"{word}' in words]
    assert run.teacher_accuracy is not None
    numbers = [
        str(run.teacher_accuracy),
        *(str(run.account.epsilon(group.spent_rdp)) for group in run.account.groups.all()),
    ]
    assert not [number for number in numbers if number in words]


def test_without_any_label_the_run_fails_and_says_what_to_do() -> None:
    run = run_finish(run_start(study_with_table(), **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 0.05}}))
    assert run.status == Run.Status.FAILED
    assert "larger σ makes labels cheaper" in run.message
    assert not hasattr(run, "student")


@pytest.mark.parametrize("learner", ["random_forest", "logistic_regression", "nearest_neighbour"])
def test_a_student_that_saw_one_class_alone_still_works(learner: str) -> None:
    run = finished(study_with_table(), student_learner=learner, wanted_labels=1)
    assert len(set(student_predict(run.student, [{"length": 0.1, "width": 0.5}])["predictions"])) == 1


ROW = {"length": 0.1, "width": 0.5}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "no rows"),
        ([ROW, {"length": 0.1}], "row 2, column width: The column is missing"),
        ([{**ROW, "holder": "P-1"}], "Unknown columns: holder"),
        ([{**ROW, "length": "long"}], "column length"),
        ([{**ROW, "length": float("nan")}], "column length"),
        ([{**ROW, "length": None}], "column length"),
        ([[0.1, 0.5]], "no object"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_their_place(rows: list, told: str) -> None:
    run = finished(study_with_table(), wanted_labels=1)
    with pytest.raises(DataError, match=told):
        student_predict(run.student, rows)


def test_predictions_are_classes_with_probabilities() -> None:
    run = finished(study_with_table(points=24), aggregator={"name": "gnmax", "sigma": 40.0})
    answers = student_predict(run.student, [ROW, {"length": 0.9, "width": 0.5}])
    assert answers["classes"] == ["a", "b", "c"]
    assert np.sum(answers["probabilities"], axis=1) == pytest.approx([1.0, 1.0])
    best = [answers["classes"][int(np.argmax(row))] for row in answers["probabilities"]]
    assert answers["predictions"] == best
