"""Lessons: releases that students learn from, from proposal to model, and what they tell of the classes' shares."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from django.utils import translation

from common.artifacts import model_fetch
from common.sentences import Sentence
from consent.documents.typeset import tagged_pdf
from consent.models import Study
from ipate_web.staff import report
from learning.formats import Rows
from learning.published import published_load
from learning.students import labelled
from tests.factories import study_open
from tests.pages import as_, run_text, text, url
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, EVERYBODY, STEPS_RUN, NoNoise
from tests.training.runs import (
    TABLE,
    consents_give,
    head_counts_state,
    run_finish,
    run_start,
    study_with_table,
    table_rows,
)
from training.engine import questions
from training.engine.records import points_of
from training.methods import lesson_of
from training.methods.lessons import HELD_OUT, Duel, Lesson, run_recipe, student_fit, student_try
from training.methods.neighbours import question_load
from training.models import Query, Run
from training.services import students
from training.services.datasets import dataset_import
from training.verification import release_faults

pytestmark = pytest.mark.django_db


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
    if run.method == Run.Method.PATE:  # the likeliest class of a point is no share: of a rare class it may be none
        assert run.student.card["shares"] is None


def run_of(study: Any, **asking: Any) -> Run:
    run = run_finish(run_start(study, **EVERYBODY | {"choices": asking, "batch_size": 4}))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_a_lesson_of_votes_holds_counts_noise_and_neighbours() -> None:
    run = run_of(study_with_table(points=12, levels="L"), rounds=2, first_queries=5, radius_share=0.4)
    released = lesson_of(run).releases
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
    """Labelled public points decide, of which the student had not learned; a tie is the model's."""
    for slug, test in (("with", True), ("without", False)):
        study = study_with_table(slug, points=24)
        run = run_finish(run_start(study, **STEPS_RUN, **({} if test else {"test_dataset": None})))
        assert run.status == Run.Status.FINISHED, run.message
        assert [each["learner"] for each in run.student.card["candidates"]] == ["nearest_neighbour", "linear"]
        entry = Sentence.from_json(run.student.card["choice"]).values
        assert entry["points"] == 5 and 0 <= entry["model"] <= 5
        assert run.student.is_released_itself == (entry["student"] <= entry["model"])


def test_a_duel_counts_right_answers_on_held_out_points() -> None:
    """Taught labels by chance: of the others a nearest neighbour knows nothing."""
    run = run_finish(run_start(study_with_table(points=60), **STEPS_RUN))
    taught = np.random.default_rng(0).integers(0, 3, 60)
    lesson = Lesson(labelled(np.arange(60), taught, classes=3))
    learned, held_out = lesson.releases.split(HELD_OUT, 0)
    trial = student_fit(run, lesson.of(learned), run_recipe(run)).predict(points_of(run.public_points))
    alike = int((trial == taught)[held_out.rows].sum())
    assert len(held_out) == 12 and alike < 9
    for truth, expected in (
        (taught, Duel(12, alike, 12)),
        (trial, Duel(12, 12, alike)),
        (np.where(trial == taught, taught, -1), Duel(alike, alike, alike)),
    ):
        duel = student_try(run, lesson, run_recipe(run), truth=truth).duel
        assert duel == expected and duel.student_wins == (truth is trial)
    assert student_try(run, lesson, run_recipe(run)).duel is None


@pytest.mark.parametrize("wins", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_the_winner_of_a_duel_is_published(monkeypatch: pytest.MonkeyPatch, wins: bool) -> None:
    duel = Duel(5, 4 if wins else 3, 3)
    monkeypatch.setattr(students, "student_try", lambda *lesson, **how: replace(student_try(*lesson, **how), duel=duel))
    run = run_finish(run_start(study_with_table(points=24), **STEPS_RUN))
    assert run.status == Run.Status.FINISHED, run.message
    assert run.student.is_released_itself is not wins
    assert Sentence.from_json(run.student.card["choice"]).values == {"points": 5, "student": duel.student, "model": 3}
    assert list(release_faults(run)) == []


DIFFERENT = "These classes have different shares among people: a, c."


@built_once
def study_of_people() -> Study:
    """Sixty public points of three classes as likely, and sixty people, two thirds of them of class a."""
    study = study_open("shifted", delta=1e-4)
    every = table_rows(180)
    kept = [*range(0, 120, 3), *range(1, 49, 3), *range(2, 14, 3)]
    people = Rows(every.x[kept], every.y[kept], [f"p-{place:03}" for place in range(60)])
    for kind, rows in (("private", people), ("public", table_rows(60)), ("test", table_rows(21))):
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=TABLE)
    consents_give(study, "L")
    head_counts_state(study)
    return study


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
    """The shifted run: of the public points a third is of each class, of the people 40, 16 and 4 of 60."""
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
        assert "Diese Klassen haben unter den Personen andere Anteile: a, c." in german
