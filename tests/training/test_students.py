"""Students: what they learn from, their cards, predictions and versions."""

import hashlib
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.core.files.storage import storages
from django.utils import translation

from accounting.accounts import balances
from accounting.models import Release
from accounting.shares import shares
from accounting.verification import study_faults
from common import __version__
from common.artifacts import arrays_list, arrays_load, model_fetch, model_store
from common.row_hashes import json_digest
from common.sentences import Sentence
from consent.documents.typeset import tagged_pdf
from consent.models import Study
from ipate_web.staff import report
from learning.formats import DataError, Rows
from learning.published import published_load
from learning.students import labelled, student_create
from learning.students import student_learn as students_learn
from tests.draws import NoNoise
from tests.factories import policy_approve, study_open, user_create
from tests.pages import as_, run_text, text, url
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, EVERYBODY, STEPS_RUN
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    head_counts_state,
    run_finish,
    run_start,
    study_fill,
    study_with_data,
    study_with_table,
    table_rows,
)
from training.engine import questions
from training.engine.records import points_of
from training.measures import published_accuracy
from training.methods import student_data_of, student_training
from training.methods.neighbours import question_load
from training.methods.student_training import (
    HELD_OUT,
    Duel,
    StudentData,
    checkpoints_folder,
    run_recipe,
    student_fit,
    student_try,
)
from training.models import Dataset, Query, Run, StudentModel
from training.selectors import run_versions
from training.services import students
from training.services.datasets import dataset_import
from training.services.erasures import dataset_remove
from training.services.forecasts import forecast
from training.services.students import student_ask, student_learn, student_predict, student_publish
from training.verification import release_faults

pytestmark = pytest.mark.django_db


def finished(study: Any, **fields: Any) -> Run:
    run = run_finish(run_start(study, **TABLE_RUN | fields))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_the_student_learns_from_released_labels_alone() -> None:
    """It predicts the same as a learner that saw only the labelled points."""
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


def test_the_student_also_learns_from_labelled_public_rows_which_plan_and_card_say() -> None:
    """Two released labels contain at most two classes; labelled public rows contain the third."""
    study = study_with_table(points=12)
    public = Dataset.objects.get(study=study, kind="public")
    rows = {"open data": table_rows(30), "unlabelled": Rows(table_rows(30).x, None)}
    given = {
        name: dataset_import(study=study, name=name, kind="public", rows=each, schema=TABLE, provenance="A register.")
        for name, each in rows.items()
    }
    fields = {"public_dataset": public, "aggregator": {"name": "gnmax", "sigma": 40.0}, "wanted_labels": 2}
    for wrong, said in ((public, "Choose other"), (given["unlabelled"], "no class labels")):
        with pytest.raises(ValidationError, match=said):
            run_start(study, **TABLE_RUN | fields, share=0.4, labelled_dataset=wrong)
    alone = finished(study, **fields, share=0.4)
    with_rows = finished(study, **fields, share=0.4, labelled_dataset=given["open data"])
    assert alone.student.accuracy < 0.7 < 0.9 < with_rows.student.accuracy
    card = with_rows.student.card["learned_from"]
    assert card["labelled"] == {"dataset": "open data", "rows": 30, "provenance": "A register."}
    assert (card["labels"], alone.student.card["learned_from"]["labelled"]) == (2, None)
    assert any("30 public rows of “open data”" in note for note in forecast(with_rows).notes)
    assert [*study_faults(study), *release_faults(with_rows)] == []
    shown = text(run_text(as_("olga"), with_rows))
    assert shown.count("30 rows of “open data” with their own labels. A register.") == 1
    # After they are removed, no further version can learn from them.
    olga = user_create("olga")
    dataset_remove(dataset=given["open data"], reason="Over.", acting_user=olga)
    with pytest.raises(ValidationError, match="points were removed"):
        student_ask(run=with_rows, student_learner="nearest_neighbour", student_parameters={}, acting_user=olga)


