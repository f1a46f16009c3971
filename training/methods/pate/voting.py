"""The noisy vote of teachers: batches of queries whose labels and charges are committed together, or not at all.

Every charge is public and the same for all members of a group. The vote ends for public reasons alone: points used up,
enough labels, or the next query could cost more than the run's share. No account, and no vote, decides when.
"""

import hashlib
import json
import logging
from collections.abc import Hashable
from functools import lru_cache
from uuid import UUID

import numpy as np

from accounting.accounts import accounts_stand
from accounting.caps import caps_of
from accounting.ceilings import rooms
from accounting.models import Release
from accounting.services import ROUNDING
from accounting.shares import openings_lock, share_limit
from common.artifacts import arrays_load
from common.counted import counted
from consent.selectors import Snapshot, consent_snapshot, consent_state
from learning.mechanisms.pate.choices import STOP, Teachers
from training.engine import noise
from training.engine.budgets import GroupBudget, budgets_from_json
from training.engine.commits import Charges, batch_commit
from training.engine.questions import Released
from training.engine.spending import (
    WAITS,
    exhausted_tell,
    message_set,
    spending,
    spending_begin,
    spending_end,
    spending_may_begin,
)
from training.methods.pate.ballot import Ballot, ballot_load, labelled_queries, predictions_load
from training.methods.pate.interim import interim_probabilities
from training.methods.pate.planning import plan_from_json
from training.methods.pate.rehearsals import rehearsal_vote
from training.methods.pate.teaching import assignment_without, chunks_done, chunks_send, holders_gone
from training.models import Run, TeacherChunk

logger = logging.getLogger(__name__)


# --- Opening --------------------------------------------------------------------------------------------------------


def vote_open(run: Run) -> bool:
    """Begin the vote once all teachers are trained, with the holders whose consent and room still stand."""
    if not chunks_send(run):
        return False
    with spending(run, Run.Status.PREPARING) as held:
        # While this worker waited for the lock, another may have sent teachers back to learn without somebody.
        if held is None or not chunks_done(held):
            return False
        if not spending_may_begin(held):
            message_set(held, WAITS)
            return False
        if held.rehearsal:
            spending_begin(held)
            return True
        openings_lock()  # what other studies have opened must not change between the look and this one's opening
        assignment, snapshot = arrays_load(held.assignment), consent_snapshot(held.study)
        limit = share_limit(held.study, held.pk)
        gone = np.union1d(holders_gone(held, assignment, snapshot), _without_room(held, assignment, snapshot, limit))
        if len(gone):
            _teach_without(held, assignment, gone)
        else:
            # Only now: while teachers learn anew another run may vote, up to whose share this one's is added.
            spending_begin(held, at=snapshot.at)
    return True


def _without_room(run: Run, assignment: dict[str, np.ndarray], snapshot: Snapshot, limit: float) -> np.ndarray:
    """Holders without room for what the run may charge their group: nobody may fall silent in the middle of a vote.

    A holder joins a teacher only with room for the whole share (condition 3); this depends on their own account alone.
    """
    allowed = np.array([budget.allowed for budget in budgets_from_json(run.plan)])
    members, first = np.unique(assignment["holder"], return_index=True)
    epsilons = np.zeros(len(members))
    present = np.isin(members, snapshot.holders)
    epsilons[present] = snapshot.epsilons[np.searchsorted(snapshot.holders, members[present])]
    caps = np.where(present, caps_of(np.where(present, epsilons, 1.0), run.study.delta), 0.0)
    needed = accounts_stand(run.study, members) + allowed[assignment["group"][first]]
    return members[needed > np.minimum(limit * caps, rooms(run.study, members)) * (1 + ROUNDING)]


def _teach_without(run: Run, assignment: dict[str, np.ndarray], gone: np.ndarray) -> None:
    """Take holders out of a run whose teachers have learned, and train anew the teachers that learned from them."""
    affected = assignment_without(run, assignment, gone)
    run.message = ""
    run.save(update_fields=["consent_sequence", "assignment", "message"])
    for chunk in run.chunks.all():
        if ((affected >= chunk.start) & (affected < chunk.stop)).any():
            TeacherChunk.objects.filter(pk=chunk.pk).update(state=TeacherChunk.State.PENDING)


