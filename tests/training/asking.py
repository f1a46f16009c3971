"""Helpers that carry out runs over all holders as workers would."""

from typing import Any

import numpy as np

from accounting.accounts import balances, charges_of
from accounting.models import Release
from accounting.verification import study_faults
from consent.models import DataHolder
from tests.factories import user_create
from training.engine.asking import Asking, are_shards_done
from training.methods import method_of, neighbours, sampled_steps, steps
from training.models import Run
from training.services.advance import run_advance, shard_ask
from training.services.runs import run_cancel, run_fail
from training.verification import batches_with_votes, release_faults, replay_faults

#: For run_draft and similar functions: the fields of a run in which every holder votes.
EVERYBODY: dict[str, Any] = {"method": Run.Method.NEIGHBOURS}
#: The same on the points of a table, with fixed σ and radius.
ASKING_RUN = EVERYBODY | {"choices": {"sigma": 10.0, "radius_share": 0.2}, "batch_size": 4}
#: With less noise, so that labels are mostly right.
CLEAR_RUN = EVERYBODY | {"choices": {"sigma": 3.0, "radius_share": 0.5}, "batch_size": 5}
#: The fields of a run of private gradient steps, in three chunks.
STEPS_RUN = EVERYBODY | {"method": Run.Method.SGD, "choices": {"steps": 6, "sigma": 10.0}, "batch_size": 2}
#: Gradient steps over samples. Everybody is drawn in every step, so the cost is known without a search.
SAMPLED_RUN = EVERYBODY | {"method": Run.Method.SGD, "variant": Run.Variant.SCALE, "batch_size": 2}
SAMPLED_RUN |= {"choices": {"steps": 6, "expected": 1e6}}
#: The same without public points: people are counted first, and drawn rows replace the points.
COUNTED_STEPS_RUN = STEPS_RUN | {"public_dataset": None, "student_learner": ""}
#: A run that counts the holders by class, without public points and without a student.
COUNTS_RUN: dict[str, Any] = {
    "method": Run.Method.COUNTS,
    "choices": {"column": "class"},
    "public_dataset": None,
    "test_dataset": None,
    "student_learner": "",
    "batch_size": 1,
}
#: A run that draws synthetic rows, in three rounds.
SYNTHESIS_RUN = COUNTS_RUN | {"method": Run.Method.SYNTHESIS, "choices": {"rows": 200, "bins": 8}}


def asking_of(run: Run) -> Asking:
    """Return the engine that asks the holders of a run."""
    return method_of(run).asking


def vote_batch(run: Run) -> bool:
    """Put one batch to the teachers' vote in the run's only round, and return whether the next step can follow."""
    if not run.rounds.exists():
        asking_of(run).step(run)
    return asking_of(run).step(run)


def shards_ask(run: Run) -> Run:
    """Do the work of workers until every shard of the current batch is done, for runs in which every holder votes."""
    if run.status == Run.Status.ASKING and run.method != Run.Method.PATE:
        run_advance(run.pk)
        for shard in run.shards.exclude(state="done"):
            shard_ask(shard.pk)
    run.refresh_from_db()
    return run


def attempt(run: Run) -> Run:
    """Ask every shard of the next batch without releasing anything."""
    before = run.position
    run = shards_ask(run)
    assert are_shards_done(run) and run.position == before
    return run


def commit(run: Run) -> Run:
    """Release the current batch, asking shards again if necessary."""
    before = run.batches.count()
    for _ in range(3):
        if run.batches.count() == before:
            asking_of(run).step(run)
            for shard in run.shards.exclude(state="done"):
                shard_ask(shard.pk)
    run.refresh_from_db()
    assert run.batches.count() == before + 1, run.message
    return run


def run_ask(run: Run, batches: int | None = None) -> Run:
    """Ask every holder, batch by batch, until the run ends or ``batches`` are released."""
    for _ in range(1000):
        run.refresh_from_db()
        if run.has_ended or (batches is not None and run.batches.count() >= batches):
            return run
        run_advance(run.pk)
        for shard in run.shards.exclude(state="done"):
            shard_ask(shard.pk)
    raise AssertionError(f"The run makes no progress: {run.status}, {run.message}")


def batch_ask(run: Run) -> Run:
    """Ask every holder until another batch is released or the run ends."""
    return run_ask(run, run.batches.count() + 1)


def assert_whole(run: Run) -> None:
    """Check that all releases and their charges are correct, recomputing them if possible."""
    for questions in (neighbours, steps, sampled_steps):
        questions._question.cache_clear()  # re-read, as a new process would
    run.refresh_from_db()
    assert [*study_faults(run.study), *release_faults(run)] == []
    for batch in batches_with_votes(run.study):
        assert list(replay_faults(batch)) == []


def run_end(run: Run, end: str, commits: Any) -> None:
    """Cancel a run or let it fail, depending on ``end``, and run the tasks that the commit sends."""
    with commits(execute=True):
        if end == "cancel":
            run_cancel(run=run, acting_user=user_create("olga"))
        else:
            run_fail(run.pk, "A disk was full.")


def account(holder: DataHolder) -> float:
    """Return what a holder has been charged in all, in μ²."""
    return float(balances(holder.study).of(np.array([holder.pk]))[0])


def charged(run: Run, batch: int = 0) -> dict[int, float]:
    """Return the μ² charged for a batch, by holder."""
    charges = charges_of(Release.objects.get(run=run.pk, batch=batch))
    return dict(zip(charges.holders.tolist(), charges.spent.tolist(), strict=True))
