"""Private gradient steps without public points: counts first, rows drawn from them, and steps on what these show."""

from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError

from accounting.book import charges_of
from accounting.caps import caps_of
from accounting.models import Release
from common.artifacts import arrays_load, arrays_save
from consent.models import Study
from consent.selectors import consent_snapshot
from tests.training.asking import COUNTED_STEPS_RUN, STEPS_RUN, assert_whole, attempt, commit, run_ask
from tests.training.people import everybody, withdraw
from tests.training.recipes import charged
from tests.training.runs import (
    rehearsal_with_table,
    run_begun,
    run_draft,
    run_finish,
    run_like,
    study_with_data,
    study_with_table,
)
from training.methods import method_of
from training.methods.steps import rounds
from training.methods.steps.questions import Gradients
from training.methods.synthesis.rounds import MarginalCells
from training.models import Run
from training.services.students import student_predict
from training.verification import release_faults

pytestmark = [pytest.mark.django_db]


def finished(study: Study | None = None, **fields: Any) -> Run:
    """A run that has published a model about the holders of a small study."""
    return run_finish(run_like(study or study_with_table(retain_votes=True), COUNTED_STEPS_RUN, **fields))


@pytest.mark.slow
def test_people_are_counted_first_and_a_model_is_published() -> None:
    run = finished()
    assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.STEPS), run.message
    kinds = Release.objects.filter(run=run.pk, batch__isnull=False).order_by("batch").values_list("kind", flat=True)
    assert list(kinds) == [*[Release.Kind.TABLE] * 3, *[Release.Kind.STEPS] * 3]
    assert [each["until"] for each in run.plan["rounds"]] == [0.01, 0.025, 0.1, 1.0]
    card = run.student.card
    assert (card["learned_from"]["queries"], card["learned_from"]["dataset"]) == (6, None)
    mechanism = card["privacy"]["mechanism"]
    assert mechanism["counts"]["tables"] == [2, 1, 2] and [each["steps"] for each in mechanism["rounds"]] == [6]
    assert "quantiles" in run.rounds.get(index=3).representation["template"]
    assert method_of(run).curves(run)["noise alone"] and len(method_of(run).curves(run)["noise alone"]) == 6
    assert [tile[1] for tile in method_of(run).tiles(run)] == [6]
    predicted = student_predict(run.student, [{"length": 0.1, "width": 0.5}])
    assert predicted["predictions"][0] in run.private_dataset.schema["classes"]
    assert_whole(run)


def test_nobody_pays_more_than_their_share_and_counts_a_tenth_of_it() -> None:
    run = finished(share=0.25, choices={"steps": 30, "sigma": None}, batch_size=10)
    snapshot = consent_snapshot(run.study)
    caps = dict(zip(snapshot.holders.tolist(), caps_of(snapshot.epsilons, run.study.delta).tolist(), strict=True))
    counted = dict.fromkeys(caps, 0.0)
    for release in Release.objects.filter(run=run.pk, kind=Release.Kind.TABLE):
        charges = charges_of(release)
        for holder, each in zip(charges.holders.tolist(), charges.spent.tolist(), strict=True):
            counted[holder] += each
    for holder, spent in charged(run).items():
        assert counted[holder] == pytest.approx(0.025 * caps[holder], rel=1e-4)
        assert counted[holder] < spent <= 0.25 * caps[holder]


@pytest.mark.slow
def test_the_space_follows_from_what_was_counted() -> None:
    run = finished()
    opened = run.rounds.get(index=3)
    file = arrays_load(opened.artifact)
    arrays_save(opened.artifact, **file | {"public": np.roll(file["public"], 1, axis=0)})
    rounds._question.cache_clear()
    assert any("in place of public ones" in fault for fault in release_faults(run))


@pytest.mark.slow
def test_a_withdrawal_between_counts_and_steps_counts_from_the_steps_on() -> None:
    study = study_with_table(retain_votes=True)
    run = run_begun(run_like(study, COUNTED_STEPS_RUN))
    for _ in range(3):
        run = commit(attempt(run))
    holder = everybody(study)[0]
    withdraw(holder)
    run = run_finish(run)
    releases = Release.objects.filter(run=run.pk, batch__isnull=False).order_by("batch")
    assert [holder.pk in charges_of(each).holders for each in releases] == [True] * 3 + [False] * 3
    assert run.status == Run.Status.FINISHED
    assert_whole(run)


@pytest.mark.slow
def test_shards_of_counts_are_smaller_than_those_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MarginalCells, "shard", 7)
    run = run_begun(run_like(rehearsal_with_table(), COUNTED_STEPS_RUN, seed=3))
    shards = []
    while run.batches.count() < 4:
        run = attempt(run)
        shards.append(run.shards.count())
        run = commit(run)
    assert shards == [5, 5, 5, 1]
    monkeypatch.setattr(Gradients, "shard", 7)
    assert run_ask(run, run.batches.count() + 1).batches.order_by("index").values_list("size", flat=True)[4] == 1


@pytest.mark.parametrize(
    ("choices", "wrong", "words"),
    [
        ({"rounds": 2}, "choices.rounds", "needs a student"),
        ({"publish": "student"}, "choices.publish", "learns on public points"),
    ],
)
def test_what_needs_a_student_is_refused(choices: dict[str, Any], wrong: str, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        run_like(study_with_table(), COUNTED_STEPS_RUN, choices=choices)
    assert words in str(refused.value.message_dict[wrong])


@pytest.mark.slow
def test_images_need_public_points() -> None:
    with pytest.raises(ValidationError, match="Only of tables that declare classes"):
        run_draft(study_with_data(), **COUNTED_STEPS_RUN)


def test_steps_with_public_points_count_nobody() -> None:
    run = run_like(study_with_table(), STEPS_RUN)
    assert ["marginals" in each for each in run.plan["rounds"]] == [False]
    assert run.plan["rounds"][0]["until"] == 1.0
