"""Random histories of a study, compared with books that do not use shares, groups or files.

For each holder, the books record in how many teachers they are, the weights of these, what every query and label of
every batch therefore costs them in closed form, and what they were promised when each vote began. Nobody may ever have
spent more than the public share of that promise, for any events before, during and after the vote. Runs of the other
methods are in :mod:`tests.accounting.test_forced_transcripts`.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from accounting.accounts import balances
from accounting.group_budgets import head_counts
from accounting.models import Release
from accounting.shares import share_free, shares
from accounting.verification import study_faults
from common.artifacts import arrays_load
from common.noise import SimulationNoise
from consent import selectors, services
from consent.models import DataHolder, Level, Study
from learning.mechanisms.protocol import PlanError
from tests import factories
from tests.accounting.charging import cap
from tests.accounting.forced import Crash
from tests.clock import Clock
from tests.training.runs import TABLE, head_counts_state, run_approve, run_draft, table_rows
from training.engine import questions
from training.errors import RunError
from training.models import Batch, Dataset, Run
from training.selectors import study_budgets
from training.services import advance, drawings, runs
from training.services import runs as run_commands
from training.services.datasets import dataset_import
from training.services.drawings import drawing_plan, head_counts_draw
from training.verification import release_faults

pytestmark = pytest.mark.django_db

HOLDERS = 15
#: Owners of records in each of the two private datasets; some are in both.
OWNERS = {"first": range(0, 11), "second": range(6, HOLDERS)}
#: Each holder's first decision; the others (-) are asked later, if at all.
LETTERS = "HALHAL-HALLL-A-"
POINTS = 24
DELTA = 1e-4
#: A failing example is reported as found, because shrinking it would take minutes.
PHASES = (Phase.generate,)
EPSILONS = [(1.0, 2.0, 3.0), (0.5, 1.0, 1.5), (1.5, 2.0, 4.0), (0.9, 2.5, 2.6)]


def cost(aggregator: dict[str, Any], moved: float, queries: int, labels: int) -> float:
    """Return the μ² of a batch for a holder whose teachers have a total weight of ``moved``."""
    if aggregator["name"] == "lnmax":
        pure = 2 * aggregator["gamma"] * moved
        return labels * (2 * norm.ppf(1 / (1 + math.exp(-pure)))) ** 2
    check = (moved / aggregator.get("sigma_threshold", math.inf)) ** 2
    return queries * check + labels * 2 * (moved / aggregator["sigma"]) ** 2


@dataclass
class Poll:
    """A run whose vote has begun: the weight of each member's teachers, and each member's limit."""

    moved: dict[int, float]
    limits: dict[int, float]
    batches: int = 0


@dataclass
class Books:
    """A record of what every holder agreed to, and what every release cost them."""

    policies: list[tuple[Any, dict[str, float]]] = field(default_factory=list)
    events: dict[int, tuple[str, Any]] = field(default_factory=dict)
    spent: dict[int, float] = field(default_factory=dict)
    polls: dict[UUID, Poll] = field(default_factory=dict)
    left: dict[UUID, set[int]] = field(default_factory=dict)
    levels: dict[int, set[str]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def promise(self, holder: int, now: Any) -> float:
        """Return a holder's ε: that of their level when they decided, or a smaller one since (rule 5)."""
        level, at = self.events[holder]
        agreed = [levels[level] for since, levels in self.policies if since <= at][-1]
        later = [levels[level] for since, levels in self.policies if at < since <= now]
        return min([agreed, *later])

    def charge(self, holder: int, charge: float, limit: float) -> None:
        self.spent[holder] = self.spent.get(holder, 0.0) + charge
        assert self.spent[holder] <= limit * (1 + 1e-7), "charged beyond the share of the promise"