def test_every_accuracy_that_is_published_is_rounded_and_classes_add_up() -> None:
    """With 7 points of each class and 21 in all, hardly any exact share is a whole number of hundredths."""
    run = finished(
        study_with_table(points=33), aggregator={"name": "gnmax", "sigma": 30.0}, student_learner="random_forest"
    )
    card, evaluation = run.student.card, run.student.card["evaluation"]
    published = [run.student.accuracy, run.student.label_accuracy, card["learned_from"]["label_accuracy"]]
    for part in evaluation["classes"]:
        published += [part["precision"], part["recall"]]
    entries = [share for share in published if share is not None]
    assert set(entries) - {0.0, 1.0}, "the student is not perfect, so rounding matters"
    assert entries == [round(share, 2) for share in entries]
    assert "Accuracies are rounded" in card["rounding"]
    assert [part["class"] for part in evaluation["classes"]] == ["a", "b", "c"]
    assert sum(part["points"] for part in evaluation["classes"]) == evaluation["points"] == 21
    hits = sum(round(part["recall"] * part["points"]) for part in evaluation["classes"])
    assert evaluation["accuracy"] == run.student.accuracy == published_accuracy(hits, 21)


def test_the_card_tells_what_users_need_and_the_model_is_entered_into_the_register() -> None:
    study = study_with_table()
    study.datasets.filter(kind="public").update(provenance="Measured in another town")
    run = finished(study, variant="upsampling", aggregator={"name": "gnmax", "sigma": 20.0}, test_dataset=None)
    student, card = run.student, run.student.card
    assert card["learned_from"]["labels"] == run.labels
    assert card["learned_from"]["provenance"] == "Measured in another town"
    privacy, levels = card["privacy"], (("HIGH", 1.0), ("AVERAGE", 2.0), ("LOW", 3.0))
    assert (privacy["unit"], privacy["delta"], privacy["earlier"]) == ("data holder", study.delta, [])
    assert privacy["groups"] == [{"level": level, "epsilon": epsilon} for level, epsilon in levels]
    assert privacy["share"] == pytest.approx(shares(study)[run.pk].used)
    words = json.dumps(card)
    secrets = ["teacher_accuracy", "votes", "predictions", "seed", "account"]
    assert not [word for word in secrets if f'"{word}"' in words]
    release = Release.objects.get(run=run.pk, kind=Release.Kind.MODEL)
    assert release.content == {
        **{"digest": student.digest, "onnx": student.onnx_digest, "learner": "nearest_neighbour"},
        **{"labels": run.labels, "version": 1, "calibration": student.calibration},
        **{"card": json_digest(card), "published": True},
    }
    assert hashlib.sha256(model_fetch(student.artifact)).hexdigest() == student.digest
    assert (release.charge, release.charges) == (0.0, ""), "it follows from labels that were charged"
    assert student.accuracy is None and card["evaluation"] is None, "without test points"


def test_the_card_names_the_largest_promise_that_was_in_force() -> None:
    """A charge up to ε 3 before the policy changed to 2.5 remains, so 2.5 does not cover all releases."""
    study = study_with_table()
    policy_approve(study, high=0.8, average=2.0, low=2.5)
    policy_approve(study, high=0.9, average=2.0, low=2.4)
    head_counts_state(study)
    privacy = finished(study, share=0.5).student.card["privacy"]
    assert {group["level"]: group["epsilon"] for group in privacy["groups"]} == {"HIGH": 0.9, "AVERAGE": 2, "LOW": 2.4}
    assert privacy["earlier"] == [{"level": "HIGH", "epsilon": 1.0}, {"level": "LOW", "epsilon": 3.0}]
    assert "promised a larger ε before" in privacy["exception"]


