"""Asking every holder: batches of queries whose noisy counts and charges are committed together, or not at all.

A batch is asked in shards of holders, on any number of workers. All shards of a batch carry one attempt: who takes part
and what is left of each account, as one file. Whoever leaves or lowers their level before the commit is taken out, and
their shard is asked anew; noise is drawn last, once, over the sum of all shards.

Every planned query is asked. No account, and no vote, decides when a run ends (condition 1 of the guarantee).
"""

import hashlib
import json
import logging
import math
from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounting.book import balances
from accounting.caps import caps_of
from accounting.models import Release
from accounting.privacy import gdp_epsilon
from accounting.services import release_record
from accounting.shares import share_open, share_settle
from common.artifacts import arrays_delete, arrays_load, arrays_save
from common.bulk import rows_insert
from common.noise import Noise, SimulationNoise, SystemNoise
from consent.selectors import consent_snapshot, promises_possible
from consent.services import study_lock
from training.dispatch import send
from training.leases import unclaimed
from training.methods.neighbours.parameters import asking_from_json
from training.methods.neighbours.release import read_counts
from training.models import Query, Round, Run, Shard, VoteBatch
from training.services.ballot import run_folder
from training.services.neighbours.rounds import (
    Question,
    question_digest,
    question_load,
    round_open,
    round_under_way,
)
from training.services.neighbours.shards import batch_rows, sums_delete
from training.services.planning import RESERVE, budgets_from_json
from training.services.rehearsals import rehearsal_holders
from training.services.spending import runs_send_on, share_used, spending_may_begin, waits_for_restore

logger = logging.getLogger(__name__)

#: Holders in a shard, about; by the head counts, which are public.
SHARD = 10_000
MOST_SHARDS = 256


# --- Steps of a run -------------------------------------------------------------------------------------------------


def asking_open(run: Run) -> bool:
    """Begin to ask, once no other run of the study spends."""
    with transaction.atomic():
        study_lock(run.study_id)
        run = _locked(run)
        if run.status != Run.Status.APPROVED:
            return False
        if not spending_may_begin(run):
            run.message = gettext_noop("Waits for the vote of another run of this study to end.")
            run.save(update_fields=["message"])
            return False
        if waits_for_restore(run):
            return False
        if not run.rehearsal:
            share_open(study=run.study, subject=run.pk)
        run.status = Run.Status.ASKING
        run.started_at = run.voting_at = timezone.now()
        run.spent = [0.0] * len(run.plan["budgets"])
        run.message = ""
        run.save(update_fields=["status", "started_at", "voting_at", "spent", "message"])
    return True


def asking_step(run: Run) -> bool:
    """Take the asking one step further; True where the next step can follow at once."""
    current = run.rounds.last()
    if current is None or current.position >= current.queries:
        if run.rounds.count() < len(run.plan["rounds"]):
            return _round_begin(run)
        return _asking_close(run)
    if not run.shards.exists():
        return _batch_begin(run)
    if not shards_done(run):
        _shards_send(run)
        return False
    return _batch_commit(run)


def shards_done(run: Run) -> bool:
    """Whether every shard of the batch under way has been asked."""
    return run.shards.exists() and not run.shards.exclude(state=Shard.State.DONE).exists()


def _locked(run: Run) -> Run:
    return Run.objects.select_for_update(of=("self",)).select_related("study", "public_dataset").get(pk=run.pk)


def _round_begin(run: Run) -> bool:
    opened = round_open(run)
    with transaction.atomic():
        run = _locked(run)
        if run.status != Run.Status.ASKING or run.rounds.count() != opened.index:
            return False
        opened.save()
    logger.info("Round %d asks about %d points.", opened.index + 1, opened.queries)
    return True


def _asking_close(run: Run) -> bool:
    with transaction.atomic():
        study_lock(run.study_id)
        run = _locked(run)
        if run.status != Run.Status.ASKING:
            return False
        asked_for_less = run.wanted_labels is not None and run.position < run.public_dataset.rows
        reason = Run.StopReason.ENOUGH if asked_for_less else Run.StopReason.USED_UP
        Run.objects.filter(pk=run.pk).update(status=Run.Status.STUDENT, stop_reason=reason)
        if run.rehearsal:
            Run.objects.filter(pk=run.pk).update(outcome=_rehearsed_outcome(run))
        else:
            share_settle(study=run.study, subject=run.pk, used=share_used(run))
        runs_send_on(run)
    logger.info("All %d queries were asked.", run.position)
    return True


