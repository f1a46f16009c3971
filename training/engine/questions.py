"""Interface between the engine and a method: a run's questions to all holders, in rounds, and its participants.

The participants of a batch and their remaining budgets are recorded in an *attempt*, once for all shards, and checked
again at the commit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils import timezone

from accounting.accounts import account_balances
from accounting.caps import caps_of, epsilon_of
from accounting.ceilings import ceiling_limits
from accounting.shares import share_open
from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save
from common.noise import Noise, SimulationNoise, SystemNoise
from consent.selectors import consent_snapshot
from learning.mechanisms.protocol import Draws, People, Question
from learning.representations import FittedRepresentation
from training.engine.budgets import RESERVE, rehearsal_holders
from training.engine.records import owners_of, records_of
from training.models import Batch, JointQuestion, Query, Round, Run


def attempt_write(run: Run, people: People) -> None:
    """Store the people to be asked in a new attempt file of the run."""
    old = run.assignment
    run.assignment = f"{run_folder(run)}/asked-{uuid4().hex}.npz"
    arrays_save(run.assignment, holder=people.holders, cap=people.caps, limit=people.limits, spent=people.spent)
    Run.objects.filter(pk=run.pk).update(assignment=run.assignment, heartbeat=timezone.now())
    if old and old not in attempt_files(run):
        transaction.on_commit(lambda: arrays_delete(old))


def attempt_files(run: Run) -> set[str]:
    """Return the files that list the people asked, for the batches of a run and for its answers at a site."""
    answered = JointQuestion.objects.filter(joint__run=run.pk).exclude(attempt="")
    return {*run.batches.values_list("attempt", flat=True), *answered.values_list("attempt", flat=True)}


def attempt_load(name: str) -> People:
    """Return the people who were asked, from the attempt file ``name``. Raises FileNotFoundError."""
    arrays = arrays_load(name)
    return People(arrays["holder"], arrays["cap"], arrays["limit"], arrays["spent"])


def participants(run: Run) -> People:
    """Return the people who own records and are taking part now."""
    until = run.plan["rounds"][run.rounds.count() - 1]["until"]
    if run.rehearsal:
        holders, epsilons = rehearsal_holders(run)
        spent = np.zeros(len(holders))
        if run.assignment:  # written for the previous batch; a rehearsal's participants never change
            spent = arrays_load(run.assignment, "spent")["spent"]
        caps = caps_of(epsilons, run.study.delta)
        return People(holders, caps, run.share * until * caps * (1 - RESERVE), spent)
    owners = owners_of(run.private_dataset)
    snapshot = consent_snapshot(run.study).of(owners)
    # Budget left over from a holder's earlier shares and rounds is available now (condition 2 in
    # docs/gaussian-accounts.md).
    fraction = share_open(study=run.study, subject=run.pk) - run.share * (1 - until)
    caps = caps_of(snapshot.epsilons, run.study.delta)
    limits = np.minimum(fraction * caps, ceiling_limits(run.study, snapshot.holders, subject=run.pk)) * (1 - RESERVE)
    return People(snapshot.holders, caps, limits, account_balances(run.study, snapshot.holders))


def attempt_renew(run: Run, people_now: Callable[[Run], People]) -> np.ndarray | None:
    """Remove people who are missing from ``people_now`` or now have a lower limit, and update the other accounts.

    Call this under the study's lock and before anyone can see the noisy result. No one then sees a discarded result,
    and whether it is discarded depends only on consents and charges.

    Returns:
        Ids of the people whose entries changed and whose shards must be asked again; None if nothing changed.
    """
    if run.rehearsal:
        return None
    attempt, now = attempt_load(run.assignment), people_now(run)
    # People may have been charged for something else in the meantime, such as a drawing of head counts.
    spent = account_balances(run.study, attempt.holders)
    present = np.isin(attempt.holders, now.holders)
    lowered = np.zeros(len(present), dtype=bool)
    places = np.searchsorted(now.holders, attempt.holders[present])
    lowered[present] = now.limits[places] < attempt.limits[present]
    gone = ~present | lowered
    changed = gone | (spent != attempt.spent)
    if not changed.any():
        return None
    # Each holder is treated independently of the others: no one is added, and no limit is raised, because another
    # person left or was charged. People who only lowered their level are asked again from the next batch on.
    attempt_write(run, replace(attempt, spent=spent).of(~gone))
    return attempt.holders[changed]


# --- Files of a run ---------------------------------------------------------------------------------------------------


_BATCH = "batch-"


def run_folder(run: Run) -> str:
    """Return the folder in private storage with this run's secret files."""
    return f"runs/{run.pk}"


def rounds_folder(run: Run) -> str:
    """Return the folder of a run's questions and releases; its files are public once a row refers to them."""
    return f"rounds/{run.pk}"


def released_name(run: Run, index: int) -> str:
    """Return a new file name for the release of a batch."""
    return f"{rounds_folder(run)}/{_BATCH}{index}-{uuid4().hex[:12]}.npz"


def released_tidy(run: Run) -> None:
    """Delete files of failed commits. No one has seen their content, because it was never released."""
    named, start = set(run.batches.values_list("released", flat=True)), f"{rounds_folder(run)}/{_BATCH}"
    drawn = (name for name in arrays_list(rounds_folder(run)) if name.startswith(start))
    arrays_delete(*(name for name in drawn if name not in named))