def test_a_changed_card_and_a_file_that_was_exchanged_or_lost_are_found() -> None:
    run = finished(study_with_table())
    assert list(release_faults(run)) == []
    for file in (run.student.artifact, run.student.onnx):
        content = model_fetch(file)
        model_store(file, content + b"0")
        assert ["differs from the recorded one" in fault for fault in release_faults(run)] == [True]
        storages["models"].delete(file)
        assert ["is missing" in fault for fault in release_faults(run)] == [True]
        model_store(file, content)
    StudentModel.objects.filter(run=run).update(card={**run.student.card, "purpose": "Another one"})
    assert any("the card of student version 1" in fault for fault in release_faults(run))


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
        ([[0.1, 0.5]], "not an object"),
    ]
    for rows, message in refused:
        with pytest.raises(DataError, match=message):
            student_predict(run.student, rows)


Student = dict[str, Any]
BOOSTED: Student = {"student_learner": "boosting", "student_parameters": {"iterations": 3, "leaf": 1}}


@pytest.fixture
@built_once
def run() -> Run:
    """Return a finished run whose first version has not been assessed."""
    return run_finish(run_start(study_with_table(), **TABLE_RUN))


def trained(run: Run, **fields: Any) -> Run:
    student_learn(student_ask(run=run, acting_user=user_create("dan"), **BOOSTED | fields).pk)
    return Run.objects.get(pk=run.pk)


def faults(run: Run) -> list[str]:
    return [*study_faults(run.study), *release_faults(Run.objects.get(pk=run.pk))]


def test_another_version_learns_from_the_same_releases_and_costs_nothing(run: Run) -> None:
    spent, used = balances(run.study), shares(run.study)
    run = trained(run)
    first, second = run.students.order_by("version")
    assert run.student == first, "nobody has chosen another"
    assert (second.version, second.learner, second.requested_by.username) == (2, "boosting", "dan")
    assert second.card["learner"]["parameters"] == BOOSTED["student_parameters"]
    assert second.card["learned_from"] == first.card["learned_from"]
    assert second.card["software"] == f"iPATE {__version__}" and second.seconds >= 0
    public = run.public_dataset
    data = student_data_of(run)
    learner = student_create("boosting", BOOSTED["student_parameters"])
    expected = students_learn(learner, student_training.points_of(public), data.releases, seed=0)
    points = student_training.points_of(run.test_dataset)
    model = published_load("boosting", model_fetch(second.artifact))
    np.testing.assert_array_equal(model.predict_proba(points), expected.predict_proba(points))
    np.testing.assert_array_equal(balances(run.study).spent, spent.spent)
    assert shares(run.study) == used
    release = Release.objects.filter(run=run.pk, kind=Release.Kind.MODEL).latest("sequence")
    assert (release.content["version"], release.content["digest"], release.charge) == (2, second.digest, 0.0)
    assert release.recorded_by == second.requested_by
    assert faults(run) == []


def test_an_unusable_or_second_training_is_refused(run: Run) -> None:
    for wish, message in (
        ({"student_learner": "oracle"}, "oracle"),
        ({"student_parameters": {"iterations": 0}}, "at least 1"),
        ({"student_learner": "consistency", "student_parameters": {}}, "images"),
    ):
        with pytest.raises(ValidationError, match=message):
            student_ask(run=run, acting_user=None, **BOOSTED | wish)
    assert run_versions(run).training is None
    student_ask(run=run, acting_user=None, **BOOSTED)
    with pytest.raises(ValidationError, match="is being trained"):
        student_ask(run=run, acting_user=None, **BOOSTED)
    other = run_start(study_with_table("other"), **TABLE_RUN)
    with pytest.raises(ValidationError, match="only after its run has finished"):
        student_ask(run=other, acting_user=None, **BOOSTED)


def test_trainings_end_where_the_public_points_were_removed_before_a_worker_came(run: Run) -> None:
    student_ask(run=run, acting_user=None, **BOOSTED)
    dataset_remove(dataset=run.public_points, reason="Wrong file.", acting_user=user_create("olga"))
    for training in run.trainings.all():
        student_learn(training.pk)
    assert not run_versions(run).busy
    for training in run.trainings.all():
        assert "The public points were removed" in training.message


