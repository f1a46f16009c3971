"""Preparing a run of teachers, assigning holders to them, and withdrawals before the vote."""

from collections import defaultdict
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from django.core.files.storage import storages
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from accounting.accounts import balances
from common import jobs
from common.artifacts import arrays_load
from consent import services
from consent.models import ConsentForm, Study
from consent.selectors import consent_snapshot
from learning.learners import LEARNERS
from learning.mechanisms.pate import NO_VOTE
from tests.factories import user_create
from tests.pages import as_
from tests.training import runs
from tests.training.runs import TABLE_RUN, run_finish, run_prepared, run_start, run_teach, study_with_table
from training.engine.questions import run_folder
from training.engine.records import records_load
from training.methods import pate_teachers
from training.methods.pate_teachers import ballot_load, predictions_load, vote_open
from training.models import Dataset, Run
from training.selectors import run_progress
from training.services import advance
from training.services.runs import run_cancel

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _each_teacher_learns_in_a_chunk_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CHUNKS", pate_teachers.CHUNKS)


@pytest.fixture
def lessons(monkeypatch: pytest.MonkeyPatch) -> dict[int, np.ndarray]:
    """Collect the records that each teacher last learned from, by the seed of its training."""
    seen: dict[int, np.ndarray] = {}
    learner = LEARNERS["nearest_neighbour"]
    fit = learner.fit

    def watched(self: Any, x: Any, y: Any, *, classes: int, seed: int, **options: Any) -> Any:
        seen[seed] = x
        return fit(self, x, y, classes=classes, seed=seed, **options)

    monkeypatch.setattr(learner, "fit", watched)
    return seen


def owners_of(study: Study, x: np.ndarray) -> list[int]:
    """Return the owners of these records, which are all different."""
    private = records_load(Dataset.objects.get(study=study, kind="private"))
    owner = {row.tobytes(): holder for row, holder in zip(private["x"], private["holder"].tolist(), strict=True)}
    return [owner[row.tobytes()] for row in x]


def taught(run: Run, lessons: dict[int, np.ndarray]) -> dict[int, list[int]]:
    """Return the owners of the records that each teacher learned from, one entry per record."""
    seeds = arrays_load(run.assignment, "seeds")["seeds"].tolist()
    return {place: owners_of(run.study, lessons[seed]) for place, seed in enumerate(seeds) if seed in lessons}


@pytest.mark.parametrize(("variant", "copies"), [("weighting", {1}), ("standard", {1}), ("upsampling", {1, 2, 3})])
def test_all_records_of_a_holder_go_to_the_same_teachers(variant, copies, lessons) -> None:
    study = study_with_table(records=4)
    run = run_teach(run_start(study, **TABLE_RUN | {"variant": variant}))
    teachers = defaultdict(set)
    for teacher, owners in taught(run, lessons).items():
        for owner in set(owners):
            teachers[owner].add(teacher)
            assert owners.count(owner) == 4, "a teacher learns from all records of a holder or from none"
    assert set(teachers) == set(study.holders.values_list("pk", flat=True))
    assert {len(places) for places in teachers.values()} == copies


def test_teacher_learns_from_one_group_alone_in_weighting_and_without_those_who_left(lessons) -> None:
    study = study_with_table()
    run = run_start(study, **TABLE_RUN)
    pate_teachers.run_prepare(run)
    holder = study.holders.earliest("pk")
    services.consent_withdraw(holder=holder, acting_user=None)
    run = run_teach(run)
    level = dict(study.consent_events.exclude(level="").values_list("holder_id", "level"))
    found = taught(run, lessons).values()
    assert found and all(len({level[owner] for owner in owners}) <= 1 for owners in found)
    assert all(holder.pk not in owners for owners in found)


def test_a_withdrawal_before_the_vote_retrains_affected_teachers_alone(lessons: dict[int, np.ndarray]) -> None:
    """This includes a person who has consented again since: they have left the run."""
    study = study_with_table(retain_votes=True)
    run = run_teach(run_start(study, **TABLE_RUN))
    before = taught(run, lessons)
    left = list(study.holders.order_by("pk")[:2])
    for holder in left:
        services.consent_withdraw(holder=holder, acting_user=None)
    form = study.consent_forms.get()
    services.consent_give(holder=left[1], level="HIGH", form=form, acting_user=None)
    gone = {holder.pk for holder in left}
    affected = [teacher for teacher, owners in before.items() if gone & {*owners}]
    kept = set(run.chunks.exclude(start__in=affected).values_list("artifact", flat=True))
    lessons.clear()
    assert vote_open(run)
    run.refresh_from_db()
    assert run.status == Run.Status.PREPARING, "it waits for the teachers"
    run = run_finish(run)
    assert run.status == Run.Status.FINISHED, run.message
    seeds = arrays_load(run.assignment, "seeds")["seeds"].tolist()
    assert set(lessons) - {0} == {seeds[teacher] for teacher in affected}, "0 is the student's"
    assert not any(gone & {*owners} for owners in taught(run, lessons).values())
    assert kept < set(run.chunks.values_list("artifact", flat=True))
    assert not gone & {*ballot_load(run.pk).holder}
    assert len(balances(study).holders) == 28 and not gone & {*balances(study).holders}, "they are charged nothing"