holders = st.integers(0, HOLDERS - 1)
teachers = st.fixed_dictionaries(
    {
        "dataset": st.sampled_from(["first", "first", "second"]),
        "aggregator": st.sampled_from(
            [
                {"name": "gnmax", "sigma": 14.0},
                {"name": "gnmax", "sigma": 8.0},
                {"name": "confident_gnmax", "sigma": 8.0, "sigma_threshold": 12.0, "threshold": 2.0},
                {"name": "lnmax", "gamma": 0.05},
            ]
        ),
        "variant": st.sampled_from(["weighting", "standard", "upsampling"]),
        "weight_scheme": st.sampled_from(["gdp", "proportional"]),
        "on_exhausted": st.sampled_from(["stop", "retire"]),
        "small_groups": st.sampled_from(["merge", "leave_out"]),
        "batch_size": st.sampled_from([2, 5]),
        "wanted_labels": st.sampled_from([None, None, 6]),
    }
)
approvals = st.tuples(st.just("approve"), teachers, st.sampled_from([0.15, 0.3, 0.5]))
advances = st.tuples(st.just("advance"), st.integers(0, 3), st.integers(1, 4))
decisions = st.one_of(
    st.tuples(st.just("give"), holders, st.sampled_from(Level.values)),
    st.tuples(st.just("give"), holders, st.sampled_from(Level.values)),
    st.tuples(st.just("withdraw"), holders),
    st.tuples(st.just("policy"), st.sampled_from(EPSILONS), st.sampled_from([0, 0, 3])),
    st.tuples(st.just("days"), st.integers(1, 4)),
)
troubles = st.one_of(
    st.tuples(st.just("crash"), st.integers(0, 3), st.sampled_from(["before", "after"])),
    st.tuples(st.just("cancel"), st.integers(0, 3)),
    st.just(("count",)),
)
#: One after the other, so that runs vote alternately even in examples of few steps.
rounds = st.tuples(
    approvals, advances, approvals, decisions, advances, troubles, decisions, advances, st.one_of(decisions, troubles)
)