def test_a_version_is_assessed_by_held_out_releases_and_beside_true_labels() -> None:
    study = study_with_table(points=30)
    run = run_finish(run_start(study, **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 30.0}}))
    version = run.students.get()
    assert version.reference is None, "publication does not wait for it"
    student_learn(run.trainings.get(version=version).pk)
    version.refresh_from_db()
    learner = student_create(run.student_learner, run.student_parameters)
    data, points = student_data_of(run), student_training.points_of(run.public_dataset)
    learned, held_out = data.releases.split(0.2, 0)
    model = students_learn(learner, points, learned, seed=0)
    assert version.score == held_out.score(model.predict_proba(points))
    truth = students.truth_of(run.public_dataset)
    assert truth is not None
    taught = students_learn(learner, points, labelled(np.arange(30), truth, classes=3), seed=0)
    test = run.test_dataset
    assert test is not None
    right = (taught.predict(student_training.points_of(test)) == students.truth_of(test)).mean()
    assert version.reference["accuracy"] == pytest.approx(right, abs=0.005)
    assert not run_versions(run).busy


def test_publisher_of_another_version_is_on_record_and_tampering_is_found(run: Run) -> None:
    run, olga = trained(run), user_create("olga")
    first, second = run.students.order_by("version")
    run = student_publish(run=run, version=2, acting_user=olga)
    assert Run.objects.get(pk=run.pk).student.version == 2
    release = Release.objects.get(run=run.pk, kind=Release.Kind.CHOICE)
    assert (release.content["version"], release.recorded_by, release.charge) == (2, olga, 0.0)
    student_publish(run=run, version=2, acting_user=olga)
    assert Release.objects.filter(kind=Release.Kind.CHOICE).count() == 1, "it is published already"
    assert faults(run) == []
    with pytest.raises(ValidationError, match="This version of the run's student does not exist"):
        student_publish(run=run, version=3, acting_user=olga)
    student_publish(run=run, version=1, acting_user=olga)
    assert faults(run) == []
    for change, words in (
        ({"artifact": first.artifact}, "differs from the recorded one"),
        ({"artifact": "students/gone.model"}, "file of student version 2"),
        ({"artifact": second.artifact, "digest": first.digest}, "differ from the register"),
    ):
        StudentModel.objects.filter(pk=second.pk).update(**change)
        assert any(words in fault for fault in faults(run)), words
    StudentModel.objects.filter(pk=second.pk).update(digest=second.digest)
    Run.objects.filter(pk=run.pk).update(student=second)
    assert any("not the one that was chosen" in fault for fault in faults(run))