def _rehearsed_outcome(run: Run) -> dict:
    spent = [
        {
            "level": promise["level"],
            "epsilon": promise["epsilon"],
            "spent": float(gdp_epsilon(math.sqrt(charged), run.study.delta)) if charged else 0.0,
        }
        for promise, charged in zip(run.plan["promises"], run.spent, strict=True)
    ]
    return {"epsilons": spent, "method": "gdp", "conversion": "exact"}


# --- A batch --------------------------------------------------------------------------------------------------------


def _batch_begin(run: Run) -> bool:
    """Note who is asked with what room, and cut them into shards."""
    with transaction.atomic():
        study_lock(run.study_id)
        run = _locked(run)
        if run.status != Run.Status.ASKING or run.shards.exists():
            return False
        if waits_for_restore(run):
            return False
        _attempt_write(run, *_participants(run))
        holders = sum(promise["holders"] for promise in run.plan["promises"])
        number = min(MOST_SHARDS, max(1, math.ceil(holders / SHARD)))
        Shard.objects.bulk_create(Shard(run=run, number=place) for place in range(number))
        transaction.on_commit(lambda: _shards_send(run))
    return False


def _attempt_write(run: Run, holders: np.ndarray, limits: np.ndarray, spent: np.ndarray) -> None:
    old = run.assignment
    run.assignment = f"{run_folder(run)}/asked-{uuid4().hex}.npz"
    arrays_save(run.assignment, holder=holders, limit=limits, spent=spent)
    Run.objects.filter(pk=run.pk).update(assignment=run.assignment, heartbeat=timezone.now())
    if old and not run.batches.filter(asked=old).exists():
        transaction.on_commit(lambda: arrays_delete(old))