def test_a_run_that_everybody_has_left_continues_without_a_vote() -> None:
    """Consents alone show that everybody has left, so the run must not reveal it."""
    study = study_with_table(retain_votes=True)
    run = run_teach(run_start(study, **TABLE_RUN))
    for holder in study.holders.all():
        services.consent_withdraw(holder=holder, acting_user=None)
    run = run_finish(run)
    assert (run.status, run.labels) == (Run.Status.FINISHED, 12)
    assert (predictions_load(run) == NO_VOTE).all()
    assert len(balances(study).holders) == 0


@pytest.mark.parametrize("trouble", [ValueError("one class"), IndexError("empty"), MemoryError()])
def test_a_teacher_that_cannot_learn_is_silently_left_out(trouble: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = LEARNERS["nearest_neighbour"]
    fit = learner.fit
    run = run_prepared(run_start(study_with_table(retain_votes=True), **TABLE_RUN))
    unlucky = int(arrays_load(run.assignment, "seeds")["seeds"][3])

    def fails(self: Any, x: Any, y: Any, *, seed: int, **options: Any) -> Any:
        if seed == unlucky:
            raise trouble
        return fit(self, x, y, seed=seed, **options)

    with monkeypatch.context() as patch:
        patch.setattr(learner, "fit", fails)
        run = run_teach(run)
    run = run_finish(run)
    assert (run.status, run.message, run.labels) == (Run.Status.FINISHED, "", 12)
    without_members = np.setdiff1d(np.arange(6), arrays_load(run.assignment)["teacher"])
    silent = np.flatnonzero((predictions_load(run) == NO_VOTE).all(axis=1))
    np.testing.assert_array_equal(silent, np.union1d([3], without_members), "a lot may leave a teacher without members")


def test_assignment_is_independent_of_others_and_each_run_draws_its_own_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_with_table()

    def assignment() -> dict[str, np.ndarray]:
        run = run_prepared(run_start(study, share=0.2, **TABLE_RUN))
        run_cancel(run=run, acting_user=None)
        return arrays_load(run.assignment)

    one, two = assignment(), assignment()
    assert one["teacher"].tolist() != two["teacher"].tolist()
    monkeypatch.setattr(pate_teachers, "token_bytes", lambda size: b"k" * size)
    everybody = assignment()
    holder = study.holders.earliest("pk")
    services.consent_withdraw(holder=holder, acting_user=None)
    others = assignment()
    stays = everybody["holder"] != holder.pk
    for name in ("holder", "teacher", "group"):
        np.testing.assert_array_equal(everybody[name][stays], others[name])
    np.testing.assert_array_equal(everybody["seeds"], others["seeds"])


def test_a_crash_while_holders_leave_does_not_let_their_teachers_vote() -> None:
    """The new assignment is stored, but the transaction that requests new teachers is lost."""
    study = study_with_table(retain_votes=True)
    run = run_teach(run_start(study, **TABLE_RUN))
    holder = study.holders.earliest("pk")
    services.consent_withdraw(holder=holder, acting_user=None)
    learned = set(run.chunks.values_list("artifact", flat=True))

    class Crash(Exception):
        pass

    with pytest.raises(Crash), transaction.atomic():
        assert vote_open(run)
        raise Crash
    run = run_finish(Run.objects.get(pk=run.pk))
    assert run.status == Run.Status.FINISHED
    assert len(learned - set(run.chunks.values_list("artifact", flat=True))) == 1
    assert holder.pk not in ballot_load(run.pk).holder


def test_a_worker_that_lost_its_claim_cannot_replace_what_another_taught(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_start(study_with_table(), **TABLE_RUN)
    pate_teachers.run_prepare(run)
    chunk = run.chunks.earliest("start")
    save = pate_teachers.arrays_save

    def slow(name: str, **arrays: np.ndarray) -> str:
        """While this worker writes, the sweep gives its chunk to another worker."""
        monkeypatch.setattr(pate_teachers, "arrays_save", save)
        run.chunks.filter(pk=chunk.pk).update(claimed_by="")
        advance.chunk_train(chunk.pk)
        return save(name, **arrays)

    monkeypatch.setattr(pate_teachers, "arrays_save", slow)
    advance.chunk_train(chunk.pk)
    chunk.refresh_from_db()
    assert chunk.state == chunk.State.DONE
    _, names = storages["private"].listdir(f"runs/{run.pk}")
    written = [name for name in names if name.startswith("predictions")]
    assert written == [chunk.artifact.rpartition("/")[2]], "files of the other worker are deleted"


def test_teachers_that_kill_every_worker_end_their_run_and_a_silent_storage_does_not(monkeypatch) -> None:
    run = run_start(study_with_table(), **TABLE_RUN)
    advance.run_advance(run.pk)
    silent, chunk = run.chunks.order_by("start")[:2]
    with monkeypatch.context() as patch:
        patch.setattr(storages["private"], "_save", Mock(side_effect=OSError("the disk is full")))
        for _ in range(jobs.DEATHS + 1):
            advance.chunk_train(silent.pk)
    advance.chunk_train(silent.pk)
    silent.refresh_from_db()
    assert (silent.state, silent.deaths) == ("done", 0)
    dead = {"claimed_by": "dead", "heartbeat": timezone.now() - timedelta(days=1), "deaths": jobs.DEATHS - 1}
    run.chunks.filter(pk=chunk.pk).update(state="running", **dead)
    advance.chunk_train(chunk.pk)
    run.refresh_from_db()
    assert run.status == Run.Status.FAILED and "memory" in run.message
    assert not run.chunks.filter(pk=chunk.pk, state="done").exists()


@pytest.fixture
def study() -> Study:
    return study_with_table(levels="HAL-")


def members(run: Run) -> set[int]:
    return set(arrays_load(run.assignment)["holder"].tolist())


def shares_seen(patch: pytest.MonkeyPatch, run: Run, at: float = 2.0, then: Any = None) -> list[float]:
    """Return each reported share of the work; ``then`` is called once the share is at least ``at``."""
    note, seen = pate_teachers._note, []

    def noted(run: Run, done: int, total: int) -> None:
        note(run, done, total)
        seen.append(Run.objects.get(pk=run.pk).prepared)
        if seen[-1] >= at:
            then()

    patch.setattr(pate_teachers, "_note", noted)
    return seen


def test_an_approval_leaves_the_people_of_its_moment_to_a_worker(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    unwanted = Mock(side_effect=AssertionError("the request reads all holders"))
    with monkeypatch.context() as patch:
        patch.setattr(pate_teachers, "consent_snapshot", unwanted)
        patch.setattr(pate_teachers, "owners_of", unwanted)
        run = run_start(study, **TABLE_RUN)
    assert (run.status, run.assignment, run_progress(run).stages[0].share) == ("approved", "", 0.0)
    before = set(consent_snapshot(study).holders.tolist())
    late = study.holders.filter(consent_events=None).earliest("pk")
    gone = study.holders.get(pk=min(before))
    services.consent_give(holder=late, level="HIGH", form=ConsentForm.objects.get(study=study), acting_user=None)
    services.consent_withdraw(holder=gone, acting_user=None)
    run = run_prepared(run)
    assert (run.status, run_progress(run).stages[0].share) == ("preparing", 1.0)
    assert members(run) == before - {gone.pk}


@pytest.mark.parametrize("people", [0, 1, 15])
def test_progress_is_independent_of_the_number_of_people_on_pages_and_in_the_api(study, people, monkeypatch) -> None:
    for holder in study.holders.exclude(consent_events=None).order_by("pk")[people:]:
        services.consent_withdraw(holder=holder, acting_user=None)
    run, client, told = run_start(study, **TABLE_RUN), as_("olga"), []

    def look() -> None:
        page = client.get(reverse("staff:run", args=[study.slug, run.pk])).text
        document = client.get(f"/api/v1/runs/{run.pk}").json()
        told.append(("Preparing participants" in page, document["status"], document["progress"]["stages"][0]["share"]))

    seen = shares_seen(monkeypatch, run, 0.8, look)
    assert len(members(run_prepared(run))) == people
    assert seen == [tenth / 10 for tenth in range(10)]
    assert told == [(True, "preparing", 0.8), (True, "preparing", 0.9)]


def test_a_preparation_can_be_cancelled(study, monkeypatch, django_capture_on_commit_callbacks) -> None:
    run = run_start(study, **TABLE_RUN)

    def cancel() -> None:
        with django_capture_on_commit_callbacks(execute=True):
            run_cancel(run=run, acting_user=user_create("olga"))

    seen = shares_seen(monkeypatch, run, 0.5, cancel)
    advance.run_advance(run.pk)
    run.refresh_from_db()
    assert (run.status, run.assignment, run.chunks.count()) == (Run.Status.CANCELLED, "", 0)
    assert max(seen) < 1, "it stopped at the next tenth"
    assert not storages["private"].exists(run_folder(run)) or not storages["private"].listdir(run_folder(run))[1]
