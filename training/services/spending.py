"""Spending of a run by any method: one run of a study at a time, the share used, and who waits."""

from collections.abc import Collection, Sequence

import numpy as np
from django.utils.translation import gettext_noop

from accounting.restores import missing_rows
from accounting.services import ROUNDING
from training.dispatch import send
from training.models import Run
from training.notices import share_used_tell
from training.services.planning import budgets_from_json

LOCKED = gettext_noop(
    "The study is locked: its database was restored from a backup. An administrator settles that with manage.py "
    "settle_restore."
)
WAITS = gettext_noop("Waits for another run of this study, which is spending its share.")


def spending_may_begin(run: Run) -> bool:
    """Only one run of a study spends at a time; rehearsals, which charge nobody, do not count."""
    spending = Run.objects.filter(study_id=run.study_id, status__in=Run.SPENDING, rehearsal=False)
    return run.rehearsal or not spending.exclude(pk=run.pk).exists()


def waits_for_restore(run: Run) -> bool:
    """Whether the study's database was restored and nothing may be spent yet; the run says so."""
    if run.rehearsal or not missing_rows(run.study):
        return False
    Run.objects.filter(pk=run.pk).update(message=LOCKED)
    return True


def runs_send_on(run: Run) -> None:
    """Wake the runs of the study that wait for another to have spent."""
    waiting = Run.objects.filter(study_id=run.study_id, status__in=(Run.Status.TRAINING, Run.Status.APPROVED))
    for pk in waiting.exclude(pk=run.pk).values_list("pk", flat=True):
        send("run_advance", pk)


def charged_tell(run: Run, costs: Sequence[float]) -> None:
    """Tell whoever wants to know what part of a run's share its groups have used once ``costs`` are charged."""
    allowed = [budget.allowed for budget in budgets_from_json(run.plan)]
    if run.rehearsal or not all(allowed):
        return
    before = np.array(run.spent) / allowed
    share_used_tell(run, (before + np.array(costs) / allowed).tolist(), before.tolist())


def exhausted_tell(run: Run, exhausted: Collection[int]) -> None:
    """Tell that the next query is too dear for some groups: what is left of their share nobody can use."""
    allowed = [budget.allowed for budget in budgets_from_json(run.plan)]
    before = [min(spent / room, 1 - 2 * ROUNDING) for spent, room in zip(run.spent, allowed, strict=True)]
    share_used_tell(run, [1.0 if place in exhausted else used for place, used in enumerate(before)], before)


def share_used(run: Run) -> float:
    """The share of every cap that a run has used at most: the largest of its groups' charges over caps. Public."""
    budgets = budgets_from_json(run.plan) if run.plan else []
    used = [spent / budget.cap for spent, budget in zip(run.spent, budgets, strict=False)]
    return min(run.share, max(used, default=0.0) * (1 + ROUNDING))
