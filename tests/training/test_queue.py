"""Queue and workers: places, claims, expected ends, and what is told of other studies."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from ipate_client.site import _run as run_of

from common.jobs.leases import claimant, lease, worker_claims
from common.models import WorkerHeartbeat
from consent import services
from consent.models import Study
from consent.services.accounts import administrator_set
from tests import factories
from tests.pages import as_
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, run_teach, study_with_table
from tests.workers import wait_until, worker
from training.engine.turns import worker_time_note
from training.models import Run, TeacherChunk
from training.queue import queue_for, queue_watchable, run_wait

pytestmark = pytest.mark.django_db

WORKER = "celery@here:1"


@pytest.fixture
def study() -> Study:
    return study_with_table()


@pytest.fixture
def operator(study: Study) -> User:
    user = factories.user_create("otto")
    if not study.memberships.filter(user=user).exists():
        services.membership_add(study=study, user=user, role="operator", acting_user=None)
    return user


def place(run: Run) -> int | None:
    wait = run_wait(run)
    return wait and wait.place


@pytest.mark.slow
def test_runs_wait_in_the_order_in_which_they_were_approved(study: Study, operator: User) -> None:
    first, second = (run_start(study, share=0.1, title=title, **TABLE_RUN) for title in ("First", "Second"))
    draft = run_draft(study, **TABLE_RUN)
    assert [place(run) for run in (first, second, draft)] == [1, 2, None]
    queue = queue_for(operator)
    assert [(row.run, row.place) for row in queue.waiting] == [(first, 1), (second, 2)]
    assert queue.under_way == []
    page = as_(operator).get(f"/studies/table/runs/{second.pk}/").content.decode()
    assert "1 run is before it in the queue." in page
    assert as_(operator).get(f"/api/v1/runs/{second.pk}").json()["place"] == 2
    run_teach(first)
    first.refresh_from_db()
    assert (place(first), place(second)) == (None, 1)
    assert [row.run for row in queue_for(operator).under_way] == [first]


def test_a_run_that_a_worker_begins_while_it_is_looked_at_waits_no_more(study: Study) -> None:
    run = run_start(study, **TABLE_RUN)
    assert place(run) == 1
    Run.objects.filter(pk=run.pk).update(started_at=timezone.now())
    assert run.started_at is None, "it was read before"
    assert place(run) is None


def test_a_workers_claims_say_what_it_is_at(study: Study, operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    run, now = run_start(study, **TABLE_RUN), timezone.now()
    WorkerHeartbeat.objects.create(name=WORKER, heard_at=now)
    WorkerHeartbeat.objects.create(name="celery@there:1", heard_at=now - timedelta(hours=1))
    monkeypatch.setattr("common.worker_heartbeats._own_name", WORKER)
    with lease(Run, run.pk) as claim:
        assert claim is not None
        assert claimant(claim) == WORKER
        alive, dead = queue_for(operator).workers
        assert (alive.name, alive.is_alive, alive.runs, alive.elsewhere) == (WORKER, True, (run,), 0)
        assert (dead.is_alive, dead.runs) == (False, ())
        assert [row.workers for row in queue_for(operator).waiting] == [(WORKER,)]
    assert queue_for(operator).workers[0].runs == ()
    run_teach(run)
    chunk = TeacherChunk.objects.filter(run=run).first()
    TeacherChunk.objects.filter(pk=chunk.pk).update(claimed_by=claim, heartbeat=timezone.now())
    assert queue_for(operator).workers[0].runs == (run,)


def test_a_long_name_still_fits_and_is_known(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"celery@{'a' * 200}.example.org:4711"
    monkeypatch.setattr("common.worker_heartbeats._own_name", name)
    run = run_start(study, **TABLE_RUN)
    with lease(Run, run.pk) as claim:
        assert worker_claims(name, Run.objects.get(pk=run.pk).claimed_by)
        assert not worker_claims(f"celery@{'a' * 200}.example.org:4712", claim or "")


@pytest.mark.slow
def test_when_a_run_is_expected_to_end(study: Study, operator: User) -> None:
    earlier = run_finish(run_start(study, share=0.2, **TABLE_RUN))
    now = timezone.now()
    Run.objects.filter(pk=earlier.pk).update(started_at=now - timedelta(minutes=10), ended_at=now)
    run = run_start(study, share=0.2, **TABLE_RUN)
    (waiting,) = queue_for(operator).waiting
    assert (waiting.takes, waiting.ends) == (timedelta(minutes=10), None)
    run_teach(run)
    Run.objects.filter(pk=run.pk).update(started_at=now - timedelta(minutes=4))
    (row,) = queue_for(operator).under_way
    assert row.ends == now + timedelta(minutes=6)
    Run.objects.filter(pk=run.pk).update(started_at=now - timedelta(minutes=40))
    assert queue_for(operator).under_way[0].ends is None, "it is late, and nobody knows by how much"


@pytest.mark.slow
def test_when_a_run_is_expected_to_begin(study: Study, operator: User) -> None:
    """Studies share the workers: a run waits for those of its own study."""
    earlier = run_finish(run_start(study, share=0.2, **TABLE_RUN))
    now = timezone.now()
    Run.objects.filter(pk=earlier.pk).update(started_at=now - timedelta(minutes=10), ended_at=now)
    other = run_start(study_with_table("other"), **TABLE_RUN)
    first, second = (run_start(study, share=0.2, **TABLE_RUN) for _ in range(2))
    assert [(wait.place, wait.starts) for run in (first, second) if (wait := run_wait(run))] == [(2, None), (3, None)]
    WorkerHeartbeat.objects.create(name=WORKER, heard_at=now)
    waits = [run_wait(run) for run in (other, first, second)]
    assert [wait.is_next for wait in waits if wait] == [True, True, False]
    starts = waits[2].starts if waits[2] else None
    assert starts is not None
    assert timedelta(minutes=10) <= starts - now < timedelta(minutes=11)
    assert [row.starts is not None for row in queue_for(operator).waiting] == [True, True, True]
    page = as_(operator).get(f"/studies/table/runs/{second.pk}/").content.decode()
    assert "Expected start:" in page
    document = as_(operator).get(f"/api/v1/runs/{second.pk}").json()
    assert document["expected_start"] is not None
    assert "place 3 in the queue, expected to begin at" in run_of(document).standing
    page = as_(operator).get(f"/studies/table/runs/{first.pk}/").content.decode()
    assert "It begins as soon as a worker is free." in page


@pytest.mark.slow
def test_studies_take_turns_in_the_queue() -> None:
    studies = [study_with_table(name) for name in ("busy", "quiet")]
    first, second = (run_start(studies[0], share=0.1, **TABLE_RUN) for _ in range(2))
    third = run_start(studies[1], **TABLE_RUN)
    assert [place(run) for run in (first, second, third)] == [1, 3, 2]
    worker_time_note(studies[0].pk, 60)
    assert [place(run) for run in (first, second, third)] == [2, 3, 1]


@pytest.mark.slow
def test_the_queue_shows_only_the_number_of_runs_of_other_studies(study: Study, operator: User) -> None:
    foreign = run_start(study_with_table("foreign"), title="Nobody's business", **TABLE_RUN)
    mine = run_start(study, title="Mine", **TABLE_RUN)
    foreign.study.memberships.filter(user=operator).delete()
    rows = queue_for(operator).waiting
    assert [(row.run, row.place, row.workers) for row in rows] == [(None, 1, ()), (mine, 2, ())]
    page = as_(operator).get("/queue/").content.decode()
    assert "Mine" in page
    assert "A run of another study" in page
    assert "Nobody&#x27;s business" not in page
    assert "foreign" not in page
    boss = factories.user_create("boss")
    administrator_set(user=boss, appointed=True, acting_user=None)
    page = as_(boss).get("/queue/live/").content.decode()
    assert page.count("A run of another study") == 2
    assert "Mine" not in page


@pytest.mark.slow
def test_only_operators_and_administrators_watch_it(study: Study, operator: User) -> None:
    assert queue_watchable(operator)
    for role in ("steward", "committee", "auditor", "researcher"):
        user = factories.user_create(role)
        services.membership_add(study=study, user=user, role=role, acting_user=None)
        assert not queue_watchable(user)
        assert as_(user).get("/queue/").status_code == 403
        assert "/queue/" not in as_(user).get("/").content.decode()
    assert "/queue/" in as_(operator).get("/").content.decode()


def test_an_empty_queue_says_what_to_do(operator: User) -> None:
    page = as_(operator).get("/queue/").content.decode()
    for sentence in ("No run is under way", "No approved run waits", "No worker was heard from within a day"):
        assert sentence in page


@pytest.mark.worker
@pytest.mark.django_db(transaction=True)
def test_a_real_workers_claims_lead_to_its_heartbeat(tmp_path: Path) -> None:
    run = run_start(study_with_table(), **TABLE_RUN | {"batch_size": 1})
    seen: set[str] = set()

    def at_work() -> bool:
        seen.update(Run.objects.exclude(claimed_by="").values_list("claimed_by", flat=True))
        return bool(seen) or Run.objects.get(pk=run.pk).has_ended

    log = tmp_path / "worker.log"
    with worker(log):
        wait_until(at_work, log)
        wait_until(WorkerHeartbeat.objects.exists, log)
        name = WorkerHeartbeat.objects.get().name
    assert seen
    assert all(worker_claims(name, claim) for claim in seen)