# --- Batches --------------------------------------------------------------------------------------------------------


def vote_batch(run: Run) -> bool:
    """Put the next public points to the vote; True where the next step can follow at once."""
    if run.rehearsal:
        return _rehearse(run)
    ballot = ballot_load(run.pk)
    if ballot.plan.aggregator.asks_student:
        interim_probabilities(run, slice(0))  # a student can take long to learn: under the lock it is known already
    with spending(run, Run.Status.ASKING) as held:
        if held is None:
            return False
        if reason := _reason_to_stop(held, ballot):
            _vote_close(held, reason)
            return True
        silent = _silent_teachers(held, ballot)
        points = _points_of_batch(held, ballot)
        student = interim_probabilities(held, points) if ballot.plan.aggregator.asks_student else None
        votes = ballot.votes(points, silent, student)
        release = ballot.plan.aggregator.release(votes, noise.noise_of(held), student)
        voting = [place for place in range(len(ballot.budgets)) if place not in held.retired]
        count = affordable_queries(release.answered, ballot.budgets, held.spent, voting, held.position)
        count = min(count, _until_wanted(held, release.answered))
        if count:
            guesses = student[:count].argmax(axis=1).tolist() if student is not None and student.any() else None
            _release(held, ballot, release.labels[:count], release.answered[:count], voting, guesses)
        else:
            _groups_exhausted(held, ballot, voting)
    return True


def _points_of_batch(run: Run, ballot: Ballot) -> slice:
    """The next public points; a batch ends where a plain vote does, so that a student can learn from all of it."""
    end = run.position + run.batch_size
    firsts = [budget.first for budget in ballot.budgets if budget.first is not None and budget.first > run.position]
    return slice(run.position, min([end, *firsts]))


def affordable_queries(
    answered: np.ndarray, budgets: list[GroupBudget], spent: list[float], voting: list[int], start: int = 0
) -> int:
    """Number of leading queries that fit into what the run may charge every group that votes.

    A query's label counts as if it will be answered, so that stopping does not depend on that query's noise. A function
    of what was released alone.
    """
    fits = np.ones(len(answered), dtype=bool)
    every = np.ones(len(answered), dtype=bool)
    for place in voting:
        budget = budgets[place]
        paid, at_most = budget.costs(start, answered), budget.costs(start, every)
        fits &= spent[place] + np.cumsum(paid) - paid + at_most <= budget.allowed
    return len(fits) if fits.all() else int(np.argmin(fits))


def _silent_teachers(run: Run, ballot: Ballot) -> np.ndarray:
    """(teachers,) True where a teacher casts no vote: a member left or was promised more, or the group has retired.

    The members of a silent teacher are charged to the end: that it is silent, too, is something their consents did.
    """
    silent = np.zeros(ballot.plan.teachers, dtype=bool)
    for place in run.retired:
        silent |= ballot.plan.members(place)
    silent[_teachers_left(run.pk, consent_state(run.study))] = True
    return silent


@lru_cache(maxsize=2)
def _teachers_left(run_id: UUID, _state: Hashable) -> np.ndarray:
    """Numbers of the teachers of whom a member must not stay; looked up anew whenever the state of consents changes."""
    run, ballot = Run.objects.select_related("study").get(pk=run_id), ballot_load(run_id)
    pairs = {"holder": ballot.holder, "group": ballot.group}
    gone = holders_gone(run, pairs, consent_snapshot(run.study, among=ballot.members))
    return np.unique(ballot.teacher[np.isin(ballot.holder, gone)])


def _reason_to_stop(run: Run, ballot: Ballot) -> str:
    if run.wanted_labels is not None and run.labels >= run.wanted_labels:
        return Run.StopReason.ENOUGH
    if run.position >= ballot.points:
        return Run.StopReason.USED_UP
    return Run.StopReason.RETIRED if len(run.retired) == len(ballot.budgets) else ""


