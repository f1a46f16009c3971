"""The student: what it learned from, what its card tells, what it answers."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from django.core.files.storage import storages

from accounting.models import Release
from accounting.shares import shares
from common.artifacts import arrays_load, model_fetch, model_store
from common.row_hashes import json_digest
from learning.formats import DataError
from tests.factories import policy_approve
from tests.training.runs import TABLE_RUN, head_counts_state, run_finish, run_start, study_with_table
from training.accuracy import published_accuracy
from training.models import Dataset, Run, StudentModel
from training.services.students import student_predict
from training.verification import release_faults

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


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
    assert run.student.label_accuracy == published_accuracy(sum(right), 5)


def test_every_accuracy_that_is_published_is_rounded_and_classes_add_up() -> None:
    """7 points of each class and 21 in all: of whole points, hardly a share is a whole number of hundredths."""
    run = finished(
        study_with_table(points=33), aggregator={"name": "gnmax", "sigma": 30.0}, student_learner="random_forest"
    )
    card, evaluation = run.student.card, run.student.card["evaluation"]
    published = [run.student.accuracy, run.student.label_accuracy, card["learned_from"]["label_accuracy"]]
    for part in evaluation["classes"]:
        published += [part["precision"], part["recall"]]
    entries = [share for share in published if share is not None]
    assert set(entries) - {0.0, 1.0}, "the student is not perfect, so that there is something to round"
    assert entries == [round(share, 2) for share in entries]
    assert "Accuracies are rounded" in card["rounding"]
    assert [part["class"] for part in evaluation["classes"]] == ["a", "b", "c"]
    assert sum(part["points"] for part in evaluation["classes"]) == evaluation["points"] == 21
    hits = sum(round(part["recall"] * part["points"]) for part in evaluation["classes"])
    assert evaluation["accuracy"] == run.student.accuracy == published_accuracy(hits, 21)


def test_the_card_tells_what_users_need_and_the_promise_that_it_keeps() -> None:
    study = study_with_table()
    study.datasets.filter(kind="public").update(provenance="Measured in another town")
    run = finished(study, variant="upsampling", aggregator={"name": "gnmax", "sigma": 20.0})
    card = run.student.card
    assert card["learned_from"]["labels"] == run.labels
    assert card["learned_from"]["provenance"] == "Measured in another town"
    privacy = card["privacy"]
    assert (privacy["unit"], privacy["delta"]) == ("data holder", study.delta)
    assert privacy["groups"] == [
        {"level": "HIGH", "epsilon": 1.0},
        {"level": "AVERAGE", "epsilon": 2.0},
        {"level": "LOW", "epsilon": 3.0},
    ]
    assert privacy["earlier"] == []
    assert privacy["share"] == pytest.approx(shares(study)[run.pk].used)
    words = json.dumps(card)
    secrets = ["teacher_accuracy", "votes", "predictions", "seed", "account"]
    assert not [word for word in secrets if f'"{word}"' in words]


def test_the_card_names_the_largest_promise_that_was_in_force() -> None:
    """A charge up to ε 3 before it became 2.5 is not undone: 2.5 does not hold over all that the study releases."""
    study = study_with_table()
    policy_approve(study, high=0.8, average=2.0, low=2.5)
    policy_approve(study, high=0.9, average=2.0, low=2.4)
    head_counts_state(study)
    privacy = finished(study, share=0.5).student.card["privacy"]
    assert {group["level"]: group["epsilon"] for group in privacy["groups"]} == {"HIGH": 0.9, "AVERAGE": 2, "LOW": 2.4}
    assert privacy["earlier"] == [{"level": "HIGH", "epsilon": 1.0}, {"level": "LOW", "epsilon": 3.0}]
    assert "promised a larger ε before" in privacy["exception"]


def test_a_model_is_entered_into_the_register() -> None:
    run = finished(study_with_table(), test_dataset=None)
    release = Release.objects.get(run=run.pk, kind=Release.Kind.MODEL)
    assert release.content == {
        "digest": run.student.digest,
        "onnx": run.student.onnx_digest,
        "learner": "nearest_neighbour",
        "labels": run.labels,
        "version": 1,
        "calibration": run.student.calibration,
        "card": json_digest(run.student.card),
        "published": True,
    }
    assert hashlib.sha256(model_fetch(run.student.artifact)).hexdigest() == run.student.digest
    assert (release.charge, release.charges) == (0.0, ""), "it follows from labels that were charged"
    assert run.student.accuracy is None and run.student.card["evaluation"] is None, "without test points"


def test_a_changed_card_and_a_file_that_was_exchanged_or_lost_are_found() -> None:
    run = finished(study_with_table())
    assert list(release_faults(run)) == []
    for file in (run.student.artifact, run.student.onnx):
        content = model_fetch(file)
        model_store(file, content + b"0")
        assert ["not the one that was recorded" in fault for fault in release_faults(run)] == [True]
        storages["models"].delete(file)
        assert ["is missing" in fault for fault in release_faults(run)] == [True]
        model_store(file, content)
    StudentModel.objects.filter(run=run).update(card={**run.student.card, "purpose": "Another one"})
    assert any("the card of version 1" in fault for fault in release_faults(run))


@pytest.mark.parametrize("learner", ["random_forest", "logistic_regression", "nearest_neighbour"])
def test_a_student_that_saw_one_class_alone_still_works(learner: str) -> None:
    run = finished(study_with_table(), student_learner=learner, wanted_labels=1)
    assert len(set(student_predict(run.student, [{"length": 0.1, "width": 0.5}])["predictions"])) == 1


def test_predictions_are_classes_with_probabilities_and_other_rows_are_refused_with_their_place() -> None:
    row = {"length": 0.1, "width": 0.5}
    run = finished(study_with_table(points=24), aggregator={"name": "gnmax", "sigma": 40.0})
    answers = student_predict(run.student, [row, {"length": 0.9, "width": 0.5}])
    assert answers["classes"] == ["a", "b", "c"]
    assert np.sum(answers["probabilities"], axis=1) == pytest.approx([1.0, 1.0])
    best = [answers["classes"][int(np.argmax(each))] for each in answers["probabilities"]]
    assert answers["predictions"] == best
    refused: list[tuple[list, str]] = [
        ([], "no rows"),
        ([row, {"length": 0.1}], "row 2, column width: The column is missing"),
        ([{**row, "holder": "P-1"}], "Unknown columns: holder"),
        ([{**row, "length": "long"}], "column length"),
        ([{**row, "length": float("nan")}], "column length"),
        ([{**row, "length": None}], "column length"),
        ([[0.1, 0.5]], "no object"),
    ]
    for rows, message in refused:
        with pytest.raises(DataError, match=message):
            student_predict(run.student, rows)
