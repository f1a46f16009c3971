"""The noisy vote: batches of queries whose labels and costs are committed together, or not at all."""

import logging
from typing import cast

import numpy as np
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounting.limits import Limits, limits_of
from accounting.models import PrivacyGroup, RunAccount
from accounting.privacy import DEFAULT_ORDERS, Conversion, Method, affordable_prefix, gaussian_rate
from accounting.selectors import Standing, standings
from accounting.services import GroupOpening, account_open, account_settle, batch_charge, groups_retire
from consent.models import ConsentEvent
from consent.selectors import Snapshot, consent_snapshot
from consent.services import study_lock
from ipate_web.bulk import rows_insert
from training.artifacts import arrays_load, arrays_save
from training.ballot import Ballot, ballot_load, predictions_load, promises_name
from training.dispatch import send
from training.errors import RunError
from training.models import Query, Run, TeacherChunk, VoteBatch
from training.pate import Noise, SimulationNoise, SystemNoise
from training.services.teaching import (
    NOBODY_LEFT,
    assignment_without,
    chunks_done,
    chunks_send,
    holders_gone,
    left_since_snapshot,
)

logger = logging.getLogger(__name__)


# --- Opening --------------------------------------------------------------------------------------------------------


def vote_may_open(run: Run) -> bool:
    """Only one run of a study votes at a time; simulations, which charge nobody, do not count."""
    voting = Run.objects.filter(study_id=run.study_id, status=Run.Status.VOTING, simulation=False)
    return run.simulation or not voting.exclude(pk=run.pk).exists()


def vote_open(run: Run) -> bool:
    """Begin the vote once all teachers are trained: open the run's account on the consents that still stand."""
    if not chunks_send(run):
        return False
    with transaction.atomic():
        study_lock(run.study_id)
        run = Run.objects.select_for_update().get(pk=run.pk)
        # While this worker waited for the lock, another may have sent teachers back to learn without somebody.
        if run.status != Run.Status.TRAINING or not chunks_done(run):
            return False
        if not vote_may_open(run):
            run.message = gettext_noop("Waits for the vote of another run of this study to end.")
            run.save(update_fields=["message"])
            return False
        assignment = arrays_load(run.assignment)
        snapshot = consent_snapshot(run.study)
        gone = holders_gone(run, assignment, snapshot)
        if len(gone):
            _teach_without(run, assignment, gone)
            return True
        if not len(assignment["holder"]):
            raise RunError(NOBODY_LEFT)
        openings, run.plan["group_of"] = _openings(run, assignment, snapshot)
        arrays_save(promises_name(run), epsilon=_epsilon_of_pairs(assignment, openings))
        run.account = account_open(
            study=run.study,
            run=run.pk,
            at=snapshot.at,
            simulation=run.simulation,
            orders=DEFAULT_ORDERS,
            method=run.method,
            conversion=run.conversion,
            groups=openings,
        )
        run.status = Run.Status.VOTING
        run.voting_at = snapshot.at
        run.message = ""
        run.teacher_accuracy = _teacher_accuracy(run)
        run.save(update_fields=["plan", "account", "status", "voting_at", "message", "teacher_accuracy"])
    return True


def _teach_without(run: Run, assignment: dict[str, np.ndarray], gone: np.ndarray) -> None:
    """Take holders out of a run whose teachers have learned, and train anew the teachers that learned from them."""
    affected = assignment_without(run, assignment, gone)
    run.message = ""
    run.save(update_fields=["consent_sequence", "assignment", "message"])
    for chunk in run.chunks.all():
        if ((affected >= chunk.start) & (affected < chunk.stop)).any():
            TeacherChunk.objects.filter(pk=chunk.pk).update(state=TeacherChunk.State.PENDING)
    logger.info("Holders left the run before its vote; %d teachers learn anew.", len(affected))


