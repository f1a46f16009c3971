"""Queries of the training app that join or aggregate data."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np
from django.db.models import Count, Exists, Min, OuterRef, Prefetch, Q, QuerySet, Sum
from django.utils import timezone
from django.utils.translation import get_language, gettext_noop

from accounting.group_budgets import BudgetFacts, ChargedRun, GroupBudget, budget_facts, group_budgets
from accounting.models import Release
from common.jobs import Part, without_worker
from common.sentences import Sentence
from consent.models import Study
from consent.permissions import studies_with_permission
from learning.mechanisms.pate import LEFT_OUT
from training.methods import METHODS, MethodOutcome, RunStage, method_of
from training.methods.counts import rounds_of_counts
from training.models import (
    Dataset,
    Encoder,
    Encoding,
    ProposalChange,
    Run,
    Shard,
    StudentModel,
    StudentTraining,
    TeacherChunk,
)


def runs_visible_to(user: Any) -> QuerySet[Run]:
    """Return the runs that ``user`` may see: all runs of the studies in which the user has this permission."""
    return Run.objects.filter(study__in=studies_with_permission(user, "training.view_run")).select_related("study")


@dataclass(frozen=True)
class Progress:
    """Public progress of a run: queries or steps so far, their maximum, labels, and its method's stages.

    ``stages`` are in order. ``left`` is the remaining time at the current pace if all planned questions are asked.
    ``student`` is the progress, 0 to 1, of the current training of the run's student or of a student between two
    rounds.
    """

    stages: list[RunStage]
    position: int
    size: int
    labels: int
    left: timedelta | None = None
    student: float | None = None

    @property
    def under_way(self) -> RunStage | None:
        """First stage that is not complete yet."""
        return next((stage for stage in self.stages if stage.share < 1), None)


def run_progress(run: Run) -> Progress:
    method = method_of(run)
    student = run.student_progress if run.status in Run.ACTIVE else None
    planned = sum(method.round_sizes(run))
    return Progress(method.stages(run), run.position, method.size(run), run.labels, _time_left(run, planned), student)


def _time_left(run: Run, planned: int) -> timedelta | None:
    """Return the time until all ``planned`` questions are released; None if unknown."""
    if run.status != Run.Status.ASKING or not planned or not run.position or run.spending_began_at is None:
        return None
    last = run.batches.order_by("index").values_list("recorded_at", flat=True).last()
    if last is None:
        return None
    return (last - run.spending_began_at) / run.position * (planned - run.position)


def run_curves(run: Run) -> dict[str, list[float]]:
    """Return public quantities after each query or step of a run so far, by name."""
    return method_of(run).curves(run)


@dataclass(frozen=True)
class RoundProgress:
    """Public progress of one round of a run. ``representation`` is None until the round has begun.

    ``counts`` means that the round counts people to draw rows that replace public points.
    """

    number: int
    size: int
    position: int
    representation: dict[str, Any] | None
    counts: bool


def run_rounds(run: Run) -> list[RoundProgress]:
    """Return the rounds of an approved run, including future ones; empty for a method without rounds."""
    begun = {each.index: each for each in run.rounds.all()}
    result, counted = [], rounds_of_counts(run)
    for index, size in enumerate(method_of(run).round_sizes(run)):
        each = begun.get(index)
        result.append(
            RoundProgress(
                number=index + 1,
                size=each.size if each else size,
                position=each.position if each else 0,
                representation=each.representation if each else None,
                counts=index < counted,
            )
        )
    return result


@dataclass(frozen=True)
class Versions:
    """All versions of a run's student by number, and the ``training`` of another version, if in progress or failed.

    ``busy`` means that a version is still being trained or assessed.
    """

    all: list[StudentModel]
    training: StudentTraining | None
    busy: bool

    @property
    def is_trained(self) -> bool:
        """Whether another version is being trained."""
        return self.training is not None and not self.training.message


def run_versions(run: Run) -> Versions:
    versions = run.students.select_related("requested_by", "assessment").order_by("version")
    is_waiting = ~Q(state=StudentTraining.State.DONE)
    trainings = list(run.trainings.filter(is_waiting | Q(message__gt="", version=None)).order_by("requested_at"))
    another = [training for training in trainings if training.version_id is None]
    busy = any(training.state != StudentTraining.State.DONE for training in trainings)
    return Versions(list(versions), another[-1] if another else None, busy)


def run_edits(run: Run) -> list[ProposalChange]:
    """Return the proposer's changes to a draft, oldest first, with the user who made each."""
    if run.revision == 1:
        return []
    return list(run.changes.filter(kind=ProposalChange.Kind.EDITED).prefetch_related("changed_by"))


def run_leads(run: Run) -> list[list[float]]:
    """Return, for each round, the distribution of the winning labels' leads; empty if no counts are released."""
    return method_of(run).leads(run)


#: How long a run may be idle before its page says that no worker is working on it.
PATIENCE = timedelta(seconds=5)


