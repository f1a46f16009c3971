"""Commit of a batch with any method: its release, its charges, and the run's new position, under the study's lock.

Only one run of a study spends at a time. After a restore that lost releases, no run spends until it is settled.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounting.accounts import charges_of
from accounting.models import Release
from accounting.restores import missing_rows
from accounting.services import ROUNDING, release_record
from accounting.shares import share_open, share_settle
from common.bulk import rows_insert
from consent.services import study_lock
from consent.services.disposals import holders_erased_once
from learning.mechanisms.protocol import Question
from training.engine.budgets import budgets_from_json
from training.engine.questions import Released, position_in_round
from training.engine.scheduling import send
from training.models import Batch, Round, Run
from training.notices import notify_share_used


@dataclass(frozen=True, eq=False)
class Charges:
    """Charges of a batch, as arrays (H,): ids of ``holders`` (ascending), ``spent`` and account ``limits`` in μ²."""

    holders: np.ndarray
    spent: np.ndarray
    limits: np.ndarray


def batch_commit(
    run: Run,
    released: Released,
    costs: Sequence[float],
    charges: Charges | None,
    *,
    kind: str,
    opened_round: Round | None = None,
    attempt: str = "",
) -> None:
    """Write a batch with its release, charges and the run's new position, atomically in the caller's transaction.

    Args:
        run: The run, locked by :func:`training.engine.commits.spending`.
        costs: The public charge recorded for each of the plan's promises, in μ².
        charges: Charges per holder; None if they were made with an earlier batch, or if the run is a rehearsal.
        kind: A :class:`accounting.models.Release.Kind`.
        opened_round: The round of the batch, if the method has rounds.
        attempt: The file that lists who was asked, if this can change during the run.
    """
    batch = Batch.objects.create(
        run=run,
        index=run.batches.count(),
        start=run.position,
        size=released.size,
        labels=released.labels,
        round=opened_round,
        attempt=attempt,
        released=released.artifact,
    )
    for query in released.queries:
        query.batch = batch
    if released.queries:
        rows_insert(released.queries)
    if not run.rehearsal:
        release_record(
            study=run.study,
            kind=kind,
            run=run.pk,
            batch=batch.index,
            content=released.content | {"charges": list(costs)},
            holders=None if charges is None else charges.holders,
            charges=None if charges is None else charges.spent,
            limits=None if charges is None else charges.limits,
            charge=max(*released.bounds, released.most),
            acting_user_id=run.approved_by_id,
        )
        notify_charged(run, costs, released.exhausted)
    if opened_round is not None:
        Round.objects.filter(pk=opened_round.pk).update(position=opened_round.position + released.size)
    Run.objects.filter(pk=run.pk).update(
        position=run.position + released.size,
        labels=run.labels + released.labels,
        reinforced=run.reinforced + released.reinforced,
        spent=(np.array(run.spent) + costs).tolist(),
        heartbeat=timezone.now(),
        message="",
    )


# --- Faults -----------------------------------------------------------------------------------------------------------


def batch_faults(
    question: Question, batch: Batch, release: Release, bounds: Sequence[float] | None, most: float = 0.0
) -> Iterator[str]:
    """Yield messages about differences between a batch, the question of its round, and its release in the register.

    ``bounds`` are the largest possible charges in each of the plan's budgets, in μ²; None if an earlier batch made the
    charges. ``most`` is as in :class:`training.engine.questions.Released`, 0 if it is not given.
    """
    run, opened_round, content = batch.run, batch.round, release.content
    assert opened_round is not None, "the batch has a round"
    who, entry, before = f"run {run.pk}, batch {batch.index}", f"release {release.sequence}", position_in_round(batch)
    if content["question"] != question.digest():
        yield f"{entry}: the released question differs from the one that {who} asked."
    if content["mechanism"] != question.describe():
        yield f"{entry}: the mechanism of {who} differs from its plan."
    space = opened_round.representation
    if question.fitted is not None:
        space = question.fitted.representation.sentence().to_json()
    # Other versions of iPATE may describe the space in other words; the digest above covers the space itself.
    asked = (question.size, question.sigma, _values(space))
    if (opened_round.size, opened_round.sigma, _values(opened_round.representation)) != asked:
        yield f"{who}: the description of its round differs from the question."
    if opened_round.position < before + batch.size:
        yield f"{who}: ends after the last position of its round."
    if bounds is None:
        if release.charges or release.charge or any(content["charges"]):
            yield f"{entry}: charges for steps that were already charged."
    elif not charges_agree(run, batch, release, bounds, most):
        yield f"{entry}: its public charge does not match the cost of {who}."


def charges_agree(run: Run, batch: Batch, release: Release, bounds: Sequence[float], most: float = 0.0) -> bool:
    """Return whether each promise's public charge is its bound or, if smaller, the remainder of the run's share.

    If a later policy has reduced promises, the whole share counts as used.
    """
    earlier = Release.objects.filter(run=run.pk, batch__lt=batch.index).values_list("content", flat=True)
    bounded = zip(run.plan["budgets"], release.content["charges"], bounds, strict=True)
    for place, (budget, charge, bound) in enumerate(bounded):
        room = budget["allowed"] - sum(content["charges"][place] for content in earlier)
        slack = ROUNDING * budget["allowed"]
        if not min(bound, room) - slack <= charge <= max(room, 0.0) + slack:
            return False
    return release.charge == max(*bounds, most)


def charged_faults(batch: Batch, release: Release, holders: np.ndarray, due: np.ndarray) -> Iterator[str]:
    """Yield messages unless a batch charged the asked ``holders`` (H,) exactly the μ² that were ``due`` (H,)."""
    charges = charges_of(release)
    # Charges of people whose records were erased cannot be recomputed, so the recorded charges are used.
    erased = np.isin(holders, list(holders_erased_once(release.study_id)))
    if not np.array_equal(charges.holders, holders):
        yield f"release {release.sequence}: batch {batch.index} was not charged to the people who were asked."
    elif not np.allclose(charges.spent[~erased], due[~erased], rtol=ROUNDING, atol=0):
        yield f"release {release.sequence}: the charges for batch {batch.index} differ from its cost."


def _values(sentence: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values in a sentence's JSON, without its template."""
    return {name: _values(each) if isinstance(each, dict) else each for name, each in sentence["values"].items()}


