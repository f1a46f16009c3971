"""Votes that look at a student of the labels so far: Interactive-GNMax and residual votes of teachers."""

from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError

from accounting.book import balances
from accounting.models import Release
from accounting.verification import study_faults
from common.noise import SimulationNoise
from learning.mechanisms.pate import NO_VOTE, REJECTED
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_draft, run_finish, run_start, study_with_table
from training.engine import noise
from training.methods import method_of
from training.methods.pate.ballot import ballot_load
from training.methods.pate.interim import interim_probabilities
from training.methods.pate.questions import state_of, vote_question
from training.models import Run
from training.verification import release_faults

pytestmark = pytest.mark.django_db

RESIDUAL = {"name": "residual_gnmax", "sigma": 40.0, "first": 10, "disagreements": 2}
INTERACTIVE = {
    **{"name": "interactive_gnmax", "sigma": 60.0, "sigma_threshold": 50.0, "threshold": 1.0},
    "confidence": 0.6,
}


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = iter(range(1000))
    monkeypatch.setattr(noise, "noise_of", lambda run: SimulationNoise(next(seeds)))


def finished(aggregator: dict[str, Any], **fields: Any) -> Run:
    study = study_with_table(points=60, holders=60, delta=1e-4, retain_votes=True)
    run = run_finish(run_start(study, **{**TABLE_RUN, "teachers": 20, "aggregator": aggregator, **fields}))
    assert (run.status, run.message) == (Run.Status.FINISHED, "")
    assert [*study_faults(study), *release_faults(run)] == []
    for batch in run.batches.select_related("run"):
        release = Release.objects.get(run=run.pk, batch=batch.index)
        assert list(method_of(run).replay_faults(batch, release)) == []
    return run


def test_all_residual_votes_after_the_plain_one_are_paid_once() -> None:
    run = finished(RESIDUAL, batch_size=7, variant="standard")
    assert (run.position, run.labels, run.stop_reason) == (60, 60, Run.StopReason.USED_UP)
    batches = list(run.batches.values_list("start", "size"))
    assert batches[:3] == [(0, 7), (7, 3), (10, 7)], "a batch ends where the plain vote does"
    label, rest = 2 / 40.0**2, 4 * 2 / 40.0**2
    assert run.spent == pytest.approx([10 * label + rest])
    charges = Release.objects.filter(run=run.pk, batch__isnull=False).order_by("batch").values_list("charge", flat=True)
    assert list(charges) == pytest.approx([7 * label, 3 * label, rest] + [0.0] * (len(batches) - 3))
    assert balances(run.study).spent == pytest.approx(10 * label + rest)


def test_teachers_contribute_no_more_often_than_was_paid_for() -> None:
    run = finished(RESIDUAL, batch_size=7, variant="standard")
    ballot, question = ballot_load(run.pk), vote_question(run)
    contributed, disagreed, positions = (
        np.zeros(20, dtype=int),
        np.zeros(20, dtype=int),
        state_of(question, run).guesses,
    )
    for batch in run.batches.filter(start__gte=10).order_by("index"):
        said = ballot.predictions[:, batch.start : batch.start + batch.size]
        guesses = positions[batch.start : batch.start + batch.size]
        votes = question.plan.aggregator.count(said, 3, np.ones(20), guesses=guesses, disagreed=disagreed)
        for place, guess in enumerate(guesses):
            differs = (said[:, place] != guess) & (said[:, place] != NO_VOTE)
            speaks = differs & (contributed < 2)
            expected = np.bincount(said[speaks, place], minlength=3)
            expected[guess] += 20 - speaks.sum()
            np.testing.assert_array_equal(votes[place], expected)
            contributed += speaks
            disagreed += differs
    assert contributed.max() <= 2
    np.testing.assert_array_equal(question.disagreements(state_of(question, run), ballot), disagreed)


def test_a_residual_vote_beyond_the_share_never_begins() -> None:
    run = finished(RESIDUAL | {"disagreements": 400}, batch_size=7, variant="standard")
    assert (run.position, run.stop_reason) == (10, Run.StopReason.SHARE)
    assert run.plan["answers"] == 10


def test_interactive_gnmax_rejects_known_answers_and_pays_for_checks() -> None:
    run = finished(INTERACTIVE, batch_size=10)
    assert 0 < run.labels < run.position
    for group, budget in enumerate(run.plan["budgets"]):
        paid = run.position * budget["check"] + run.labels * budget["label"]
        assert run.spent[group] == pytest.approx(paid)


def test_the_student_knows_released_labels_alone() -> None:
    run = finished(INTERACTIVE, batch_size=10)
    labels = state_of(vote_question(run), run).labels
    ninth, tenth = np.flatnonzero(labels != REJECTED)[8:10]
    shares = interim_probabilities(run, labels[: tenth + 1])
    assert shares.shape == (60, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-6)
    assert not interim_probabilities(run, labels[: ninth + 1]).any()


@pytest.mark.parametrize("aggregator", [RESIDUAL, INTERACTIVE])
def test_a_rehearsal_has_no_student_to_ask(aggregator: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a rehearsal holds it at once"):
        run_draft(rehearsal_with_table(), **{**TABLE_RUN, "aggregator": aggregator})


@pytest.mark.parametrize(("name", "value"), [("first", 9), ("first", 10.5), ("disagreements", 0.5)])
def test_numbers_of_queries_are_whole(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=f"{name} must be a whole number"):
        run_draft(study_with_table(), **{**TABLE_RUN, "aggregator": RESIDUAL | {name: value}})