def run_is_claimed(run: Run) -> bool:
    """Return whether a live worker has claimed the run or a part of it."""
    alive = ~without_worker()
    chunks, shards = (Exists(part.objects.filter(alive, run=OuterRef("pk"))) for part in (TeacherChunk, Shard))
    return Run.objects.filter(alive | Q(chunks) | Q(shards), pk=run.pk).exists()


def run_is_unattended(run: Run) -> bool:
    """Return whether a worker should be working on this run but none is."""
    if run.status not in Run.ACTIVE or run.message:
        return False
    is_quiet = run.heartbeat is None or run.heartbeat < timezone.now() - PATIENCE
    return is_quiet and not run_is_claimed(run)


@dataclass(frozen=True)
class GroupSpending:
    """Public charge of one group of a run's plan, in μ².

    If teachers vote, all members of the group have the same charge; if every holder votes, this is the largest charge.
    ``epsilon`` is the smallest promise in the group, ``cap`` its μ², and ``allowed`` the run's share of it. ``holders``
    is a public or noisy number. ``teachers``, ``weight`` and ``factor`` (copies of a holder) are None without teachers.
    """

    name: str
    levels: tuple[str, ...]
    epsilon: float
    holders: int
    cap: float
    allowed: float
    spent: float
    retired: bool
    teachers: int | None = None
    weight: float | None = None
    factor: int | None = None

    @property
    def spent_share(self) -> float:
        """Largest part of any member's cap that the run has used."""
        return self.spent / self.cap

    @property
    def allowed_share(self) -> float:
        """Part of every member's cap that the run may use."""
        return self.allowed / self.cap


def run_groups(run: Run) -> list[GroupSpending]:
    """Return the groups of an approved run, smallest ε first; empty before approval and in a rehearsal."""
    if not run.plan or run.rehearsal:
        return []
    promises, exhausted = run.plan["promises"], method_of(run).exhausted(run)
    groups = run.plan.get("groups", promises)  # without teachers, each promise is a group
    result = []
    for place, (group, budget) in enumerate(zip(groups, run.plan["budgets"], strict=True)):
        result.append(
            GroupSpending(
                name=group["name"],
                levels=tuple(promise["level"] for promise in promises if promise["group"] == place),
                epsilon=group["epsilon"],
                holders=group["holders"],
                cap=budget["cap"],
                allowed=budget["allowed"],
                spent=run.spent[place] if run.spent else 0.0,
                retired=place in exhausted,
                teachers=group.get("teachers"),
                weight=group.get("weight"),
                factor=group.get("factor"),
            )
        )
    return result


def run_reason(run: Run) -> str:
    """Return the reason why a run ended or its approval failed, for everyone who may see the run; otherwise empty.

    Messages about failures contain no private data (`RunError`).
    """
    if run.status == Run.Status.DRAFT:
        return run.message
    if not run.has_ended:
        return ""
    reason = str(Run.StopReason(run.stop_reason).label) if run.stop_reason else ""
    return run.message or without_model(run) or reason


_UNPUBLISHED = gettext_noop("This run has a model but did not publish it.")


def without_model(run: Run) -> str:
    """Return the reason why a finished run has no published model; empty if it has one or cannot have one."""
    if run.status != Run.Status.FINISHED or run.student_id or method_of(run).outcome != MethodOutcome.MODEL:
        return ""
    return run.message or (Sentence(_UNPUBLISHED) if run.students.exists() else "")


def run_promises(run: Run) -> list[dict[str, Any]]:
    """Return ``level`` and ``epsilon`` of every promise included in an approved run, smallest ε first."""
    return [
        {"level": promise["level"], "epsilon": promise["epsilon"]}
        for promise in run.plan.get("promises", [])
        if promise["group"] != LEFT_OUT
    ]


#: Maximum number of rows of a run's charges on its page; its report contains all rows.
ROWS_SHOWN = 12


@dataclass(frozen=True)
class CostHistory:
    """Progress after each batch: ``positions`` (queries or steps), ``labels``, and the share of caps used by group.

    ``labelled`` means that the run's method releases labels.
    """

    positions: list[int]
    labels: list[int]
    shares: dict[str, list[float]]
    labelled: bool

    @property
    def rows(self) -> list[tuple[int, int, list[float]]]:
        """Queries or steps, labels, and the share used by each group after each batch."""
        shares = map(list, zip(*self.shares.values(), strict=True))
        return list(zip(self.positions, self.labels, shares, strict=True))

    @property
    def rows_shown(self) -> list[tuple[int, int, list[float]]]:
        """At most ``ROWS_SHOWN`` evenly spaced rows, including the last. A run may have thousands of batches."""
        rows = self.rows
        places = np.linspace(0, max(len(rows) - 1, 0), min(len(rows), ROWS_SHOWN))
        return [rows[place] for place in places.round().astype(int)]


