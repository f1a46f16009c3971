"""Runs in which every holder votes: whose votes are included, what they cost, and atomic batches."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks as Commits

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import share_free, shares
from common import jobs
from common.artifacts import arrays_delete
from common.noise import SimulationNoise
from consent import services as consent_services
from consent.models import DataHolder, Study
from consent.selectors import consent_snapshot
from consent.services.changes import changes_recorded
from consent.services.holders import circumstance_record
from learning.formats import Rows
from learning.mechanisms.protocol import PlanError
from tests.factories import decide, form_publish, policy_approve, user_create
from tests.training.asking import ASKING_RUN, account, asking_of, assert_whole, attempt, charged, commit, run_end
from tests.training.people import HOLDERS, everybody, small_study, withdraw
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    digits,
    head_counts_state,
    run_begun,
    run_draft,
    run_finish,
    run_like,
    run_start,
    run_teach,
    study_with_data,
    table_rows,
)
from training.engine import asking, commits, questions
from training.engine.records import records_load
from training.methods import method_of, neighbours
from training.methods.neighbours import Votes
from training.methods.pate_teachers import vote_open
from training.models import Query, Run, Shard
from training.services import advance, runs
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_enter

pytestmark = pytest.mark.django_db


def approved_run(study: Study, *, share: float = 0.5, **fields: Any) -> Run:
    """Return an approved run; ``choices`` are added to those about the vote."""
    return run_like(study, ASKING_RUN, share=share, **fields)


def opened(study: Study, **fields: Any) -> Run:
    """Return a run that is ready to ask its first batch."""
    return run_begun(approved_run(study, **fields))


def begun(study: Study, **fields: Any) -> Run:
    """Return a run whose first batch was asked and not released."""
    return attempt(opened(study, **fields))


def holder(study: Study, place: int) -> DataHolder:
    return DataHolder.objects.filter(study=study).order_by("pk")[place]


def said(run: Run, batch: int, who: DataHolder) -> np.ndarray:
    """Return the votes (Q, C) of a holder with enough budget in a batch of a plain round, by whole-number distances."""
    first = run.rounds.get(index=0)
    question = neighbours.question_load(first)
    private = records_load(run.private_dataset)
    mine = private["holder"] == who.pk
    records = question.fitted.transform(private["x"])[mine].astype(int)
    rows = run.queries.filter(batch__index=batch).order_by("pk").values_list("row", flat=True)
    votes = np.zeros((len(rows), 3))
    for place, row in enumerate(rows):
        at = question.rows.tolist().index(row)
        near = ((records - question.queries[at].astype(int)) ** 2).sum(axis=1) <= question.radii[at]
        if near.any():
            share = np.bincount(private["y"][mine][near], minlength=3) / near.sum()
            votes[place] = np.floor(share * 2**16) / 2**16  # the same whole multiples as in votes
    return votes


def counts(run: Run, batch: int) -> np.ndarray:
    return np.array(list(run.queries.filter(batch__index=batch).order_by("pk").values_list("counts", flat=True)))


def heard(run: Run, batch: int, among: list[DataHolder]) -> None:
    """Check that exactly these holders are included in a batch without noise, each with all of their votes."""
    total = sum((said(run, batch, who) for who in among), np.zeros_like(counts(run, batch), dtype=float))
    np.testing.assert_array_equal(counts(run, batch), np.rint(total))
    assert set(charged(run, batch)) == {who.pk for who in among}
    sigma = run.plan["rounds"][0]["sigma"]
    for who in among:
        assert charged(run, batch)[who.pk] == pytest.approx((said(run, batch, who) ** 2).sum() / sigma**2, rel=1e-12)


def files(run: Run) -> list[str]:
    return sorted(path.name for path in (Path(settings.PRIVATE_DIR) / "runs" / str(run.pk)).glob("*"))


def test_every_planned_point_is_asked_once_and_what_it_cost_is_charged(exact: None) -> None:
    study = small_study(retain_votes=False)
    run = run_finish(approved_run(study))
    assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.USED_UP), run.message
    assert (run.position, run.labels, run.rejected) == (12, 12, 0)
    assert sorted(run.queries.values_list("row", flat=True)) == list(range(12))
    assert list(run.batches.values_list("start", "size", "labels")) == [(0, 4, 4), (4, 4, 4), (8, 4, 4)]
    for query in run.queries.all():
        assert query.label == int(np.argmax(query.counts))
    for release in Release.objects.filter(run=run.pk, batch__isnull=False):
        assert release.charge == 4 / 10.0**2
    assert_whole(run)
    assert run.student.accuracy > 0.8


def test_two_rounds_ask_different_points_and_residual_votes_cost_at_most_two() -> None:
    study = small_study()
    run = run_finish(approved_run(study, choices={"rounds": 2, "first_queries": 4}, batch_size=3))
    assert run.status == Run.Status.FINISHED, run.message
    assert list(run.rounds.values_list("index", "size", "position")) == [(0, 4, 4), (1, 8, 8)]
    assert sorted(run.queries.values_list("row", flat=True)) == list(range(12))
    bounds = [release.charge for release in Release.objects.filter(run=run.pk, batch__isnull=False)]
    assert bounds == [each / 100 for each in (3, 1, 6, 6, 4)]
    assert neighbours.question_load(run.rounds.get(index=1)).predicted is not None
    assert [each["queries"] for each in run.student.card["privacy"]["mechanism"]["rounds"]] == [4, 8]
    assert_whole(run)


def test_the_first_of_two_rounds_leaves_the_second_its_half(exact: None) -> None:
    """The noise is so small that everybody uses up their budget in the first round."""
    study = small_study()
    run = opened(study, choices={"rounds": 2, "first_queries": 8, "sigma": 6.0, "radius_share": 1.0})
    after = []
    for batches in (2, 1):
        for _ in range(batches):
            run = commit(attempt(run))
        after.append(balances(study).of(np.array([each.pk for each in everybody(study)])))
    caps = caps_of(consent_snapshot(study).epsilons, study.delta)
    assert (after[0] <= 0.25 * caps).all() and (after[1] <= 0.5 * caps).all()
    assert after[0] == pytest.approx(0.25 * caps * 36 // 1 / 36), "one vote after the other, until the budget is used"
    assert (after[1] >= after[0]).all() and (after[1] > 0.25 * caps).any()


@pytest.mark.exhaustive
def test_later_rounds_use_the_layer_of_the_previous_student() -> None:
    study = study_with_data(retain_votes=True)
    network = {"student_learner": "cnn", "student_parameters": {"epochs": 3}}
    run = run_finish(
        approved_run(study, choices={"rounds": 2, "radius_share": 0.1, "embedded": True}, batch_size=40, **network)
    )
    assert run.status == Run.Status.FINISHED, run.message
    assert "inner layer" in run.rounds.get(index=1).representation["template"]
    assert len(digits().public) == run.position
    assert_whole(run)


def test_shards_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "noise_of", lambda run: SimulationNoise(run.position))
    seen = []
    for number in (1, 7):
        monkeypatch.setattr(Votes, "shard", -(-HOLDERS // number))
        study = small_study(slug=f"shards-{number}", records=3)
        run = begun(study, choices={"sigma": 4.0, "rounds": 2, "kernel": "epanechnikov"})
        assert run.shards.count() == {1: 1, 7: 6}[number]
        run = run_finish(run)
        assert run.status == Run.Status.FINISHED, run.message
        spent = balances(study)
        assert spent.spent.any() and len(spent.holders) == HOLDERS
        seen.append((list(run.queries.values_list("row", "label", "counts")), spent.spent.tolist(), run.spent))
        assert_whole(run)
    assert seen[0] == seen[1]


def test_several_records_of_a_holder_make_one_contribution(exact: None) -> None:
    study = small_study(holders=10, records=5)
    run = commit(begun(study, choices={"sigma": 30.0, "radius_share": 0.5}))
    heard(run, 0, everybody(study))
    votes = [said(run, 0, who) for who in everybody(study)]
    assert max((each**2).sum(axis=1).max() for each in votes) <= 1
    assert any(0 < each < 1 for vote in votes for each in (vote**2).sum(axis=1)), "records of several classes"


def test_a_wanted_number_of_labels_is_all_that_is_asked() -> None:
    study = small_study()
    run = run_finish(approved_run(study, wanted_labels=5, choices={"sigma": 30.0}))
    assert (run.status, run.stop_reason, run.labels, run.position) == ("finished", Run.StopReason.ENOUGH, 5, 5)
    assert shares(study)[run.pk].used == pytest.approx(5 / 900 / caps_of(1.0, study.delta))
    assert_whole(run)


def test_joining_withdrawing_or_returning_during_a_batch_takes_effect_in_it(exact: None) -> None:
    study = small_study(levels="HALHALHALHA-")
    run = begun(study)
    withdraw(holder(study, 4))
    decide(holder(study, 11), "LOW")
    run = commit(run)
    rest = [who for place, who in enumerate(everybody(study)) if place not in (4, 11)]
    heard(run, 0, rest)
    withdraw(holder(study, 7))
    run = commit(attempt(run))
    rest = [who for place, who in enumerate(everybody(study)) if place not in (4, 7)]
    heard(run, 1, rest)
    decide(holder(study, 4), "LOW")
    run = commit(attempt(run))
    heard(run, 2, [who for who in everybody(study) if who != holder(study, 7)])
    assert_whole(run_finish(run))


def test_a_holder_whose_consent_ends_does_not_contribute_to_the_next_release(exact: None, monkeypatch) -> None:
    """The consent ends by date, death or a new proxy. As after a withdrawal, nothing more is charged."""
    study = small_study()
    year = consent_services.Valid(months=12)
    form_publish(study, texts={"en": "A year."}, valid=year)
    decide(holder(study, 2), "LOW")
    run = begun(study)
    for place, kind in ((4, "died"), (5, "proxy")):
        pseudonym = holder(study, place).pseudonym
        circumstance_record(study=study, pseudonym=pseudonym, kind=kind, reason="Register.", acting_user=None)
    run = commit(run)
    rest = [who for place, who in enumerate(everybody(study)) if place not in (4, 5)]
    heard(run, 0, rest)
    before = account(holder(study, 2))
    run = attempt(run)
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now + timedelta(days=400))
    run = commit(run)
    heard(run, 1, [who for who in rest if who != holder(study, 2)])
    assert account(holder(study, 2)) == before
    decide(holder(study, 5), "LOW")
    run = commit(attempt(run))
    heard(run, 2, [who for who in everybody(study) if who not in (holder(study, 2), holder(study, 4))])
    assert_whole(run)


def test_a_lower_level_counts_before_the_release_and_a_higher_one_after(exact: None) -> None:
    """The noise is so small that budgets matter: at HIGH nobody can vote, and at LOW people can vote often."""
    study = small_study(levels="LLLLLLLLLLHH")
    head_counts_enter(study=study, acting_user=user_create("olga"), counts={"HIGH": 2, "AVERAGE": 0, "LOW": 10})
    run = begun(study, share=1.0, choices={"sigma": 3.0, "radius_share": 1.0})
    decide(holder(study, 0), "HIGH")
    decide(holder(study, 11), "LOW")
    run = commit(run)
    assert counts(run, 0).sum() == 4 * 9, "everybody except the person who lowered their level, and those at HIGH"
    assert holder(study, 0).pk not in charged(run, 0), "they have not answered under their new promise"
    assert charged(run, 0)[holder(study, 11).pk] == 0, "asked under their former promise"
    run = commit(attempt(run))
    assert charged(run, 1)[holder(study, 0).pk] == 0 < charged(run, 1)[holder(study, 11).pk]
    assert account(holder(study, 11)) <= caps_of(3.0, study.delta)
    assert_whole(run_finish(run))


def test_a_policy_that_lowers_a_promise_takes_out_those_it_concerns(exact: None) -> None:
    study = small_study()
    run = begun(study, share=0.8, choices={"sigma": 30.0})
    policy_approve(study, high=0.5, average=2.0, low=3.0)
    run = commit(run)
    heard(run, 0, [who for place, who in enumerate(everybody(study)) if place % 3])
    assert run.spent == pytest.approx([budget["allowed"] for budget in run.plan["budgets"]]), "all of it counts as used"
    assert_whole(run)
    run = commit(attempt(run))
    heard(run, 1, everybody(study))
    run = run_finish(run)
    assert shares(study)[run.pk].used == pytest.approx(0.8)
    assert_whole(run)


def test_single_holders_absent_classes_bad_records_and_holders_without_any_are_ordinary(exact: None) -> None:
    study = small_study(levels="H--A-------L")
    rows = table_rows(HOLDERS - 1, [f"p-{place:03}" for place in range(HOLDERS) if place != 3])
    assert rows.y is not None
    x = rows.x.copy()
    x[0], x[10] = 3e38, -3e38
    dull = dataset_import(
        study=study, name="dull", kind="private", rows=Rows(x, np.zeros_like(rows.y), rows.holders), schema=TABLE
    )
    run = run_finish(approved_run(study, private_dataset=dull))
    assert run.status == Run.Status.FINISHED, run.message
    assert set(charged(run, 0)) == {holder(study, 0).pk, holder(study, 11).pk}
    assert_whole(run)


def test_a_shard_whose_worker_died_is_asked_again_but_not_for_ever_and_one_that_is_held_is_not(settings: Any) -> None:
    settings.HEARTBEAT_TIMEOUT = 60
    study = small_study()
    run = opened(study)
    while not run.shards.exists():
        asking_of(run).step(run)
    shard = run.shards.get()
    Shard.objects.update(state="running", claimed_by="somebody", heartbeat=timezone.now())
    advance.shard_ask(shard.pk)
    assert not asking.are_shards_done(run)
    Shard.objects.update(heartbeat=None)
    advance.shard_ask(shard.pk)
    shard.refresh_from_db()
    assert (shard.state, shard.deaths) == (Shard.State.DONE, 1)
    Shard.objects.update(state="running", deaths=jobs.DEATHS - 1)
    advance.shard_ask(shard.pk)
    run.refresh_from_db()
    assert run.status == Run.Status.FAILED and "Workers repeatedly crashed" in run.message
    assert shares(study)[run.pk].used == 0


def test_a_finished_run_keeps_only_what_a_replay_needs(django_capture_on_commit_callbacks: Commits) -> None:
    study = small_study()
    with django_capture_on_commit_callbacks(execute=True):
        run = begun(study)
    (sums,) = [name for name in files(run) if name.startswith("shard")]
    folder = Path(settings.PRIVATE_DIR) / "runs" / str(run.pk)
    (folder / sums.replace("shard-0-0", "shard-0-5")).write_bytes(b"of a worker that died")
    (folder / "asked-orphan.npz").write_bytes(b"of a transaction that failed")
    with django_capture_on_commit_callbacks(execute=True):
        run = commit(run)
    assert not [name for name in files(run) if name.startswith("shard")]
    with django_capture_on_commit_callbacks(execute=True):
        run = run_finish(run)
    runs.run_forget(run)
    assert set(files(run)) == {Path(batch.attempt).name for batch in run.batches.all()}
    assert_whole(run)
    with changes_recorded([study], acting_user=None):
        Study.objects.update(retain_votes=False)
    runs.run_forget(Run.objects.get(pk=run.pk))
    assert files(run) == []
    assert_whole(run)


@pytest.mark.exhaustive
def test_half_written_coordinates_and_files_that_only_a_restored_database_names_are_made_anew() -> None:
    study = small_study()
    run = begun(study, share=0.3)
    (cache,) = (Path(settings.PRIVATE_DIR) / "runs" / str(run.pk)).glob("coordinates-*")
    whole = cache.read_bytes()
    for length in (0, 40, len(whole) - 1):
        cache.write_bytes(whole[:length])
        Shard.objects.update(state="pending")
        advance.shard_ask(run.shards.get().pk)
        assert asking.are_shards_done(run), length
    for lost in ("shard", "attempt"):
        if lost == "attempt":
            run = begun(study, share=0.3)
        arrays_delete(run.shards.get().artifact if lost == "shard" else run.assignment)
        run = run_finish(commit(run))
        assert run.status == Run.Status.FINISHED, run.message
        assert_whole(run)


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_a_run_that_ends_in_mid_batch_keeps_what_was_released(end, django_capture_on_commit_callbacks) -> None:
    study = small_study()
    run = attempt(commit(begun(study)))
    late = run.shards.get()
    run_end(run, end, django_capture_on_commit_callbacks)
    run.refresh_from_db()
    assert run.status == ("cancelled" if end == "cancel" else "failed")
    assert run.position == 4 == Query.objects.filter(run=run).count()
    assert shares(study)[run.pk].used == pytest.approx(max(4 / 100 / caps_of(1.0, study.delta), 0))
    advance.shard_ask(late.pk)
    advance.run_advance(run.pk)
    assert files(run) == []
    assert_whole(run)


def test_a_locked_study_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    study = small_study()
    run = approved_run(study)

    def locked(step: Callable[[Run], object]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(commits, "missing_rows", lambda study: {"accounting.release": 1})
            assert step(run) is False
        run.refresh_from_db()
        assert "settle_restore" in run.message
        assert not Release.objects.filter(run=run.pk).exists()

    locked(asking_of(run).open)
    assert asking_of(run).open(run) and asking_of(run).step(run)
    locked(asking_of(run).step)
    assert not run.shards.exists()
    run = attempt(run)
    locked(asking_of(run).step)
    assert run_finish(commit(run)).status == Run.Status.FINISHED


def test_only_one_run_of_a_study_spends_at_a_time_whatever_its_method() -> None:
    study = small_study()
    holders, teachers = approved_run(study, share=0.3), run_start(study, share=0.3, **TABLE_RUN)
    elsewhere = run_teach(run_start(small_study(slug="elsewhere"), **TABLE_RUN))
    assert vote_open(elsewhere), "other studies do not wait"
    teachers = run_teach(teachers)
    assert (teachers.status, teachers.message) == (Run.Status.APPROVED, commits.WAITS), "it was approved later"
    assert asking_of(holders).open(holders)
    assert not method_of(teachers).can_continue(teachers)
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(study=study).update(status=Run.Status.ASKING)
    second = approved_run(study, share=0.1)
    advance.run_advance(second.pk)
    second.refresh_from_db()
    assert (second.status, second.message) == (Run.Status.APPROVED, commits.WAITS)
    for run in (holders, teachers, second):
        run = run_finish(Run.objects.get(pk=run.pk))
        assert run.status == Run.Status.FINISHED
        assert_whole(run)


def test_no_plan_without_counted_holders_or_with_too_much_noise() -> None:
    study = small_study()
    counts = dict.fromkeys(("HIGH", "AVERAGE", "LOW"), 0)
    head_counts_enter(study=study, acting_user=user_create("olga"), counts=counts)
    with pytest.raises(PlanError, match="no one takes part"):
        approved_run(study)
    head_counts_state(study)
    with pytest.raises(PlanError, match="With this many labels and this share, the"):
        run_start(study, share=1e-8, **ASKING_RUN | {"choices": {}})
    assert share_free(study) == 1
    notes = [note["template"] for note in approved_run(study, share=0.1, choices={"sigma": 500.0}).plan["notes"]]
    assert "too few people" in notes[0] and len(notes) == 1
    run = run_draft(study, **ASKING_RUN | {"choices": {"sigma": 0.5, "radius_share": 0.3}})
    notes = [note.template for note in method_of(run).plan(run, 1.0).notes]
    assert any("The run may use everything that is left of" in note for note in notes)