def _participants(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(H,) ids of those who own records and take part now, in rising order; up to which μ² each may go; their spent."""
    until = run.plan["rounds"][run.rounds.count() - 1]["until"]
    if run.rehearsal:
        holders, epsilons = rehearsal_holders(run)
        spent = np.zeros(len(holders))
        if run.assignment:  # of the batch before; nobody joins or leaves a rehearsal
            spent = arrays_load(run.assignment, "spent")["spent"]
        return holders, run.share * until * caps_of(epsilons, run.study.delta) * (1 - RESERVE), spent
    owners = np.unique(arrays_load(run.private_dataset.artifact, "holder")["holder"])
    snapshot = consent_snapshot(run.study).of(owners)
    # What a holder has not used of earlier shares, and of earlier rounds, is theirs to use now (condition 2).
    fraction = share_open(study=run.study, subject=run.pk) - run.share * (1 - until)
    limits = fraction * caps_of(snapshot.epsilons, run.study.delta) * (1 - RESERVE)
    return snapshot.holders, limits, balances(run.study).of(snapshot.holders)


def _shards_send(run: Run) -> None:
    for shard in run.shards.filter(unclaimed()).exclude(state=Shard.State.DONE):
        send("shard_ask", shard.pk)


def _batch_commit(run: Run) -> bool:
    """Release the noisy counts of a batch that every shard has answered, with what it cost everybody."""
    question_load(round_under_way(run))  # before the lock: it takes time
    with transaction.atomic():
        study_lock(run.study_id)
        run = _locked(run)
        asked = round_under_way(run)
        if run.status != Run.Status.ASKING or not shards_done(run):
            return False
        if waits_for_restore(run):
            return False
        question = question_load(asked)
        try:
            if not _attempt_stands(run):
                return True
            parts = [arrays_load(shard.artifact) for shard in run.shards.all()]
        except FileNotFoundError:
            # A backup was restored: it names files that were deleted since.
            _attempt_write(run, *_participants(run))
            _shards_renew(run, set(run.shards.values_list("number", flat=True)))
            return True
        holders = np.concatenate([part["holder"] for part in parts])
        order = np.argsort(holders)
        charges = np.concatenate([part["charge"] for part in parts])[order]
        totals = np.sum([part["sums"] for part in parts], axis=0)
        released = totals + _noise(run).normal(question.sigma, totals.shape)
        counts = np.rint(released).astype(np.int64)
        _release(run, asked, question, counts, holders[order], charges)
        run.shards.all().delete()
        until = run.batches.count()
        transaction.on_commit(lambda: sums_delete(run, until))
    return True


def _attempt_stands(run: Run) -> bool:
    """Whether everybody asked still takes part with the promise they were asked under; if not, they are taken out.

    Called under the study's lock, before any noise is drawn: what is thrown away nobody has seen, and why depends on
    consents and charges alone.
    """
    if run.rehearsal:
        return True
    attempt = arrays_load(run.assignment)
    holders, limits, _ = _participants(run)
    # Something else may have been charged meanwhile: a drawing of head counts.
    spent = balances(run.study).of(attempt["holder"])
    present = np.isin(attempt["holder"], holders)
    lowered = np.zeros(len(present), dtype=bool)
    lowered[present] = limits[np.searchsorted(holders, attempt["holder"][present])] < attempt["limit"][present]
    gone = ~present | lowered
    changed = gone | (spent != attempt["spent"])
    if not changed.any():
        return True
    # What becomes of a holder depends on nobody else: nobody joins here, and no limit is raised, because somebody left
    # or was charged. Who has only lowered their level is asked again from the next batch on.
    _attempt_write(run, attempt["holder"][~gone], attempt["limit"][~gone], spent[~gone])
    _shards_renew(run, set((attempt["holder"][changed] % run.shards.count()).tolist()))
    return False


def _shards_renew(run: Run, numbers: set[int]) -> None:
    """Ask some shards anew: new rows, so that a worker that is still at an old one writes into nothing."""
    old = run.shards.filter(number__in=numbers)
    files = [artifact for artifact in old.values_list("artifact", flat=True) if artifact]
    old.delete()
    Shard.objects.bulk_create(Shard(run=run, number=number) for number in sorted(numbers))
    transaction.on_commit(lambda: arrays_delete(*files))
    transaction.on_commit(lambda: _shards_send(run))


def _noise(run: Run) -> Noise:
    """The operating system's; in a rehearsal what its seed says."""
    if run.rehearsal:
        return SimulationNoise((run.seed or 0) * 1_000_003 + run.batches.count())
    return SystemNoise()


def _release(
    run: Run, asked: Round, question: Question, counts: np.ndarray, holders: np.ndarray, charges: np.ndarray
) -> None:
    """Write counts, charges and positions; the caller's transaction makes them one."""
    part = batch_rows(run, asked)
    rows = question.rows[part]
    predicted = None if question.predicted is None else question.predicted[part]
    labels = read_counts(counts, question.sigma, predicted=predicted, voters=question.voters[part]).labels
    batch = VoteBatch.objects.create(
        run=run,
        index=run.batches.count(),
        start=run.position,
        queries=len(rows),
        labels=len(rows),
        round=asked,
        asked=run.assignment,
    )
    rows_insert(
        [
            Query(run=run, batch=batch, row=row, label=label, counts=told)
            for row, label, told in zip(rows.tolist(), labels.tolist(), counts.tolist(), strict=True)
        ]
    )
    bound = len(rows) * question.norm / question.sigma**2
    costs = _costs(run, bound)
    if run.rehearsal:
        attempt = arrays_load(run.assignment)
        _attempt_write(run, attempt["holder"], attempt["limit"], attempt["spent"] + charges)
    else:
        release_record(
            study=run.study,
            kind=Release.Kind.COUNTS,
            run=run.pk,
            batch=batch.index,
            content={
                "mechanism": mechanism(run, asked),
                "queries": len(rows),
                "labels": len(rows),
                "digest": counts_digest(rows, labels, counts),
                "question": question_digest(question),
                "charges": costs,
            },
            holders=holders,
            charges=charges,
            limits=arrays_load(run.assignment, "limit")["limit"],
            charge=bound,
            acting_user_id=run.approved_by_id,
        )
    Round.objects.filter(pk=asked.pk).update(position=asked.position + len(rows))
    Run.objects.filter(pk=run.pk).update(
        position=run.position + len(rows),
        labels=run.labels + len(rows),
        spent=(np.array(run.spent) + costs).tolist(),
        heartbeat=timezone.now(),
        message="",
    )


def _costs(run: Run, bound: float) -> list[float]:
    """The most that anybody of each promise can have been charged for a batch, in μ²: public.

    A policy since the plan may have made a promise smaller than all that it knows; the whole share then counts as used.
    """
    smallest = min(promise["epsilon"] for promise in run.plan["promises"])
    is_known = run.rehearsal or all(promise.epsilon >= smallest for promise in promises_possible(run.study))
    budgets = budgets_from_json(run.plan)
    left = [max(0.0, budget.allowed - spent) for budget, spent in zip(budgets, run.spent, strict=True)]
    return [min(bound, room) if is_known else room for room in left]


def mechanism(run: Run, asked: Round) -> dict:
    """How the counts of a round were made, in public terms."""
    return {
        "name": "neighbours",
        "sigma": asked.sigma,
        "radius_share": asked.radius_share,
        "kernel": asking_from_json(run.asking).kernel,
        "round": asked.index + 1,
    }


def counts_digest(rows: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> str:
    """SHA-256 of released counts: rows of the public dataset, each with its label and noisy counts."""
    told = [[int(row), int(label), each] for row, label, each in zip(rows, labels, counts.tolist(), strict=True)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