def run_cost_history(run: Run) -> CostHistory:
    """Return a run's public charges and number of labels after each batch."""
    releases = Release.objects.filter(study_id=run.study_id, run=run.pk, batch__isnull=False).order_by("batch")
    contents = list(releases.values_list("content", flat=True))
    labelled = method_of(run).releases_labels
    if not contents:
        return CostHistory([], [], {}, labelled)
    charges = np.cumsum([content["charges"] for content in contents], axis=0)
    sizes = run.batches.order_by("index").values_list("size", "labels")[: len(contents)]
    positions, labels = np.cumsum(list(sizes), axis=0).T.tolist()
    return CostHistory(
        positions=positions,
        labels=labels,
        shares={group.name: (charges[:, place] / group.cap).tolist() for place, group in enumerate(run_groups(run))},
        labelled=labelled,
    )


@dataclass(frozen=True)
class RunTotals:
    """Totals for a study: its runs (all, ``finished`` and ``voted``), and the labels that they released."""

    count: int
    finished: int
    voted: int
    labels: int


def run_totals(study: Study) -> RunTotals:
    voted = Q(position__gt=0, method__in=[name for name, method in METHODS.items() if method.releases_labels])
    totals = study.runs.aggregate(
        count=Count("pk"),
        finished=Count("pk", filter=Q(status=Run.Status.FINISHED)),
        voted=Count("pk", filter=voted),
        labels=Sum("labels", filter=voted, default=0),
    )
    return RunTotals(**totals)


def study_budgets(study: Study) -> list[GroupBudget]:
    """Return the budget of each privacy group of a study across all runs: used, reserved, and left; public."""
    # A run whose approval was not carried out has no plan.
    approved = study.runs.filter(rehearsal=False, approved_at__isnull=False).exclude(plan={}).order_by("pk")
    titles = tuple(approved.values_list("pk", "title"))
    return list(_study_budgets(study, budget_facts(study), titles, get_language()))


@lru_cache(maxsize=64)  # pages, emails and metrics request the same budgets repeatedly until a release changes them
def _study_budgets(
    study: Study, facts: BudgetFacts, approved: tuple[tuple[UUID, str], ...], language: str | None
) -> tuple[GroupBudget, ...]:
    runs = {}
    plans = dict(study.runs.filter(pk__in=[pk for pk, _title in approved]).values_list("pk", "plan"))
    for pk, title in approved:
        promises, budgets = plans[pk].get("promises", []), plans[pk].get("budgets", [])
        places = {(promise["level"], promise["epsilon"]): promise["group"] for promise in promises}
        runs[pk] = ChargedRun(title, places, [budget["allowed"] for budget in budgets])
    return tuple(group_budgets(study, runs))


def encoders_seen(study: Study, user: Any) -> QuerySet[Encoder]:
    """Return a study's encoders with the encodings that ``user`` may see in ``encodings_seen``.

    Only data stewards see encodings of private datasets, whose progress or failure may depend on a single record.
    """
    encodings = Encoding.objects.select_related("dataset").order_by("pk")
    if not user.has_perm("training.import_dataset", study):
        encodings = encodings.exclude(dataset__kind=Dataset.Kind.PRIVATE)
    return Encoder.objects.filter(study=study).prefetch_related(
        Prefetch("encodings", queryset=encodings, to_attr="encodings_seen")
    )


# --- Durations --------------------------------------------------------------------------------------------------------


#: Fields with the start and end of each stage: waiting for a worker, preparing (training teachers), releasing,
#: learning.
STAGES = {
    "waiting": ("approved_at", "started_at"),
    "preparing": ("started_at", "spending_began_at"),
    "releasing": ("spending_began_at", "ended_at"),
}
_PARTS: tuple[type[Part], ...] = (TeacherChunk, Shard, StudentTraining)


def stage_durations() -> Iterator[tuple[str, timedelta]]:
    """Yield the name and duration of every completed stage of every run, across all studies."""
    moments = {name for stage in STAGES.values() for name in stage}
    for run in Run.objects.filter(approved_at__isnull=False).values(*moments).order_by().iterator():
        for stage, (start, end) in STAGES.items():
            if run[start] and run[end]:
                yield stage, run[end] - run[start]


def runs_by_status() -> dict[str, int]:
    """Return the number of runs with each status, across all studies."""
    counted = dict(Run.objects.order_by().values_list("status").annotate(Count("pk")))
    return {status: counted.get(status, 0) for status in Run.Status.values}


def longest_silence() -> timedelta:
    """Return the longest time since a worker or the sweep last handled a run in progress; 0 if there is no such run."""
    busy = Q(chunks__state=Part.State.RUNNING) | Q(shards__state=Part.State.RUNNING)
    last = Run.objects.filter(status__in=Run.ACTIVE).exclude(busy).aggregate(last=Min("heartbeat"))["last"]
    return timezone.now() - last if last else timedelta(0)


def worker_deaths() -> int:
    """Return the number of workers that died while working on parts of runs that are still stored."""
    return sum(part._default_manager.aggregate(deaths=Sum("deaths"))["deaths"] or 0 for part in _PARTS)