def _openings(run: Run, assignment: dict[str, np.ndarray], snapshot: Snapshot) -> tuple[list[GroupOpening], list[int]]:
    """The privacy groups as they stand in this new snapshot, and the group of the plan that each belongs to.

    Other runs of the study may have voted since the approval, and levels and policies may have changed: past spending
    and ε are looked up anew, within each group that the run's budget was reserved for. What was reserved stays, cut to
    what an ε that has become smaller still allows.
    """
    reserved = {
        group.index: group for group in PrivacyGroup.objects.filter(account__run=run.pk, account__is_reservation=True)
    }
    openings: list[GroupOpening] = []
    group_of: list[int] = []
    for index, plan_group in enumerate(run.plan["group_of"]):
        holders = np.unique(assignment["holder"][assignment["group"] == index])
        held = reserved.get(index)
        for group in standings(
            run.study, snapshot.of(holders), conversion=cast(Conversion, run.conversion), fresh=run.simulation
        ):
            taken = any(group.name == other.name for other in openings)
            openings.append(
                GroupOpening(
                    name=f"{group.name} ({index + 1})" if taken else group.name,
                    level=group.level,
                    epsilon=group.epsilon,
                    holders=group.holders,
                    past=group.past,
                    reserved=np.minimum(np.asarray(held.reserved_rdp), _fits(run, group)) if held else None,
                    allowance=held.allowance if held else None,
                )
            )
            group_of.append(plan_group)
    return openings, group_of


def _fits(run: Run, group: Standing) -> np.ndarray:
    """(R,): the largest Gaussian curve that fits into the budget of ``group`` beside what it has spent."""
    conversion = cast(Conversion, run.conversion)
    return DEFAULT_ORDERS * gaussian_rate(group.past, group.epsilon, run.study.delta, conversion=conversion)


def _epsilon_of_pairs(assignment: dict[str, np.ndarray], openings: list[GroupOpening]) -> np.ndarray:
    """The ε that each pair of holder and teacher votes under."""
    holders = np.concatenate([opening.holders for opening in openings])
    epsilons = np.repeat([opening.epsilon for opening in openings], [len(opening.holders) for opening in openings])
    order = np.argsort(holders)
    return epsilons[order][np.searchsorted(holders[order], assignment["holder"])]


def _teacher_accuracy(run: Run) -> float | None:
    """Mean accuracy of the teachers on the public points, where their labels are known."""
    truth = arrays_load(run.public_dataset.artifact).get("y")
    return None if truth is None else float((predictions_load(run) == truth).mean())


# --- Batches --------------------------------------------------------------------------------------------------------


def vote_batch(run: Run) -> bool:
    """Put the next batch to the vote, or end the vote. Labels, costs and position change together."""
    ballot = ballot_load(run.pk)
    with transaction.atomic():
        study_lock(run.study_id)
        run = Run.objects.select_for_update(of=("self",)).select_related("account__study").get(pk=run.pk)
        if run.status != Run.Status.VOTING:
            return False
        account = _account(run)
        limits = limits_of(account)
        silent = _silent_teachers(run, ballot, limits.groups)
        if reason := _reason_to_stop(run, ballot, silent):
            _vote_close(run, reason)
            return True
        points = slice(run.position, run.position + run.batch_size)
        release = ballot.plan.aggregator.release(ballot.votes(points, silent), _noise(run))
        costs = ballot.costs(points, silent, account.orders, cast(Method, account.method))
        prefix = affordable_prefix(
            past=limits.beside,
            check=costs.check[:, limits.group],
            label=costs.label[:, limits.group],
            answered=release.answered,
            epsilons=limits.epsilon,
            delta=account.delta,
            orders=account.orders,
            conversion=cast(Conversion, account.conversion),
        )
        count = min(prefix.count, _until_wanted(run, release.answered))
        if count:
            answered = release.answered[:count]
            bound = ballot.costs(points, silent, account.orders, "data_independent")
            _release(
                run,
                limits=limits,
                sensitivities=ballot.sensitivities,
                silent=silent,
                labels=release.labels[:count],
                answered=answered,
                rdp=costs.total(answered),
                published_rdp=bound.total(answered),
            )
        elif run.on_exhausted == Run.OnExhausted.RETIRE:
            stopped = {ballot.group_of[index] for index in limits.group[prefix.exhausted]}
            groups_retire(groups=[group for group in limits.groups if ballot.group_of[group.index] in stopped])
        else:
            _vote_close(run, Run.StopReason.BUDGET)
    return True