LOCKED = gettext_noop(
    "The study is locked: its database was restored from a backup. An administrator can resolve this with ipate "
    "settle_restore."
)
WAITS = gettext_noop("Waiting until another run of this study has used its share.")


@contextmanager
def spending(run: Run, status: str) -> Iterator[Run | None]:
    """Open a transaction under the study's lock. A run may charge people only within this block.

    Yields:
        The run, read again and locked. None if its ``status`` has changed, or if the database was restored and nothing
        may be spent yet, in which case the run's message gives the reason.
    """
    with transaction.atomic():
        study_lock(run.study_id)
        held = Run.objects.select_for_update(of=("self",)).select_related("study", "public_dataset").get(pk=run.pk)
        if held.status != status:
            yield None
        elif not held.rehearsal and missing_rows(held.study):
            message_set(held, LOCKED)
            yield None
        else:
            yield held


def message_set(run: Run, message: str) -> None:
    """Record the reason why a run is waiting."""
    Run.objects.filter(pk=run.pk).update(message=message)


def spending_may_begin(run: Run) -> bool:
    """Return whether a run may now read accounts and spend. A study's runs do so one after another, in a public order.

    The share of its cap that an account may use depends on earlier runs, so the order is fixed before any account is
    read. It is the order of approvals, no matter how long a run's planning, preparation or questions take. Joint runs
    begin once all sites have approved, before other runs and in the same order everywhere. Rehearsals charge no one, so
    they do not wait.
    """
    if run.rehearsal:
        return True
    others = Run.objects.filter(study_id=run.study_id, rehearsal=False).exclude(pk=run.pk)
    if others.filter(status__in=(Run.Status.PREPARING, Run.Status.ASKING)).exists():
        return False
    waiting = others.filter(status__in=(Run.Status.PLANNING, Run.Status.APPROVED)).select_related("joint")
    return not any(
        _queue_key(other) < _queue_key(run) for other in waiting if not (other.alliance_id and other.joint.missing)
    )


def _queue_key(run: Run) -> tuple[bool, str, datetime, UUID]:
    """Return a run's key for sorting in the order that :func:`spending_may_begin` defines."""
    assert run.approved_at is not None, "a run that waits for its turn was approved"
    number = run.joint.document.number if run.alliance_id else ""
    return not number, number, run.approved_at, run.pk


def spending_begin(run: Run, *, at: datetime | None = None) -> None:
    """Let a run locked by :func:`spending` start to spend its share, based on the consents valid at ``at``."""
    if not run.rehearsal:
        share_open(study=run.study, subject=run.pk)
    now = timezone.now()
    run.status, run.message = Run.Status.ASKING, ""
    run.started_at, run.spending_began_at = run.started_at or now, at or now
    run.spent = [0.0] * len(run.plan["budgets"])
    run.save(update_fields=["status", "message", "started_at", "spending_began_at", "spent"])


def spending_end(run: Run, reason: str, **also: Any) -> None:
    """Move a run locked by :func:`spending` to status LEARNING, and let the study's next run spend.

    Args:
        run: A run that has asked all its questions, or cannot continue asking.
        reason: A :class:`training.models.Run.StopReason`.
        also: Other fields to write at the same time.
    """
    Run.objects.filter(pk=run.pk).update(status=Run.Status.LEARNING, stop_reason=reason, **also)
    if not run.rehearsal:
        share_settle(study=run.study, subject=run.pk, used=used_share(run))
    waiting_runs_wake(run)


def waiting_runs_wake(run: Run) -> None:
    """Wake the study's runs that are waiting for another run to finish spending."""
    waiting = Run.objects.filter(study_id=run.study_id, status__in=(Run.Status.PREPARING, Run.Status.APPROVED))
    for pk in waiting.exclude(pk=run.pk).values_list("pk", flat=True):
        send("run_advance", pk)


def notify_charged(run: Run, costs: Sequence[float], exhausted: Sequence[int] = ()) -> None:
    """Notify subscribers of the part of the run's share that each group will have used after ``costs`` are charged.

    If a group cannot pay for the next query, its whole share counts as used, because the rest cannot be used.
    """
    allowed = [budget.allowed for budget in budgets_from_json(run.plan)]
    if run.rehearsal or not all(allowed):
        return
    before = np.array(run.spent) / allowed
    after = before + np.array(costs) / allowed
    after[list(exhausted)] = 1.0
    notify_share_used(run, after.tolist(), before.tolist())


def used_share(run: Run) -> float:
    """Return the largest share of a cap that a run could have used (the maximum of charge divided by cap). Public."""
    budgets = budgets_from_json(run.plan) if run.plan else []
    used = [spent / budget.cap for spent, budget in zip(run.spent, budgets, strict=False)]
    return min(run.share, max(used, default=0.0) * (1 + ROUNDING))