class Site:
    """The application and the books."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.study = study_of_two_datasets()
        self.olga = factories.user_create("olga")
        self.holders = list(DataHolder.objects.filter(study=self.study).order_by("pk"))
        self.books = Books([(clock.now(), dict(zip(Level.values, EPSILONS[0], strict=True)))])
        self.runs: list[Run] = []
        for place, letter in enumerate(LETTERS):
            if letter != "-":
                self.give(place, {"H": "HIGH", "A": "AVERAGE", "L": "LOW"}[letter])
        head_counts_state(self.study)

    def play(self, steps: list[Any]) -> None:
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
            self.compare()
        assert list(study_faults(self.study)) == []
        for run in self.runs:
            assert list(release_faults(run)) == []

    def compare(self) -> None:
        """Check that accounts and books agree, and that shares never exceed 1."""
        now = balances(self.study)
        found = {holder: spent for holder, spent in zip(now.holders.tolist(), now.spent.tolist(), strict=True) if spent}
        assert found == pytest.approx({holder: spent for holder, spent in self.books.spent.items() if spent}, rel=1e-9)
        assert sum(share.committed for share in shares(self.study).values()) <= 1 + 1e-9
        used = {(each.level, each.epsilon): each.used for each in study_budgets(self.study)}
        for holder, (level, _at) in self.books.events.items():
            if self.books.levels[holder] == {level}:
                most = used[level, self.books.promise(holder, self.clock.now())]
                assert self.books.spent.get(holder, 0.0) <= most * (1 + 1e-9), "more than the group's public charge"

    # Actions of holders and the committee

    def give(self, place: int, level: str) -> None:
        form = selectors.consent_form_in_force(self.study)
        event = factories.consent_choose(holder=self.holders[place], level=level, form=form)
        self.books.events[self.holders[place].pk] = (level, event.recorded_at)
        self.books.levels.setdefault(self.holders[place].pk, set()).add(level)

    def withdraw(self, place: int) -> None:
        try:
            services.consent_withdraw(holder=self.holders[place], acting_user=None)
        except ValidationError:
            return
        del self.books.events[self.holders[place].pk]
        for gone in self.books.left.values():
            gone.add(self.holders[place].pk)

    def policy(self, epsilons: tuple[float, float, float], days: int) -> None:
        start = self.clock.now() + timedelta(days=days) if days else None
        factories.policy_approve(self.study, *epsilons, effective_from=start)
        effective = self.study.epsilon_policies.order_by("-version").first().approval.effective_from
        # The newest replaces those that were due to start on or after its date.
        self.books.policies = [each for each in self.books.policies if each[0] < effective]
        self.books.policies.append((effective, dict(zip(Level.values, epsilons, strict=True))))

    def days(self, days: int) -> None:
        self.clock.days_pass(days)

    # Actions of operators and workers

    def approve(self, proposal: dict[str, Any], share: float) -> None:
        fields = {"teachers": 4, "learner_parameters": {}, **proposal}
        dataset = Dataset.objects.get(study=self.study, name=fields.pop("dataset"))
        run = run_draft(self.study, **fields, private_dataset=dataset)
        free = share_free(self.study)
        try:
            run = run_approve(run=run, acting_user=self.olga, share=share)
        except (PlanError, ValidationError):
            self.books.seen["refused"] += 1
            nobody = not any(count.count for count in head_counts(self.study))  # by counts drawn with noise
            assert nobody or share > free - 1e-9, "refused although the share was free"
            return
        assert share <= free + 1e-9
        self.books.seen["approved"] += 1
        self.books.left[run.pk] = set()
        self.runs.append(run)

    def count(self) -> None:
        snapshot = selectors.consent_snapshot(self.study)
        try:
            sigma = drawing_plan(self.study).sigma
            noise = SimulationNoise(self.books.seen["counted"])
            head_counts_draw(study=self.study, acting_user=self.olga, noise=noise)
        except ValidationError as error:
            self.books.seen["not counted"] += "counts people" in str(error)
            assert share_free(self.study) < 0.01 or "counts people" in str(error)
            return
        limit = list(shares(self.study).values())[-1].limit
        for holder in snapshot.holders.tolist():
            promised = limit * cap(self.books.promise(holder, self.clock.moment), DELTA)
            if self.books.spent.get(holder, 0.0) + 1 / sigma**2 <= promised:
                self.books.charge(holder, 1 / sigma**2, promised)
        self.books.seen["counted"] += 1

    def cancel(self, place: int) -> None:
        if run := self._open(place):
            run_commands.run_cancel(run=run, acting_user=self.olga)
            self._look(run)

    def crash(self, place: int, when: str) -> None:
        """Lose what a worker was about to commit."""
        run = self._open(place)
        if run is None or run.status not in (Run.Status.APPROVED, Run.Status.PREPARING, Run.Status.ASKING):
            return
        before = Release.objects.count()
        with contextlib.suppress(Crash), transaction.atomic():
            if when == "after":
                self._work(run)
            raise Crash
        self._look(run)
        assert Release.objects.count() == before
        self.books.seen["crashed"] += 1

    def advance(self, place: int, steps: int) -> None:
        if run := self._open(place):
            for _ in range(steps):
                run.refresh_from_db()
                if run.has_ended:
                    break
                self._work(run)
                self._look(run)

    def _open(self, place: int) -> Run | None:
        """Return the run that has waited the longest, after skipping ``place`` others."""
        running = self._running()
        return running[min(place, len(running) - 1)] if running else None

    def _running(self) -> list[Run]:
        for run in self.runs:
            run.refresh_from_db()
        return [run for run in self.runs if not run.has_ended]

    def _work(self, run: Run) -> None:
        """Do what a worker does between two reads of the row."""
        if run.status == Run.Status.PREPARING:
            for chunk in run.chunks.all():
                advance.chunk_train(chunk.pk)
        step = advance.step_of(run)
        assert step is not None
        try:
            step(run)
        except RunError as error:
            runs.run_fail(run.pk, str(error))

    def _look(self, run: Run) -> None:
        """Record in the books what has just been committed."""
        run.refresh_from_db()
        if run.status == Run.Status.ASKING and run.pk not in self.books.polls:
            self._begin(run)
            self.books.seen["beside others"] += len(self._running()) > 1
            assert Run.objects.filter(study=self.study, status=Run.Status.ASKING).count() == 1
        if poll := self.books.polls.get(run.pk):
            for batch in run.batches.filter(index__gte=poll.batches):
                self._released(run, batch)
                poll.batches += 1
        if run.stop_reason and run.status == Run.Status.LEARNING:
            self.books.seen[run.stop_reason] += 1
        if run.has_ended:
            self.books.seen[run.status] += 1

    def _begin(self, run: Run) -> None:
        """Record holders with the number of teachers, their group according to the plan, and their promise."""
        assignment = arrays_load(run.assignment)
        members = Counter(assignment["holder"].tolist())
        group_of = dict(zip(assignment["holder"].tolist(), assignment["group"].tolist(), strict=True))
        assert not self.books.left[run.pk] & members.keys(), "someone who had withdrawn took part"
        limit = shares(self.study)[run.pk].limit
        groups = run.plan["groups"]
        self.books.polls[run.pk] = Poll(
            moved={holder: count * groups[group_of[holder]]["weight"] for holder, count in members.items()},
            limits={who: limit * cap(self.books.promise(who, run.spending_began_at), DELTA) for who in members},
        )

    def _released(self, run: Run, batch: Batch) -> None:
        """Charge everybody in a teacher of a voting group, even if the teacher is silenced."""
        poll, content = self.books.polls[run.pk], Release.objects.get(run=run.pk, batch=batch.index).content
        assignment = arrays_load(run.assignment)
        group_of = dict(zip(assignment["holder"].tolist(), assignment["group"].tolist(), strict=True))
        for holder, moved in poll.moved.items():
            if content["charges"][group_of[holder]]:
                due = cost(run.plan["aggregator"], moved, batch.size, batch.labels)
                # The cost of head counts has a separate share.
                limit = poll.limits[holder] + 0.01 * self.books.seen["counted"] * cap(4.0, DELTA)
                self.books.charge(holder, due, limit)
            else:
                self.books.seen["spared"] += 1
        self.books.seen["batches"] += 1


def study_of_two_datasets() -> Study:
    """Return a study in which nobody has decided yet."""
    study = factories.study_open("random", delta=DELTA, retain_votes=True)
    for name, owners in OWNERS.items():
        names = [f"p-{place:02}" for place in (*owners, owners[-1], owners[-1])]
        dataset_import(study=study, name=name, kind="private", rows=table_rows(len(names), names), schema=TABLE)
    for kind, number in (("public", POINTS), ("test", 6)):
        dataset_import(study=study, name=kind, kind=kind, rows=table_rows(number), schema=TABLE)
    return study


@pytest.mark.parametrize("examples", [1, pytest.param(6, marks=pytest.mark.exhaustive)])
def test_promises_hold_in_every_history(monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=examples, phases=PHASES)
    @given(st.lists(rounds, min_size=3, max_size=4))
    def check(rounds: list[Any]) -> None:
        seeds: Iterator[int] = iter(range(1_000_000))
        clock = Clock()
        monkeypatch.setattr(timezone, "now", clock.now)
        monkeypatch.setattr(questions, "noise_of", lambda run: SimulationNoise(next(seeds)))
        monkeypatch.setattr(drawings, "SystemNoise", lambda: SimulationNoise(next(seeds)))
        with transaction.atomic():
            site = Site(clock)
            site.play([step for steps in rounds for step in steps])
            reached.update(site.books.seen)
            transaction.set_rollback(True)

    check()
    names = ("share", "beside others", "crashed", "refused", "counted", "batches")
    assert all(reached[name] for name in (names if examples > 1 else ("batches",))), reached