def _account(run: Run) -> RunAccount:
    assert run.account is not None, "a run that votes has an account"
    return run.account


def _silent_teachers(run: Run, ballot: Ballot, groups: list[PrivacyGroup]) -> np.ndarray:
    """(teachers,) True where a teacher casts no vote: a holder of theirs left, or their group's budget is used up."""
    silent = np.zeros(ballot.plan.teachers, dtype=bool)
    for group in groups:
        if group.retired_at:
            silent |= ballot.plan.members(ballot.group_of[group.index])
    left = left_since_snapshot(run)
    silent[ballot.teacher[np.isin(ballot.holder, left)]] = True
    decided = ConsentEvent.objects.filter(study_id=run.study_id, sequence__gt=run.consent_sequence)
    holders = np.array(list(decided.order_by().values_list("holder_id", flat=True).distinct()), dtype=np.int64)
    pairs = np.flatnonzero(np.isin(ballot.holder, np.setdiff1d(holders, left)))
    if len(pairs):
        now = consent_snapshot(run.study, among=holders)
        epsilon_now = dict(zip(now.holders.tolist(), now.epsilons.tolist(), strict=True))
        for pair in pairs:
            if epsilon_now.get(int(ballot.holder[pair]), 0.0) < ballot.epsilon[pair]:
                silent[ballot.teacher[pair]] = True
    return silent


def _reason_to_stop(run: Run, ballot: Ballot, silent: np.ndarray) -> str:
    if run.wanted_labels is not None and run.labels >= run.wanted_labels:
        return Run.StopReason.ENOUGH
    if run.position >= ballot.points:
        return Run.StopReason.USED_UP
    return Run.StopReason.RETIRED if silent.all() else ""


def _noise(run: Run) -> Noise:
    """The operating system's; in a simulation, the seed's own for each batch."""
    if not run.simulation:
        return SystemNoise()
    return SimulationNoise(int(np.random.SeedSequence([run.seed or 0, run.position]).generate_state(1)[0]))


def _until_wanted(run: Run, answered: np.ndarray) -> int:
    """How many queries of the batch it takes to reach the wanted number of labels."""
    if run.wanted_labels is None:
        return len(answered)
    return int(np.searchsorted(run.labels + np.cumsum(answered), run.wanted_labels)) + 1


def _release(
    run: Run,
    *,
    limits: Limits,
    sensitivities: list[float],
    silent: np.ndarray,
    labels: np.ndarray,
    answered: np.ndarray,
    rdp: np.ndarray,
    published_rdp: np.ndarray,
) -> None:
    """Write labels, charges and the run's position; the caller's transaction makes them one."""
    count, released = len(labels), int(answered.sum())
    batch = VoteBatch.objects.create(
        run=run,
        index=run.batches.count(),
        start=run.position,
        queries=count,
        labels=released,
        silent_teachers=np.flatnonzero(silent).tolist(),
        simulated_rdp=rdp.tolist() if run.simulation else None,
    )
    rows_insert(
        [
            Query(run=run, batch=batch, row=run.position + offset, label=int(label) if is_answered else None)
            for offset, (label, is_answered) in enumerate(zip(labels, answered, strict=True))
        ]
    )
    batch_charge(
        account=_account(run),
        batch=batch.index,
        mechanism=run.plan["aggregator"],
        sensitivities=sensitivities,
        rdp=rdp,
        published_rdp=published_rdp,
        limits=limits,
        queries=count,
        labels=released,
        acting_user_id=run.approved_by_id,
    )
    Run.objects.filter(pk=run.pk).update(
        position=run.position + count, labels=run.labels + released, heartbeat=timezone.now(), message=""
    )


def _vote_close(run: Run, reason: str) -> None:
    """The vote has ended: go on to the student, and let the next run of the study vote."""
    Run.objects.filter(pk=run.pk).update(status=Run.Status.STUDENT, stop_reason=reason)
    account_settle(run=run.pk)
    logger.info("The vote ended after %d queries with %d labels: %s.", run.position, run.labels, reason)
    for waiting in Run.objects.filter(study_id=run.study_id, status=Run.Status.TRAINING).values_list("pk", flat=True):
        send("run_advance", waiting)