@pytest.mark.exhaustive
def test_a_resumed_student_equals_the_uninterrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker dies between two steps, and only the checkpoint remains."""
    network = {"student_learner": "consistency", "student_parameters": {"steps": 200, "batch": 8}}
    study = study_with_data(levels="LLLL")
    run = run_finish(run_start(study, **EVERYBODY, choices={"rounds": 1}, batch_size=300, **network))
    training = student_ask(run=run, acting_user=None, **network)

    class Killed(BaseException):
        pass

    def kill(done: int, total: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        student_learn(training.pk, kill)
    assert run.students.count() == 1, "no half model"
    assert len(arrays_list(checkpoints_folder(run))) == 1
    reports: list[int] = []
    student_learn(training.pk, lambda done, total: reports.append(done))
    assert reports == [200, 300, 400], "the first hundred steps were not repeated"
    first, second = run.students.order_by("version")
    assert model_fetch(first.artifact) == model_fetch(second.artifact)
    assert arrays_list(checkpoints_folder(run)) == []


@pytest.mark.parametrize(
    ("points", "step"),
    [(1, "0.01"), (399, "0.01"), (400, "0.005"), (1999, "0.005"), (2000, "0.001"), (100_000, "0.001")],
)
def test_the_step_depends_on_the_number_of_points_alone(points: int, step: str) -> None:
    for right in {0, 1, points // 3, points // 2, points - 1, points}:
        shown = published_accuracy(right, points)
        assert shown is not None and published_accuracy(0, 0) is None
        exact = Fraction(repr(shown))
        assert (exact / Fraction(step)).denominator == 1, "a multiple of the step, without rounding digits"
        assert abs(exact - Fraction(right, points)) <= Fraction(step) / 2


@pytest.mark.parametrize("student", ["shares", pytest.param("boosting", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "fields",
    [
        EVERYBODY | {"choices": {"rounds": 2, "first_queries": 6, "sigma": 3.0, "radius_share": 0.5}, "batch_size": 6},
        {"aggregator": {"name": "gnmax", "sigma": 3.0}, "teachers": 3, "wanted_labels": 9, "batch_size": 9},
        STEPS_RUN | {"choices": {"steps": 6, "sigma": 10.0, "publish": "student"}},
    ],
    ids=["neighbours", "pate", "sgd"],
)
def test_students_of_tables_learn_from_every_method(fields: dict[str, Any], student: str) -> None:
    study = study_with_table(levels="L", holders=60, points=24)
    run = run_finish(run_start(study, **{"learner_parameters": {}, "student_learner": student, **fields}))
    assert run.status == Run.Status.FINISHED, run.message
    assert run.student.learner == student
    if student == "shares":
        assert run.student.card["learner"]["chosen"]["penalty"] in (1e-1, 1e-2, 1e-3, 1e-4)
    model = published_load(student, model_fetch(run.student.artifact))
    assert model.predict(points_of(run.test_dataset)).max() < 3
    if run.method == Run.Method.PATE:  # the most probable class of a point is not a share: a rare class may never be it
        assert run.student.card["shares"] is None


def run_of(study: Any, **asking: Any) -> Run:
    run = run_finish(run_start(study, **EVERYBODY | {"choices": asking, "batch_size": 4}))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_releases_of_votes_contain_counts_noise_and_neighbourhoods() -> None:
    run = run_of(study_with_table(points=12, levels="L"), rounds=2, first_queries=5, radius_share=0.4)
    released = student_data_of(run).releases
    kept = dict(Query.objects.filter(run=run).values_list("row", "label"))
    assert dict(zip(released.rows.tolist(), released.labels.tolist(), strict=True)) == kept
    points = points_of(run.public_dataset)
    for each in run.rounds.all():
        question = question_load(each)
        here = np.isin(released.rows, question.rows)
        assert here.sum() == each.size and (released.sigma[here] == each.sigma).all()
        space = question.fitted.transform(points).astype(np.int64)
        for place in np.flatnonzero(here):
            row = int(released.rows[place])
            reach = released.reach[[place]].toarray()[0]
            radius = question.radii[question.rows.tolist().index(row)]
            near = ((space - space[row]) ** 2).sum(axis=1) <= radius
            near[row] = False
            expected = near / near.sum() if near.any() else np.eye(len(points))[row]
            np.testing.assert_allclose(reach, expected, rtol=1e-6)


@pytest.mark.exhaustive
def test_the_model_of_gradient_steps_does_not_depend_on_the_test_data() -> None:
    """Labelled public points that the student did not learn from decide; in a tie, the model is chosen."""
    for slug, test in (("with", True), ("without", False)):
        study = study_with_table(slug, points=24)
        run = run_finish(run_start(study, **STEPS_RUN, **({} if test else {"test_dataset": None})))
        assert run.status == Run.Status.FINISHED, run.message
        assert [each["learner"] for each in run.student.card["candidates"]] == ["nearest_neighbour", "linear"]
        entry = Sentence.from_json(run.student.card["choice"]).values
        assert entry["points"] == 5 and 0 <= entry["model"] <= 5
        assert run.student.is_released_itself == (entry["student"] <= entry["model"])


def test_a_duel_counts_right_answers_on_held_out_points() -> None:
    """TrainedStudent labels at random, so a nearest neighbour can't predict the other points."""
    run = run_finish(run_start(study_with_table(points=60), **STEPS_RUN))
    taught = np.random.default_rng(0).integers(0, 3, 60)
    data = StudentData(labelled(np.arange(60), taught, classes=3))
    learned, held_out = data.releases.split(HELD_OUT, 0)
    trial = student_fit(run, data.of(learned), run_recipe(run)).predict(points_of(run.public_points))
    alike = int((trial == taught)[held_out.rows].sum())
    assert len(held_out) == 12 and alike < 9
    for truth, expected in (
        (taught, Duel(12, alike, 12)),
        (trial, Duel(12, 12, alike)),
        (np.where(trial == taught, taught, -1), Duel(alike, alike, alike)),
    ):
        duel = student_try(run, data, run_recipe(run), truth=truth).duel
        assert duel == expected and duel.student_wins == (truth is trial)
    assert student_try(run, data, run_recipe(run)).duel is None


