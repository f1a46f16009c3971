"""Spending by runs of any method: under the study's lock, one run of a study at a time, never after a restore."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounting.restores import missing_rows
from accounting.services import ROUNDING
from accounting.shares import share_open, share_settle
from consent.services import study_lock
from training.engine.budgets import budgets_from_json
from training.engine.turns import send
from training.models import Run
from training.notices import share_used_tell

LOCKED = gettext_noop(
    "The study is locked: its database was restored from a backup. An administrator resolves this with ipate "
    "settle_restore."
)
WAITS = gettext_noop("Waiting for another run of this study, which uses its share first.")


@contextmanager
def spending(run: Run, status: str) -> Iterator[Run | None]:
    """Open a transaction under the study's lock, the only place in which a run may charge anyone.

    Yields:
        The run, read again and locked; None if it is no longer in ``status``, or if the database was restored and
        nothing may be spent yet (the run's message then says this).
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
    """Record why a run waits."""
    Run.objects.filter(pk=run.pk).update(message=message)


def spending_may_begin(run: Run) -> bool:
    """Return whether it is a run's turn to look at accounts and spend: one run of a study at a time, in a public order.

    The share of their caps that accounts may use depends on which runs went before. So the order is fixed before
    anyone's account is read: by the approvals, regardless of how long plans take and of what happens while people are
    prepared or asked. Runs over sites take their turn once all sites have approved, before others and in the same order
    everywhere. Rehearsals charge nobody and do not wait.
    """
    if run.rehearsal:
        return True
    others = Run.objects.filter(study_id=run.study_id, rehearsal=False).exclude(pk=run.pk)
    if others.filter(status__in=(Run.Status.PREPARING, Run.Status.ASKING)).exists():
        return False
    waiting = others.filter(status__in=(Run.Status.PLANNING, Run.Status.APPROVED)).select_related("joint")
    return not any(_turn(other) < _turn(run) for other in waiting if not (other.alliance_id and other.joint.missing))


def _turn(run: Run) -> tuple[bool, str, datetime, UUID]:
    """Return a run's place in the order of :func:`spending_may_begin`."""
    assert run.approved_at is not None, "a run that waits for its turn was approved"
    number = run.joint.document.number if run.alliance_id else ""
    return not number, number, run.approved_at, run.pk


def spending_begin(run: Run, *, at: datetime | None = None) -> None:
    """Let a run that is held by :func:`spending` spend its share from now on, using the consents of ``at``."""
    if not run.rehearsal:
        share_open(study=run.study, subject=run.pk)
    now = timezone.now()
    run.status, run.message = Run.Status.ASKING, ""
    run.started_at, run.spending_began_at = run.started_at or now, at or now
    run.spent = [0.0] * len(run.plan["budgets"])
    run.save(update_fields=["status", "message", "started_at", "spending_began_at", "spent"])


def spending_end(run: Run, reason: str, **also: Any) -> None:
    """Move a run that is held by :func:`spending` on to its student, and let the study's next run spend.

    Args:
        run: A run that has asked everything, or can ask no more.
        reason: A :class:`training.models.Run.StopReason`.
        also: Other fields to write with it.
    """
    Run.objects.filter(pk=run.pk).update(status=Run.Status.LEARNING, stop_reason=reason, **also)
    if not run.rehearsal:
        share_settle(study=run.study, subject=run.pk, used=used_share(run))
    runs_send_on(run)


def runs_send_on(run: Run) -> None:
    """Wake the runs of the study that wait for another run to finish spending."""
    waiting = Run.objects.filter(study_id=run.study_id, status__in=(Run.Status.PREPARING, Run.Status.APPROVED))
    for pk in waiting.exclude(pk=run.pk).values_list("pk", flat=True):
        send("run_advance", pk)


def charged_tell(run: Run, costs: Sequence[float], exhausted: Sequence[int] = ()) -> None:
    """Notify subscribers how much of the run's share each group will have used after ``costs`` are charged.

    If the next query is too dear for a group, all of its share counts as used, because the rest can no longer be used.
    """
    allowed = [budget.allowed for budget in budgets_from_json(run.plan)]
    if run.rehearsal or not all(allowed):
        return
    before = np.array(run.spent) / allowed
    after = before + np.array(costs) / allowed
    after[list(exhausted)] = 1.0
    share_used_tell(run, after.tolist(), before.tolist())


def used_share(run: Run) -> float:
    """Return the largest share of a cap that a run can have used: the largest ratio of charge to cap. Public."""
    budgets = budgets_from_json(run.plan) if run.plan else []
    used = [spent / budget.cap for spent, budget in zip(run.spent, budgets, strict=False)]
    return min(run.share, max(used, default=0.0) * (1 + ROUNDING))