def _until_wanted(run: Run, answered: np.ndarray) -> int:
    """Number of queries of the batch that it takes to reach the wanted number of labels."""
    if run.wanted_labels is None:
        return len(answered)
    return int(np.searchsorted(run.labels + np.cumsum(answered), run.wanted_labels)) + 1


def _groups_exhausted(run: Run, ballot: Ballot, voting: list[int]) -> None:
    """The next query is too dear for some groups: end the vote, or go on without their teachers."""
    exhausted = [
        place
        for place in voting
        if not affordable_queries(np.array([True]), ballot.budgets, run.spent, [place], run.position)
    ]
    exhausted_tell(run, exhausted)
    if Teachers.from_json(run.choices).on_exhausted == STOP:
        _vote_close(run, Run.StopReason.SHARE)
        return
    Run.objects.filter(pk=run.pk).update(retired=[*run.retired, *exhausted])


def _release(
    run: Run,
    ballot: Ballot,
    labels: np.ndarray,
    answered: np.ndarray,
    voting: list[int],
    guesses: list[int] | None,
) -> None:
    """Release labels and charge for them; the caller's transaction makes them one."""
    costs = np.zeros(len(ballot.budgets))
    for place in voting:
        costs[place] = ballot.budgets[place].costs(run.position, answered).sum()
    spent = costs[ballot.group_of] if len(ballot.members) else np.empty(0)
    released = Released(
        size=len(labels),
        labels=int(answered.sum()),
        bounds=costs.tolist(),
        queries=labelled_queries(run, labels, answered),
        guesses=guesses,
        content={
            "mechanism": run.plan["aggregator"],
            "queries": len(labels),
            "labels": int(answered.sum()),
            "digest": labels_digest(run.position, labels, answered),
        },
    )
    charges = Charges(ballot.members, spent, _limits(run, ballot))
    batch_commit(run, released, released.bounds, charges, kind=Release.Kind.LABELS)


def labels_digest(start: int, labels: np.ndarray, answered: np.ndarray) -> str:
    """SHA-256 of released labels: rows from ``start`` on with their label, None where the query was rejected."""
    pairs = [
        [start + offset, int(label) if is_answered else None]
        for offset, (label, is_answered) in enumerate(zip(labels, answered, strict=True))
    ]
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def _limits(run: Run, ballot: Ballot) -> np.ndarray:
    """(H,) up to what each member's account may go: what it was when the vote began, and the run's share for the group.

    That this lies within the limit of everybody's cap was tested when the vote opened (:func:`_without_room`). A holder
    who has lowered their cap since owes what was begun.
    """
    allowed = np.array([budget.allowed for budget in ballot.budgets])
    begun = accounts_stand(run.study, ballot.members) - np.array(run.spent)[ballot.group_of]
    return begun + allowed[ballot.group_of]


def _vote_close(run: Run, reason: str) -> None:
    """End the vote: go on to the student, and let the next run of the study vote."""
    spending_end(run, reason)
    queries, labels = counted(run.position, "query", "queries"), counted(run.labels, "label", "labels")
    logger.info("The vote ended after %s with %s: %s.", queries, labels, reason)


# --- Rehearsals -----------------------------------------------------------------------------------------------------


def _rehearse(run: Run) -> bool:
    predictions = predictions_load(run)
    with spending(run, Run.Status.ASKING) as held:
        if held is None:
            return False
        outcome = rehearsal_vote(held, plan_from_json(held.plan), predictions)
        held.refresh_from_db(fields=["position", "labels"])
        if held.wanted_labels is not None and held.labels >= held.wanted_labels:
            reason = Run.StopReason.ENOUGH
        elif held.position == predictions.shape[1]:
            reason = Run.StopReason.USED_UP
        else:
            reason = Run.StopReason.SHARE
        spending_end(held, reason, outcome=outcome)
    return True
