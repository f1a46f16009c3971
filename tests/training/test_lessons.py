"""Lessons: releases that students learn from, from proposal to model, by every method."""

from typing import Any

import numpy as np
import pytest

from common.artifacts import model_fetch
from common.noise import SimulationNoise
from learning.published import published_load
from learning.students import counted, neighbourhoods, refined, student_create, student_learn, student_suggested
from tests.training.asking import EVERYBODY, STEPS_RUN
from tests.training.runs import run_finish, run_start, study_with_data, study_with_table
from training.engine import noise
from training.methods import lesson_of
from training.methods.lessons import student_fit
from training.methods.neighbours.rounds import question_load
from training.methods.space import points_of
from training.models import Query, Run

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

SMALL = {"steps": 30, "batch": 16}


@pytest.mark.parametrize(
    ("fields", "right"),
    [
        (EVERYBODY | {"choices": {"rounds": 1}, "batch_size": 300}, 0.2),
        ({"aggregator": {"name": "gnmax", "sigma": 5.0}, "teachers": 10, "wanted_labels": 20, "batch_size": 20}, 0.0),
        (STEPS_RUN | {"choices": {"steps": 20}, "batch_size": 20}, 0.2),
    ],
    ids=["neighbours", "pate", "sgd"],
)
def test_the_suggested_student_of_images_learns_from_every_method(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], right: float
) -> None:
    monkeypatch.setattr(noise, "noise_of", lambda run: SimulationNoise(run.position))
    student = student_suggested("image").name
    study = study_with_data(levels="LLLL")
    run = run_finish(run_start(study, student_learner=student, student_parameters=SMALL, **fields))
    assert run.status == Run.Status.FINISHED, run.message
    assert run.student.learner == student and not run.student.is_released_itself
    card = run.student.card
    assert card["learner"] == {"name": student, "parameters": SMALL, "chosen": {}}
    assert 0 < card["learned_from"]["above_noise"] <= card["learned_from"]["labels"]
    model, points = published_load(student, model_fetch(run.student.artifact)), points_of(run.test_dataset)
    assert model.predict_proba(points).shape == (len(points), 10)
    assert run.student.accuracy >= right, "ten classes, a few hundred people, a few steps"
    again = student_fit(run, lesson_of(run))
    np.testing.assert_array_equal(again.predict_proba(points), model.predict_proba(points))


@pytest.mark.parametrize("student", ["shares", "boosting"])
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


def asked(study: Any, **asking: Any) -> Run:
    run = run_finish(run_start(study, **EVERYBODY | {"choices": asking, "batch_size": 4}))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_the_lesson_of_votes_holds_every_count_with_its_noise_and_its_neighbours() -> None:
    run = asked(study_with_table(points=12, levels="L"), rounds=2, first_queries=5, radius_share=0.4)
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


def test_counts_of_images_are_refined_where_the_votes_were_cast() -> None:
    """As in the measurements of docs/students.md: counts of neighbourhoods, refined, then taught."""
    study = study_with_data(levels="LLLL")
    run = asked(study, rounds=1, radius_share=0.1)
    told, points = question_load(run.rounds.get()), points_of(run.public_dataset)
    counts = dict(Query.objects.filter(run=run).values_list("row", "counts"))
    public = told.fitted.transform(points)
    reach = neighbourhoods(told.rows, public, told.radii)
    expected = refined(public, counted(told.rows, [counts[row] for row in told.rows], told.sigma, reach=reach), seed=0)
    learner = student_create(run.student_learner, run.student_parameters)
    model = student_learn(learner, points, expected, seed=0)
    np.testing.assert_array_equal(student_fit(run, lesson_of(run)).predict_proba(points), model.predict_proba(points))


def test_what_gradient_steps_publish_does_not_depend_on_the_test_data() -> None:
    """The model of a table, whatever the accuracies; test_the_suggested_student_of_images shows the other half."""
    for slug, test in (("with", True), ("without", False)):
        study = study_with_table(slug, points=24)
        run = run_finish(run_start(study, **STEPS_RUN, **({} if test else {"test_dataset": None})))
        assert run.status == Run.Status.FINISHED, run.message
        assert run.student.is_released_itself
        assert [each["learner"] for each in run.student.card["candidates"]] == ["nearest_neighbour", "linear"]
        assert "before the run" in run.student.card["choice"]