@pytest.mark.parametrize("wins", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_the_winner_of_a_duel_is_published(monkeypatch: pytest.MonkeyPatch, wins: bool) -> None:
    duel = Duel(5, 4 if wins else 3, 3)
    monkeypatch.setattr(students, "student_try", lambda *data, **how: replace(student_try(*data, **how), duel=duel))
    run = run_finish(run_start(study_with_table(points=24), **STEPS_RUN))
    assert run.status == Run.Status.FINISHED, run.message
    assert run.student.is_released_itself is not wins
    assert Sentence.from_json(run.student.card["choice"]).values == {"points": 5, "student": duel.student, "model": 3}
    assert list(release_faults(run)) == []


DIFFERENT = "These classes are clearly more frequent or less frequent among people than among the public points: a, c."


@built_once
def study_of_people() -> Study:
    """Return sixty public points of three equally likely classes, and sixty people, two thirds of them of class a."""
    every = table_rows(180)
    kept = [*range(0, 120, 3), *range(1, 49, 3), *range(2, 14, 3)]
    people = Rows(every.x[kept], every.y[kept], [f"p-{place:03}" for place in range(60)])
    parts = {"private": people, "public": table_rows(60), "test": table_rows(21)}
    return study_fill(study_open("shifted", delta=1e-4), parts)


def ended(monkeypatch: pytest.MonkeyPatch, study: Study, fields: dict[str, Any]) -> Run:
    monkeypatch.setattr(questions, "noise_of", lambda run: NoNoise())
    run = run_finish(run_start(study, share=0.5, **fields))
    assert run.status == Run.Status.FINISHED, run.message
    return run


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            ASKING_RUN | {"choices": {"sigma": 6.0, "radius_share": 0.2}, "batch_size": 60},
            id="votes",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(STEPS_RUN | {"choices": {"steps": 6, "sigma": 4.0}}, id="steps"),
    ],
)
@pytest.mark.exhaustive
def test_a_shifted_run_says_so_on_page_and_card(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    """Each class makes up a third of the public points, but 40, 16 and 4 of the 60 people."""
    run = ended(monkeypatch, study_of_people(), fields)
    message = run.student.card["shares"]
    assert [row["public"] for row in message["classes"]] == [0.33, 0.33, 0.33] and message["points"] == 60
    for row, share in zip(message["classes"], (40 / 60, 16 / 60, 4 / 60), strict=True):
        assert row["interval"][0] <= share <= row["interval"][1] and row["interval"][0] <= row["people"]
    assert message["differing"] == ["a", "c"]
    page = text(run_text(as_("olga"), run))
    assert page.count(DIFFERENT) == 2, "among the results, and on the card"
    assert "needs no correction" in page

    written: list[dict[str, Any]] = []
    monkeypatch.setattr(
        report, "tagged_pdf", lambda file, message: written.append(message) or tagged_pdf(file, message)
    )
    assert as_("olga").get(url("ledger_report_pdf", run)).content.startswith(b"%PDF-")
    (section,) = (each for each in written[0]["sections"] if each["heading"] == "Classes among the people")
    assert DIFFERENT in section["paragraphs"][0] and section["tables"][0]["rows"][0][3] == "33.0 %"
    if fields["method"] == STEPS_RUN["method"]:
        with translation.override("de"):
            german = as_("olga").get(url("run_tab", run, "card"), headers={"accept-language": "de"}).text
        assert "deutlich häufiger oder seltener als bei den öffentlichen Punkten: a, c." in german
