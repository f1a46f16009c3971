"""Private gradient steps: what is released, who is charged for it, and rows that replace public points."""

from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import share_free, shares
from common.artifacts import arrays_load, arrays_save, model_fetch, model_store
from consent.models import DataHolder, Study
from consent.selectors import consent_snapshot
from learning.mechanisms.protocol import PlanError
from learning.mechanisms.steps.linear import CLIP_STEPS
from learning.representations import Interactions
from tests.draws import NoNoise
from tests.factories import decide
from tests.training.asking import COUNTED_STEPS_RUN, STEPS_RUN, assert_whole, attempt, charged, commit
from tests.training.people import everybody, small_study, withdraw
from tests.training.runs import (
    TABLE,
    head_counts_state,
    run_begun,
    run_draft,
    run_finish,
    run_like,
    study_with_data,
    study_with_table,
    table_rows,
)
from training.engine import questions
from training.engine.questions import state_before
from training.engine.records import records_load
from training.methods import method_of, steps
from training.methods.steps import linear_model, planned_space, question_load
from training.models import Run
from training.services.datasets import dataset_import
from training.services.students import student_predict
from training.verification import release_faults

pytestmark = pytest.mark.django_db

#: Steps so small that the model hardly changes, so every gradient is as long as the clipping norm allows.
SLOW = {"sigma": 20.0, "step_size": 1e-3}


def learning_run(study: Study, *, share: float = 0.5, **fields: Any) -> Run:
    """Return an approved run; ``choices`` are added to those about the steps."""
    return run_like(study, STEPS_RUN, share=share, **fields)


def begun(study: Study, **fields: Any) -> Run:
    """Return a run whose first chunk was computed and not released."""
    return attempt(run_begun(learning_run(study, **fields)))


def sums(run: Run, batch: int) -> np.ndarray:
    """Return what a batch released, in clipping norms (steps, d + 1, C)."""
    return arrays_load(run.batches.get(index=batch).released)["sums"] / CLIP_STEPS


def gradients_of(run: Run, batch: int, among: list[DataHolder]) -> dict[int, list[np.ndarray]]:
    """Return some holders' clipped gradients at every step of a batch, in clipping norms, in floating point."""
    opened = run.rounds.get()
    task, private = question_load(opened), records_load(run.private_dataset)
    caps = {budget["cap"] for budget in run.plan["budgets"]}
    state, found = state_before(task, opened, batch), {who.pk: [] for who in among}
    for released in arrays_load(run.batches.get(index=batch).released)["sums"]:
        for who in among:
            mine = private["holder"] == who.pk
            coordinates = task.fitted.transform(private["x"][mine]).astype(float)
            features = np.column_stack([coordinates, np.full(mine.sum(), 127.0)])
            odds = np.exp(features @ state.weights)
            residuals = odds / odds.sum(axis=1, keepdims=True) - np.eye(3)[private["y"][mine]]
            gradient = features.T @ residuals / mine.sum()
            cap = caps_of(float(consent_snapshot(run.study, among=np.array([who.pk])).epsilons[0]), run.study.delta)
            weight = np.sqrt(float(cap) / max(caps))
            norm = np.linalg.norm(gradient) / state.clip_norm
            found[who.pk].append(weight * gradient / state.clip_norm / max(norm, 1.0))
        state = state.after(released)
    return found


def heard(run: Run, batch: int, among: list[DataHolder]) -> None:
    """Check that exactly these holders are included in a batch without noise, with their clipped gradients."""
    expected = gradients_of(run, batch, among)
    np.testing.assert_allclose(sums(run, batch), np.sum(list(expected.values()), axis=0), atol=0.01)
    assert set(charged(run, batch)) == {who.pk for who in among}
    sigma = run.plan["rounds"][0]["plan"]["sigma"]
    for who in among:
        due = sum((each**2).sum() for each in expected[who.pk]) / sigma**2
        assert charged(run, batch)[who.pk] == pytest.approx(due, rel=0.01)


