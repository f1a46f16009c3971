"""From draft to the end: what is refused, what is repeated, what is left behind."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import DatabaseError
from django.utils import timezone

from accounting.models import LedgerEntry, RunAccount
from consent import services as consent_services
from tests.factories import policy_approve, study_open, user_create
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    run_draft,
    run_finish,
    run_start,
    run_teach,
    study_with_table,
    table_rows,
)
from training.artifacts import arrays_save
from training.formats import TabularSchema
from training.models import Dataset, Run
from training.pate import PlanError
from training.services import lifecycle, students, teaching, voting
from training.services.datasets import dataset_import

pytestmark = pytest.mark.django_db

Commits = Any  # the fixture django_capture_on_commit_callbacks


def files(run: Run) -> list[str]:
    folder = Path(settings.PRIVATE_DIR) / "runs" / str(run.pk)
    return sorted(path.name for path in folder.glob("*"))


def errors(study: Any, **fields: Any) -> dict[str, list[str]]:
    """Why a proposal is refused, by field; nothing is left of it."""
    with pytest.raises(ValidationError) as refused:
        run_draft(study, **TABLE_RUN | fields)
    assert not Run.objects.exists()
    assert not RunAccount.objects.exists()
    assert not LedgerEntry.objects.exists()
    return refused.value.message_dict


# --- Proposing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({"learner": "oracle"}, "learner", "choose one of: random_forest"),
        ({"student_learner": "oracle"}, "student_learner", "choose one of: random_forest"),
        ({"learner_parameters": {"depth": 3}}, "learner_parameters", "nearest_neighbour has no parameter depth"),
        ({"student_parameters": {"neighbours": 0}}, "student_parameters", "at least 1"),
        ({"learner_parameters": 3}, "learner_parameters", ""),
        ({"aggregator": {"name": "gnmax", "sigma": 0.0}}, "aggregator", "sigma"),
        ({"aggregator": {"name": "gnmax", "sigma": -1.0}}, "aggregator", "sigma"),
        ({"aggregator": {"name": "gnmax", "sigma": float("nan")}}, "aggregator", ""),
        ({"aggregator": {"name": "gnmax"}}, "aggregator", "takes the parameters sigma"),
        ({"aggregator": {"name": "majority"}}, "aggregator", "name one of"),
        ({"aggregator": "gnmax"}, "aggregator", ""),
        ({"aggregator": {"name": "gnmax", "sigma": "4"}}, "aggregator", ""),
        ({"variant": "vanishing"}, "variant", "not a valid choice"),
        ({"method": "guess"}, "method", "not a valid choice"),
        ({"conversion": "exact"}, "conversion", "not a valid choice"),
        ({"teachers": 0}, "teachers", "greater than or equal to 1"),
        ({"batch_size": 0}, "batch_size", "greater than or equal to 1"),
        ({"wanted_labels": 0}, "wanted_labels", "greater than or equal to 1"),
        ({"teachers": 31}, "teachers", "has 30 holders; ask for at most as many teachers"),
        ({"seed": 1}, "seed", "Only a simulation may have a seed"),
        ({"title": ""}, "title", "blank"),
    ],
)
def test_a_run_that_could_not_be_carried_out_is_refused_by_field(fields: dict[str, Any], field: str, told: str) -> None:
    found = errors(study_with_table(), **fields)
    assert field in found
    assert told in " ".join(found[field])


def test_an_aggregator_that_needs_a_student_during_the_vote_is_refused() -> None:
    aggregator = {
        "name": "interactive_gnmax",
        "sigma": 4.0,
        "sigma_threshold": 8.0,
        "threshold": 5.0,
        "confidence": 0.9,
    }
    assert "student" in errors(study_with_table(), aggregator=aggregator)["aggregator"][0]


def test_datasets_must_be_of_the_study_of_the_right_kind_and_alike() -> None:
    study, other = study_with_table(), study_with_table("other")
    foreign = Dataset.objects.get(study=other, kind="private")
    public = Dataset.objects.get(study=study, kind="public")
    schema = TabularSchema(TABLE.columns, ("a", "b", "z"))
    unlike = dataset_import(study=study, name="unlike", kind="public", rows=table_rows(6), schema=schema)
    assert "belongs to another study" in errors(study, private_dataset=foreign)["private_dataset"][0]
    assert "choose a private one" in errors(study, private_dataset=public)["private_dataset"][0]
    assert "choose a test one" in errors(study, test_dataset=public)["test_dataset"][0]
    assert "columns or classes differ" in errors(study, public_dataset=unlike)["public_dataset"][0]


def test_nothing_is_told_of_the_private_records_of_another_study() -> None:
    study, other = study_with_table(), study_with_table("other", holders=15)
    foreign = Dataset.objects.get(study=other, kind="private")
    found = errors(study, private_dataset=foreign, teachers=29)
    assert "teachers" not in found, "it would tell how many holders the other study has"


def test_a_class_that_no_private_record_has_is_named() -> None:
    study = study_open("unseen", delta=1e-4)
    rows = table_rows(30, [f"p{place}" for place in range(30)])
    assert rows.y is not None
    for kind, part in (("private", rows[rows.y < 2]), ("public", table_rows(6))):
        dataset_import(study=study, name=kind, kind=kind, rows=part, schema=TABLE)
    told = errors(study)["public_dataset"][0]
    assert "no private record has (c)" in told
    assert "Add private records of that class" in told


def test_a_draft_of_someone_who_may_not_see_group_sizes_is_checked_against_them_on_approval() -> None:
    study = study_with_table()
    consent_services.membership_add(study=study, user=user_create("rita"), role="researcher")
    fields = run_draft(study, **TABLE_RUN).__dict__
    names = [field.name for field in Run._meta.fields if field.name in ("learner", "student_learner", "aggregator")]
    run = lifecycle.run_propose(
        study=study,
        acting_user=user_create("rita"),
        title="Too many",
        teachers=31,
        private_dataset=Dataset.objects.get(study=study, kind="private"),
        public_dataset=Dataset.objects.get(study=study, kind="public"),
        **{name: fields[name] for name in names},
    )
    with pytest.raises(ValidationError, match="at most as many teachers"):
        lifecycle.run_approve(run=run, acting_user=user_create("olga"))
    run.refresh_from_db()
    assert run.status == Run.Status.DRAFT


# --- Approving and cancelling ---------------------------------------------------------------------------------------


def test_a_run_that_cannot_be_planned_is_not_approved_and_stays_a_draft() -> None:
    study = study_with_table(levels="-")
    run = run_draft(study, **TABLE_RUN)
    with pytest.raises(PlanError, match="Wait for consents"):
        lifecycle.run_approve(run=run, acting_user=user_create("olga"))
    run.refresh_from_db()
    assert run.status == Run.Status.DRAFT
    assert not LedgerEntry.objects.exists()


def test_approving_twice_changes_nothing() -> None:
    run = run_draft(study_with_table(), **TABLE_RUN)
    first = lifecycle.run_approve(run=run, acting_user=user_create("olga"))
    again = lifecycle.run_approve(run=run, acting_user=user_create("conrad"))
    assert (again.approved_by, again.approved_at) == (first.approved_by, first.approved_at)


def test_a_cancelled_run_is_not_approved() -> None:
    run = run_draft(study_with_table(), **TABLE_RUN)
    lifecycle.run_cancel(run=run, acting_user=user_create("olga"))
    with pytest.raises(ValidationError, match="Propose it anew"):
        lifecycle.run_approve(run=run, acting_user=user_create("olga"))


def to_draft(study: Any) -> Run:
    return run_draft(study, **TABLE_RUN)


def to_approved(study: Any) -> Run:
    return run_start(study, **TABLE_RUN)


def to_training(study: Any) -> Run:
    run = run_start(study, **TABLE_RUN)
    teaching.run_prepare(run)
    lifecycle.chunk_train(run.chunks.earliest("start").pk)
    return run


def to_voting(study: Any) -> Run:
    run = run_teach(run_start(study, **TABLE_RUN | {"batch_size": 1}))
    voting.vote_open(run)
    voting.vote_batch(run)
    return run


def to_student(study: Any) -> Run:
    run = to_voting(study)
    while Run.objects.get(pk=run.pk).status == Run.Status.VOTING:
        voting.vote_batch(run)
    return run


@pytest.mark.parametrize("reach", [to_draft, to_approved, to_training, to_voting, to_student])
def test_a_run_can_be_cancelled_until_it_ends(
    reach: Callable[[Any], Run], django_capture_on_commit_callbacks: Commits
) -> None:
    run = reach(study_with_table())
    before = Run.objects.get(pk=run.pk)
    entries = LedgerEntry.objects.count()
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.run_cancel(run=run, acting_user=user_create("olga"))
    run = Run.objects.get(pk=run.pk)
    assert (run.status, run.message) == (Run.Status.CANCELLED, "An operator has cancelled the run.")
    assert run.ended_at
    assert run.forgotten_at
    assert files(run) == []
    assert (run.labels, run.position, LedgerEntry.objects.count()) == (before.labels, before.position, entries)
    # Whatever still comes for it does nothing.
    lifecycle.run_advance(run.pk)
    for chunk in run.chunks.all():
        lifecycle.chunk_train(chunk.pk)
    for step in (teaching.run_prepare, voting.vote_batch if run.account_id else voting.vote_open):
        assert not step_is_taken(step, before)
    again = Run.objects.get(pk=run.pk)
    assert (again.status, again.message, again.position) == (
        Run.Status.CANCELLED,
        "An operator has cancelled the run.",
        run.position,
    )
    assert files(run) == []


def step_is_taken(step: Callable[[Run], bool], run: Run) -> bool:
    """Does a worker that knows the run only as it was before get anywhere?"""
    try:
        return step(run)
    except FileNotFoundError:
        return False


def test_a_run_that_has_ended_stays_as_it_ended() -> None:
    run = run_finish(run_start(study_with_table(), **TABLE_RUN))
    assert run.status == Run.Status.FINISHED
    lifecycle.run_cancel(run=run, acting_user=user_create("olga"))
    lifecycle.run_fail(run.pk, "Too late.")
    lifecycle.run_advance(run.pk)
    again = Run.objects.get(pk=run.pk)
    assert (again.status, again.message, again.labels) == (Run.Status.FINISHED, "", run.labels)


# --- Going through --------------------------------------------------------------------------------------------------


def test_a_run_goes_from_approval_to_its_end_and_keeps_nothing_secret() -> None:
    run = run_finish(run_start(study_with_table(), **TABLE_RUN))
    assert run.status == Run.Status.FINISHED
    assert None not in (run.approved_at, run.started_at, run.snapshot_at, run.voting_at, run.ended_at)
    assert run.student.card["run"] == str(run.pk)
    assert files(run) == []
    assert run.forgotten_at


def test_a_study_may_keep_the_votes_of_finished_runs_alone(django_capture_on_commit_callbacks: Commits) -> None:
    study = study_with_table(retain_votes=True)
    finished = run_finish(run_start(study, **TABLE_RUN | {"wanted_labels": 1}))
    assert len(files(finished)) == 6 + 2
    cancelled = to_training(study)
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.run_cancel(run=cancelled, acting_user=user_create("olga"))
    lifecycle.runs_sweep()
    assert files(cancelled) == []
    assert len(files(finished)) == 6 + 2
    consent_services.study_update(study=study, retain_votes=False)
    lifecycle.runs_sweep()
    assert files(finished) == []


def test_what_a_late_worker_wrote_for_an_ended_run_is_deleted_too(django_capture_on_commit_callbacks: Commits) -> None:
    run = to_training(study_with_table())
    chunk = run.chunks.filter(state="pending").earliest("start")
    run.chunks.filter(pk=chunk.pk).update(claimed_by="a worker", heartbeat=timezone.now(), state="running")
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.run_cancel(run=run, acting_user=user_create("olga"))
    arrays_save(f"runs/{run.pk}/late.npz", predictions=np.zeros(3))
    lifecycle.runs_sweep()
    run.chunks.filter(pk=chunk.pk).update(claimed_by="")
    assert Run.objects.get(pk=run.pk).forgotten_at is None
    lifecycle.runs_sweep()
    assert files(run) == []
    assert Run.objects.get(pk=run.pk).forgotten_at


def test_starting_the_started_changes_nothing() -> None:
    run = run_start(study_with_table(), **TABLE_RUN)
    stale = Run.objects.get(pk=run.pk)
    assert teaching.run_prepare(run)
    prepared = Run.objects.get(pk=run.pk)
    kept = files(run)
    assert not teaching.run_prepare(stale), "a second worker, with the run as it was before"
    assert Run.objects.get(pk=run.pk).snapshot_at == prepared.snapshot_at
    assert files(run) == kept
    run = run_teach(run)
    chunk = run.chunks.earliest("start")
    lifecycle.chunk_train(chunk.pk)
    assert run.chunks.get(pk=chunk.pk).artifact == chunk.artifact, "a chunk delivered twice is trained once"


def test_a_failed_run_says_what_to_do_and_forgets() -> None:
    tiny = {"name": "gnmax", "sigma": 0.01}
    run = run_finish(run_start(study_with_table(), **TABLE_RUN | {"aggregator": tiny}))
    assert (run.status, run.stop_reason) == (Run.Status.FAILED, Run.StopReason.BUDGET)
    assert "No label could be released" in run.message
    assert "larger σ" in run.message
    assert run.ended_at
    assert files(run) == []
    assert not LedgerEntry.objects.exists()


def test_what_nobody_expected_ends_the_run_without_telling_details(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(run: Run) -> bool:
        raise ZeroDivisionError("P-17 has label 3")

    monkeypatch.setitem(lifecycle.STEPS, Run.Status.TRAINING, explode)
    run = run_start(study_with_table(), **TABLE_RUN)
    lifecycle.run_advance(run.pk)
    run.refresh_from_db()
    assert (run.status, run.claimed_by) == (Run.Status.FAILED, "")
    assert run.message == "An unexpected error; the logs of the worker tell it under this run's id."


@pytest.mark.parametrize("trouble", [OSError("disk full"), DatabaseError("gone")])
def test_a_run_is_tried_again_where_storage_or_database_fail(
    trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: Run) -> bool:
        raise trouble

    run = run_start(study_with_table(), **TABLE_RUN)
    with monkeypatch.context() as patch:
        patch.setitem(lifecycle.STEPS, Run.Status.APPROVED, fail)
        lifecycle.run_advance(run.pk)
    run.refresh_from_db()
    assert run.status == Run.Status.APPROVED
    assert "tried again" in run.message
    run = run_finish(run)
    assert (run.status, run.message) == (Run.Status.FINISHED, "")


def test_a_run_that_everybody_has_left_before_it_starts_fails_and_says_why() -> None:
    study = study_with_table()
    run = run_start(study, **TABLE_RUN)
    for holder in study.holders.all():
        consent_services.consent_withdraw(holder=holder, acting_user=None)
    lifecycle.run_advance(run.pk)
    run.refresh_from_db()
    assert run.status == Run.Status.FAILED
    assert "Nobody is left whom this run may count" in run.message
    assert not RunAccount.objects.exists(), "nothing is held for it any more"


# --- The sweep ------------------------------------------------------------------------------------------------------


def silence(run: Run, **fields: Any) -> None:
    """As if whoever works on the run had been dead for an hour."""
    Run.objects.filter(pk=run.pk).update(heartbeat=timezone.now() - timedelta(hours=1), **fields)


def test_the_sweep_sends_a_quiet_run_once() -> None:
    run = run_start(study_with_table(), **TABLE_RUN)
    assert lifecycle.runs_sweep() == [], "it has just been approved"
    silence(run)
    assert lifecycle.runs_sweep() == [str(run.pk)]
    assert lifecycle.runs_sweep() == []
    for status in (*Run.ENDED, Run.Status.DRAFT):
        silence(run, status=status)
        assert lifecycle.runs_sweep() == []


def test_the_sweep_takes_a_run_away_from_a_dead_worker() -> None:
    run = to_voting(study_with_table())
    silence(run, claimed_by="dead:1:abc")
    assert lifecycle.runs_sweep() == [str(run.pk)]
    lifecycle.run_advance(run.pk)
    assert Run.objects.get(pk=run.pk).status == Run.Status.FINISHED


def test_the_sweep_leaves_a_run_whose_teachers_are_being_trained() -> None:
    run = to_training(study_with_table())
    silence(run)
    chunk = run.chunks.filter(state="pending").earliest("start")
    run.chunks.filter(pk=chunk.pk).update(claimed_by="alive", heartbeat=timezone.now(), state="running")
    assert lifecycle.runs_sweep() == []
    run.chunks.filter(pk=chunk.pk).update(heartbeat=timezone.now() - timedelta(hours=1))
    assert lifecycle.runs_sweep() == [str(run.pk)]


def test_a_policy_in_force_later_is_no_obstacle_to_approval() -> None:
    study = study_with_table()
    policy_approve(study, high=0.5, average=1.0, low=1.5, effective_from=timezone.now() + timedelta(days=1))
    run = run_finish(run_start(study, **TABLE_RUN))
    assert [group.epsilon for group in run.account.groups.all()] == [1.0, 2.0, 3.0]


def test_a_student_that_is_trained_twice_is_stored_once() -> None:
    run = to_student(study_with_table())
    stale = Run.objects.get(pk=run.pk)
    assert students.student_train(Run.objects.get(pk=run.pk))
    before = Run.objects.get(pk=run.pk).student
    assert not students.student_train(stale)
    after = Run.objects.get(pk=run.pk).student
    assert (after.artifact, after.digest) == (before.artifact, before.digest)