@dataclass(frozen=True, eq=False)
class Released:
    """Release of a batch: ``size`` queries or steps, ``labels`` that were answered, and ``queries`` to be saved.

    ``reinforced`` is the number of queries that keep the student's own label at no cost. A charging class consists of
    people with one budget who are charged the same. ``most`` is the largest charge of any class, which can exceed the
    increase of the budget's maximum; 0 without classes.

    ``artifact`` is the file with all data that does not belong to a single query. ``content`` is the register's
    description of the release. ``bounds`` are the largest possible charges in each of the plan's budgets, as public
    numbers in μ². ``exhausted`` lists the budgets that cannot pay for the next query.
    """

    size: int
    bounds: list[float]
    content: dict[str, Any]
    labels: int = 0
    reinforced: int = 0
    most: float = 0.0
    queries: list[Query] = field(default_factory=list)
    artifact: str = ""
    exhausted: Sequence[int] = ()


class Questions(ABC):
    """Questions of a method to all holders.

    Attributes:
        shard: approximate number of holders in a shard, based on the public head counts. None if a batch is asked and
            released in one transaction, with answers based on the budgets left before it.
        release_kind: the kind of its releases, unless `kind_of` returns another one.
        died: the run's message after workers repeatedly died on the same holders; empty without shards.
    """

    shard: ClassVar[int | None]
    release_kind: ClassVar[str]
    died: ClassVar[str] = ""

    @abstractmethod
    def round_open(self, run: Run) -> Round:
        """Return the next round, not yet saved, after writing its file. Reads no private data."""

    @abstractmethod
    def question(self, opened_round: Round) -> Question:
        """Return the question of a round, from its file and the plan of its run."""

    @abstractmethod
    def stop_reason(self, run: Run) -> str:
        """Return the reason why a run ended after asking all its questions."""

    def kind_of(self, opened_round: Round) -> str:
        """Return the kind of release made in a round."""
        return self.release_kind

    def shard_of(self, opened_round: Round) -> int | None:
        """Return the approximate number of holders in a shard of a round, by default ``shard``."""
        return self.shard

    def precompute(self, run: Run) -> None:
        """Compute and cache slow results, starting with the question, before the study is locked."""
        self.question(round_under_way(run))

    def is_over(self, opened_round: Round) -> bool:
        """Return whether a round has no further questions. This depends only on public facts."""
        return opened_round.position >= opened_round.size

    def people(self, run: Run) -> People:
        """Return the people to be asked in the next batch.

        Each person's inclusion depends only on their own cap and account, and on public information.
        """
        return participants(run)

    def records(self, run: Run, fitted: FittedRepresentation | None, people: People, cache: str = "") -> Any:
        """Return the data for computing people's answers, cached for the round in the file ``cache`` if it is given."""
        return records_of(run, fitted, people.holders, cache)

    def spent(self, run: Run) -> list[float | None]:
        """Return, for each promise, the largest total charge to anyone, in μ²; None for a level without protection."""
        return run.spent

    def rehearsed(self, run: Run) -> dict[str, Any]:
        """Return the amount spent by each level of a rehearsal, and the accounting used."""
        epsilons = [
            {
                "level": promise["level"],
                "epsilon": promise["epsilon"],
                "spent": None if charged is None else epsilon_of(charged, run.study.delta),
            }
            for promise, charged in zip(run.plan["promises"], self.spent(run), strict=True)
        ]
        return {"epsilons": epsilons, "method": "gdp", "conversion": "exact"}


def round_under_way(run: Run) -> Round:
    """Return the round that was opened last."""
    opened_round = run.rounds.latest("index")
    opened_round.run = run
    return opened_round


def position_in_round(batch: Batch) -> int:
    """Return the number of queries or steps in earlier batches of the same round."""
    earlier = batch.run.batches.filter(round=batch.round_id, index__lt=batch.index)
    return sum(earlier.values_list("size", flat=True))


def batch_part(question: Question, opened_round: Round) -> slice:
    """Return the part of a round that the current batch asks about."""
    return question.part(opened_round.run.batches.count(), opened_round.position, opened_round.run.batch_size)


def state_before(question: Question, opened_round: Round, index: int) -> Any:
    """Return the state before batch ``index`` of the run. Raises FileNotFoundError."""
    earlier = opened_round.batches.filter(index__lt=index).exclude(released="").order_by("index").last()
    return question.state(None if earlier is None else arrays_load(earlier.released))


def draws_of(run: Run) -> Draws:
    """Return the source of randomness for the current batch: the operating system or, in a rehearsal, the seed."""
    return Draws(noise_of(run), seed_of(run))


# --- Noise ------------------------------------------------------------------------------------------------------------


def noise_of(run: Run) -> Noise:
    """Return noise from the operating system or, in a rehearsal, from its seed."""
    seed = seed_of(run)
    return SystemNoise() if seed is None else SimulationNoise(seed)


def seed_of(run: Run) -> int | None:
    """Return the seed of the current batch; None except in a rehearsal."""
    return (run.seed or 0) * 1_000_003 + run.batches.count() if run.rehearsal else None