def test_every_planned_step_is_taken_and_what_it_cost_is_charged(exact: None) -> None:
    study = small_study(retain_votes=False)
    run = run_finish(learning_run(study, choices=SLOW))
    assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.STEPS), run.message
    assert (run.position, run.labels, run.queries.count()) == (6, 0, 0)
    assert list(run.batches.values_list("start", "size")) == [(0, 2), (2, 2), (4, 2)]
    largest = max(budget["cap"] for budget in run.plan["budgets"])
    for release in Release.objects.filter(run=run.pk, batch__isnull=False):
        assert release.charge == pytest.approx(2 / 20.0**2)
        for charge, budget in zip(release.content["charges"], run.plan["budgets"], strict=True):
            assert charge == pytest.approx(2 / 20.0**2 * budget["cap"] / largest)
    assert share_free(study) == pytest.approx(1 - 6 / 20.0**2 / largest)
    assert_whole(run)


def test_a_chunk_sums_clipped_gradients_and_charges_their_norms(exact: None) -> None:
    study = small_study(records=3)
    run = commit(attempt(commit(begun(study, choices=SLOW))))
    for batch in range(2):
        heard(run, batch, everybody(study))


def test_noise_is_added_to_every_number_of_every_step(exact: None, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, tuple[int, ...]]] = []

    class Counting(NoNoise):
        def rounded_normal(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
            drawn.append((scale, shape))
            return np.full(shape, 1000 * len(drawn), np.int64)

    plain = sums(commit(begun(small_study(), choices={"sigma": 3.0})), 0)
    monkeypatch.setattr(questions, "noise_of", lambda run: Counting())
    noisy = sums(commit(begun(small_study(slug="noisy"), choices={"sigma": 3.0})), 0)
    assert drawn == [(3.0 * CLIP_STEPS, plain.shape[1:])] * 2
    assert (noisy[0] - plain[0] == 1000 / CLIP_STEPS).all()


@pytest.mark.parametrize(
    ("publish", "learner"),
    [pytest.param("model", "linear", marks=pytest.mark.exhaustive), ("student", "nearest_neighbour")],
)
def test_what_is_published_can_be_chosen(exact: None, publish: str, learner: str) -> None:
    """Verification detects a published model that differs from the result of the steps."""
    run = run_finish(learning_run(small_study(), choices=SLOW | {"publish": publish}))
    student = run.student
    assert (student.learner, student.card["learner"]["name"]) == (learner, learner)
    assert student.is_released_itself == (publish == "model")
    predictions = student_predict(student, [{"length": 0.1, "width": 0.5}, {"length": 0.9, "width": 0.5}])
    assert set(predictions["predictions"]) <= {*run.public_dataset.schema["classes"]}
    assert len(predictions["predictions"]) == 2
    assert_whole(run)
    if publish == "model":
        model = linear_model(run.rounds.get())
        stored = type(model).from_bytes(model_fetch(student.artifact))
        np.testing.assert_array_equal(stored.weights, model.weights)
        model.weights = 1.5 * model.weights
        model_store(student.artifact, model.to_bytes())
        assert any("not the result of its steps" in fault for fault in release_faults(run))


def test_nobody_is_charged_more_than_they_may_spend(exact: None) -> None:
    """The noise is so small that everybody's account is used up before the last step."""
    study = small_study()
    run = run_finish(learning_run(study, share=0.4, choices=SLOW | {"sigma": 5.0, "steps": 40}, batch_size=10))
    assert (run.status, run.position) == (Run.Status.FINISHED, 40), "no account decides when a run ends"
    spent = balances(study).of(np.array([who.pk for who in everybody(study)]))
    caps = caps_of(consent_snapshot(study).epsilons, study.delta)
    assert (spent <= 0.4 * caps).all() and (spent > 0.2 * caps).any()
    assert shares(study)[run.pk].used == pytest.approx(0.4)
    assert_whole(run)


def test_joining_withdrawing_or_changing_level_during_a_chunk_takes_effect_in_it(exact: None) -> None:
    study = small_study(levels="LLLLLLLLL-HH")
    head_counts_state(study)
    run, people = begun(study, choices=SLOW), everybody(study)
    decide(people[0], "HIGH")
    decide(people[9], "LOW")
    decide(people[11], "LOW")
    run = commit(run)
    before = charged(run, 0)
    assert people[0].pk not in before, "they have not answered under their new promise"
    assert people[9].pk not in before, "they were not asked"
    run = commit(attempt(run))
    heard(run, 1, people)
    assert charged(run, 1)[people[11].pk] > 2 * before[people[11].pk], "under a larger promise"
    run = attempt(run)
    withdraw(people[4])
    run = commit(run)
    heard(run, 2, [who for who in people if who != people[4]])
    assert_whole(run_finish(run))


def test_a_share_too_small_for_the_steps_has_no_plan() -> None:
    run = run_draft(small_study(), **STEPS_RUN | {"choices": {"steps": 8}})
    with pytest.raises(PlanError, match="fewer steps or a larger share"):
        method_of(run).plan(run, 1e-9)


def finished(study: Study | None = None, **fields: Any) -> Run:
    """Return a run that has published a model about the holders of a small study."""
    return run_finish(run_like(study or study_with_table(retain_votes=True), COUNTED_STEPS_RUN, **fields))


def test_people_are_counted_first_and_a_model_is_published_in_the_space_that_follows() -> None:
    run = finished()
    assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.STEPS), run.message
    kinds = Release.objects.filter(run=run.pk, batch__isnull=False).order_by("batch").values_list("kind", flat=True)
    assert list(kinds) == [*[Release.Kind.TABLE] * 3, *[Release.Kind.STEPS] * 3]
    assert [each["until"] for each in run.plan["rounds"]] == [0.01, 0.025, 0.1, 1.0]
    card, opened = run.student.card, run.rounds.get(index=3)
    assert (card["learned_from"]["queries"], card["learned_from"]["dataset"]) == (6, None)
    mechanism = card["privacy"]["mechanism"]
    assert mechanism["counts"]["tables"] == [2, 1, 2] and [each["steps"] for each in mechanism["rounds"]] == [6]
    assert "quantiles" in opened.representation["template"]
    assert len(method_of(run).curves(run)["only noise"]) == 6
    assert [tile[1] for tile in method_of(run).tiles(run)] == [6]
    predicted = student_predict(run.student, [{"length": 0.1, "width": 0.5}])
    assert predicted["predictions"][0] in run.private_dataset.schema["classes"]
    assert_whole(run)
    file = arrays_load(opened.artifact)
    arrays_save(opened.artifact, **file | {"public": np.roll(file["public"], 1, axis=0)})
    steps._question.cache_clear()
    assert any("substitutes for public points" in fault for fault in release_faults(run))


