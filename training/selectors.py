"""Every read of the training app that joins or aggregates."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from django.db.models import Count, QuerySet, Sum
from django.utils import timezone

from accounting.models import RunAccount
from accounting.selectors import Consumption, account_consumption, epsilon_by_batch
from consent.models import Study
from consent.permissions import studies_with_permission
from training.leases import unclaimed
from training.models import Run, TeacherChunk


def runs_visible_to(user: Any) -> QuerySet[Run]:
    """The runs that ``user`` may see. A simulation's results are secrets: only staff see that it exists."""
    all_runs = Run.objects.filter(study__in=studies_with_permission(user, "consent.view_dashboard"))
    real_runs = Run.objects.filter(study__in=studies_with_permission(user, "training.view_run"), simulation=False)
    return (all_runs | real_runs).distinct().select_related("study")


@dataclass(frozen=True)
class Progress:
    """How far a run is: teachers trained, public points put to the vote.

    ``teachers_share`` is ``teachers_done / teachers`` as it leaves staff. In upsampling the number of teachers follows
    from the sizes of the groups, so the share goes through the same steps whatever that number is: tenths, or one for
    each teacher asked for where these are fewer.
    """

    teachers_done: int
    teachers: int
    teachers_share: float
    position: int
    points: int
    labels: int


def run_progress(run: Run) -> Progress:
    chunks = run.chunks.filter(state=TeacherChunk.State.DONE).values_list("start", "stop")
    done = sum(stop - start for start, stop in chunks)
    teachers = run.plan["teachers"] if run.plan else run.teachers
    steps = min(10, run.teachers)
    return Progress(
        teachers_done=done,
        teachers=teachers,
        teachers_share=steps * done // teachers / steps,
        position=run.position,
        points=run.public_dataset.rows,
        labels=run.labels,
    )


#: How long nothing may happen to a run before its readers are told that no worker is at it.
PATIENCE = timedelta(seconds=5)


def run_is_claimed(run: Run) -> bool:
    """Does a living worker hold the run, or a chunk of its teachers?"""
    alive = ~unclaimed()
    return Run.objects.filter(alive, pk=run.pk).exists() or run.chunks.filter(alive).exists()


def run_is_unattended(run: Run) -> bool:
    """Should this run be worked on, and is it not?"""
    if run.status not in Run.ACTIVE or run.message or run_is_claimed(run):
        return False
    return run.heartbeat is None or run.heartbeat < timezone.now() - PATIENCE


@dataclass(frozen=True)
class GroupReport:
    """One privacy group of a run, with what the plan gave it. Only for staff with ``accounting.view_private_costs``."""

    consumption: Consumption
    holders: int
    teachers: int
    weight: float
    factor: int
    retired: bool


def run_groups(run: Run) -> list[GroupReport]:
    """The privacy groups of a run whose vote has begun, strictest first; none before."""
    if run.account is None:
        return []
    plan_groups, group_of = run.plan["groups"], run.plan["group_of"]
    return [
        GroupReport(
            consumption=item,
            holders=item.group.holders,
            teachers=plan_groups[group_of[item.group.index]]["teachers"],
            weight=plan_groups[group_of[item.group.index]]["weight"],
            factor=plan_groups[group_of[item.group.index]]["factor"],
            retired=item.group.retired_at is not None,
        )
        for item in account_consumption(run.account)
    ]


def promises(account: RunAccount) -> list[dict[str, Any]]:
    """For each level and ε promised in a run, strictest first: the largest bound announced for any of its groups.

    That holders of one promise make several groups, because some joined later, would tell of the few in the smallest.
    """
    largest: dict[tuple[str, float], float] = {}
    for item in account_consumption(account):
        promise = item.group.level, item.budget
        largest[promise] = max(item.announced, largest.get(promise, 0.0))
    return [
        {"level": level, "epsilon_promised": promised, "epsilon_published": announced}
        for (level, promised), announced in largest.items()
    ]


@dataclass(frozen=True)
class CostHistory:
    """After each batch: ``queries`` and ``labels`` so far, and each group's ε by name (earlier runs included).

    ``starts`` is each group's ε before the first batch.
    """

    queries: list[int]
    labels: list[int]
    epsilons: dict[str, list[float]]
    starts: dict[str, float]
    budgets: dict[str, float]


def run_cost_history(run: Run) -> CostHistory:
    """How the cost of a run grew with its labels. A secret where costs depend on the data."""
    batches = list(run.batches.all())
    if run.account is None or not batches:
        return CostHistory([], [], {}, {}, {})
    groups = list(run.account.groups.all())
    past = np.array([group.past_rdp for group in groups])
    if run.simulation:
        curves = past + np.cumsum([batch.simulated_rdp for batch in batches], axis=0)
        epsilon = run.account.epsilon(curves)
        by_group = {group.index: epsilon[:, group.index].tolist() for group in groups}
    else:
        by_group = epsilon_by_batch(run.account)
    return CostHistory(
        queries=np.cumsum([batch.queries for batch in batches]).tolist(),
        labels=np.cumsum([batch.labels for batch in batches]).tolist(),
        epsilons={group.name: by_group[group.index] for group in groups},
        starts=dict(zip((group.name for group in groups), run.account.epsilon(past).tolist(), strict=True)),
        budgets={group.name: group.epsilon for group in groups},
    )


def runs_of(study: Study) -> QuerySet[Run]:
    """A study's runs with what lists show of them, newest first."""
    return study.runs.select_related("created_by", "approved_by", "student")


def labels_released(study: Study) -> dict[str, int]:
    """How many runs of a study have voted, and how many labels they released, simulations left out."""
    totals = study.runs.filter(simulation=False, position__gt=0).aggregate(runs=Count("pk"), labels=Sum("labels"))
    return {"runs": totals["runs"], "labels": totals["labels"] or 0}