def test_a_plan_names_its_representation_and_older_plans_have_no_interactions() -> None:
    run = run_like(study_with_table(), STEPS_RUN)
    (first,) = run.plan["rounds"]
    assert planned_space(run).fitted.representation.parameters() == first["space"]["representation_parameters"]
    first["plan"]["strength"] = 9000.0
    assert planned_space(run).fitted.representation.parameters() == first["space"]["representation_parameters"]
    del first["space"]
    older = planned_space(run).fitted.representation
    assert (older.name, older.parameters()["together"]) == ("evened", 750)
    first["space"] = {"representation": "interactions", "representation_parameters": {"thresholds": 3}}
    assert planned_space(run).fitted.representation == Interactions(thresholds=3)


def test_labelled_public_points_choose_the_spread_of_interactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_ENOUGH", 30)
    study, rows = study_with_table(), table_rows(30)
    labelled = dataset_import(study=study, name="l", kind="public", rows=rows, schema=TABLE, provenance="A register.")
    run = run_draft(study, **STEPS_RUN, labelled_dataset=labelled)
    assert any("Brier" in note.template for note in method_of(run).plan(run, 1.0).notes)
    for best, spread in enumerate((None, 0.2, 1.0)):
        errors = iter([np.full(30, 0.2 if place == best else 0.3) for place in range(3)])
        monkeypatch.setattr(steps, "_errors", lambda *_, errors=errors: next(errors))
        (first,) = method_of(run).plan(run, 1.0).rounds
        assert first["space"]["representation_parameters"].get("spread") == spread


def test_what_needs_a_student_and_images_without_public_points_are_refused() -> None:
    study = study_with_table()
    for choices, wrong, words in (
        ({"rounds": 2}, "choices.rounds", "needs a student"),
        ({"publish": "student"}, "choices.publish", "Choose a public dataset, or publish the model"),
    ):
        with pytest.raises(ValidationError) as refused:
            run_like(study, COUNTED_STEPS_RUN, choices=choices)
        assert words in str(refused.value.message_dict[wrong])
    with pytest.raises(ValidationError, match="Counts can replace public points only for tables that"):
        run_draft(study_with_data(), **COUNTED_STEPS_RUN)
