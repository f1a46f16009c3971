"""Rules 3 and 4 over random sequences of runs, against books that know nothing of histories, holdings or limits.

The books are kept per holder: which teachers learned from them, what those teachers' votes weigh, and what each query
of each batch therefore cost them. Nobody may have spent more than the ε that is theirs when a vote that they are in
is released, whatever happened between, before and beside it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from accounting.privacy import DEFAULT_ORDERS, gnmax_rdp, threshold_rdp
from accounting.verification import study_faults
from consent import selectors, services
from consent.models import DataHolder, Level, Study
from tests import factories
from tests.accounting.test_composition import by_histories
from tests.consent.conftest import Clock
from tests.training.runs import TABLE, run_draft, table_rows
from training.artifacts import arrays_load
from training.ballot import predictions_load
from training.errors import RunError
from training.models import Dataset, Run, VoteBatch
from training.pate import NO_VOTE, PlanError, SimulationNoise, assign
from training.services import lifecycle, teaching, voting
from training.services.datasets import dataset_import
from training.verification import release_faults

pytestmark = pytest.mark.django_db

HOLDERS = 15
#: Who owns records in each of the two private datasets: some in both, the last of each three.
OWNERS = {"first": range(0, 11), "second": range(6, HOLDERS)}
#: How each holder decides at first; the others (-) are asked later, if at all.
LEVELS = "HALHAL-HALLL-A-"
POINTS = 30
#: An example that fails is reported as it was found: to make it smaller would take minutes.
PHASES = (Phase.generate,)
EPSILONS = [(1.0, 2.0, 3.0), (0.5, 1.0, 1.5), (1.5, 2.0, 4.0), (0.9, 2.5, 2.6)]


# --- The mathematics, once more -------------------------------------------------------------------------------------


def epsilon_of(curve: np.ndarray, delta: float, conversion: str = "improved") -> float:
    """ε of an RDP curve, order by order: Canonne, Kamath and Steinke 2020, Proposition 12, or Mironov 2017,
    Proposition 3."""
    if not curve.any():
        return 0.0
    candidates = []
    for rdp, order in zip(curve.tolist(), DEFAULT_ORDERS.tolist(), strict=True):
        if conversion == "classic":
            candidates.append(rdp + math.log(1 / delta) / (order - 1))
        else:
            candidates.append(rdp + math.log((order - 1) / order) - (math.log(delta) + math.log(order)) / (order - 1))
    return max(0.0, min(candidates))


@cache
def largest_rate(epsilon: float, delta: float, conversion: str = "improved") -> float:
    """The largest c for which a Gaussian mechanism, c·α, converts to ε; found by halving."""
    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if epsilon_of(middle * DEFAULT_ORDERS, delta, conversion) > epsilon else (middle, high)
        )
    return low


# --- The books ------------------------------------------------------------------------------------------------------


@dataclass
class Poll:
    """A run whose vote has begun, as the books know it."""

    teachers: dict[int, list[int]]
    weights: list[float]
    team: list[int]
    predictions: np.ndarray
    agreed: dict[int, float]
    batches: int = 0


@dataclass
class Books:
    """What every holder agreed to, and what every released batch cost them."""

    delta: float
    policies: dict[str, float] = field(default_factory=dict)
    promises: dict[int, tuple[str, float]] = field(default_factory=dict)
    spent: dict[int, np.ndarray] = field(default_factory=dict)
    polls: dict[UUID, Poll] = field(default_factory=dict)
    left: dict[UUID, set[int]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def policy(self, epsilons: tuple[float, float, float]) -> None:
        self.policies = dict(zip(("HIGH", "AVERAGE", "LOW"), epsilons, strict=True))
        for holder, (level, epsilon) in self.promises.items():
            self.promises[holder] = (level, min(epsilon, self.policies[level]))

    def decide(self, holder: int, level: str) -> None:
        if level:
            self.promises[holder] = (level, self.policies[level])
            return
        self.promises.pop(holder, None)
        for gone in self.left.values():
            gone.add(holder)

    def open(self, run: Run) -> None:
        """Who learned in which teacher, and how much each teacher's vote weighs, by the plan's own words."""
        plan, assignment = run.plan, arrays_load(run.assignment)
        mixed = run.variant in ("standard", "upsampling")
        weights, team = [], []
        for number, group in enumerate(plan["groups"]):
            count = plan["teachers"] if mixed else group["teachers"]
            if not (mixed and number):
                weights += [1.0 if mixed else group["weight"]] * count
                team += [number] * count
        teachers: dict[int, list[int]] = {}
        for holder, teacher in zip(assignment["holder"].tolist(), assignment["teacher"].tolist(), strict=True):
            teachers.setdefault(holder, []).append(teacher)
        self.polls[run.pk] = Poll(
            teachers, weights, team, predictions_load(run), {holder: self.promises[holder][1] for holder in teachers}
        )
        assert not self.left[run.pk] & teachers.keys(), "rule 4: who withdrew before the vote takes part"

    def released(self, run: Run, batch: VoteBatch) -> None:
        """Charge everybody whose team voted, and look at everybody whose own teacher was heard."""
        poll = self.polls[run.pk]
        silent = set(batch.silent_teachers)
        costs: dict[tuple[float, int, int], np.ndarray] = {}
        for holder, mine in poll.teachers.items():
            key = (sum(poll.weights[teacher] for teacher in mine), poll.team[mine[0]], len(mine))
            if key not in costs:
                costs[key] = self._cost(run, batch, poll, silent, *key)
            self.spent[holder] = self.spent.get(holder, 0.0) + costs[key]
            if silent.issuperset(mine):
                continue
            self.seen["heard"] += 1
            assert holder not in self.left[run.pk], "rule 4: who withdrew is heard"
            level, epsilon = self.promises[holder]
            assert epsilon_of(self.spent[holder], self.delta, run.conversion) <= epsilon, f"rule 3, at {level}"
        self.seen["batches"] += 1

    def _cost(
        self, run: Run, batch: VoteBatch, poll: Poll, silent: set[int], weight: float, team: int, factor: int
    ) -> np.ndarray:
        """What the batch costs a holder whose ``factor`` teachers of a ``team`` weigh ``weight`` together."""
        noise, total = run.plan["aggregator"], np.zeros(len(DEFAULT_ORDERS))
        heard = [teacher for teacher in range(len(poll.weights)) if teacher not in silent]
        for row, label in batch.results.order_by("row").values_list("row", "label"):
            votes, own = np.zeros((1, 3)), np.zeros((1, 3))
            for teacher in heard:
                choice = poll.predictions[teacher, row]
                if choice != NO_VOTE:
                    votes[0, choice] += poll.weights[teacher]
                    own[0, choice] += poll.team[teacher] == team
            if not own.any():
                continue
            if run.method == Run.Method.DATA_INDEPENDENT:
                label_cost = DEFAULT_ORDERS * (weight / noise["sigma"]) ** 2
                check_cost = DEFAULT_ORDERS * (weight / noise.get("sigma_threshold", math.inf)) ** 2 / 2
            else:
                how: dict[str, Any] = {
                    "sensitivity": weight,
                    "method": run.method,
                    "group_votes": own,
                    "teachers_per_holder": factor,
                }
                label_cost = gnmax_rdp(votes, noise["sigma"], **how)[0]
                check_cost = np.zeros(len(DEFAULT_ORDERS))
                if "threshold" in noise:
                    check_cost = threshold_rdp(votes, noise["threshold"], noise["sigma_threshold"], **how)[0]
            total += check_cost + (0 if label is None else label_cost)
        return total


# --- The site, and what is done to it -------------------------------------------------------------------------------

holders = st.integers(0, HOLDERS - 1)
spendings = st.one_of(
    st.sampled_from([{"share": 0.3}, {"share": 0.5}, {"share": 0.5}, {"share": 1.0}]),
    st.sampled_from([{"epsilons": {"HIGH": 0.4, "AVERAGE": 0.8, "LOW": 1.2}}]),
)
proposals = st.fixed_dictionaries(
    {
        "dataset": st.sampled_from(["first", "first", "second"]),
        "aggregator": st.sampled_from(
            [
                {"name": "gnmax", "sigma": 20.0},
                {"name": "gnmax", "sigma": 8.0},
                {"name": "confident_gnmax", "sigma": 7.0, "sigma_threshold": 14.0, "threshold": 2.0},
            ]
        ),
        "variant": st.sampled_from(Run.Variant.values),
        "method": st.sampled_from([Run.Method.DATA_INDEPENDENT, *Run.Method.values]),
        "conversion": st.sampled_from(["improved", "improved", "classic"]),
        "on_exhausted": st.sampled_from(Run.OnExhausted.values),
        "small_groups": st.sampled_from(Run.SmallGroups.values),
        "batch_size": st.sampled_from([2, 5]),
        "wanted_labels": st.sampled_from([None, None, 6]),
    }
)
approvals = st.tuples(st.just("approve"), proposals, spendings)
advances = st.tuples(st.just("advance"), st.integers(0, 3), st.integers(1, 4))
decisions = st.one_of(
    st.tuples(st.just("give"), holders, st.sampled_from(Level.values)),
    st.tuples(st.just("give"), holders, st.sampled_from(Level.values)),
    st.tuples(st.just("withdraw"), holders),
    st.tuples(st.just("policy"), st.sampled_from(EPSILONS)),
)
ends = st.tuples(st.just("cancel"), st.integers(0, 3))
#: One after the other, so that examples of few steps already let runs vote beside each other.
rounds = st.tuples(
    approvals, advances, approvals, advances, decisions, advances, advances, st.one_of(decisions, advances, ends)
)


class Site:
    """The application and the books, side by side."""

    def __init__(self, levels: str = LEVELS, delta: float = 1e-4) -> None:
        self.study = study_of_two_datasets(delta)
        self.holders = list(DataHolder.objects.filter(study=self.study).order_by("pk"))
        self.books = Books(self.study.delta)
        self.books.policy(EPSILONS[0])
        self.runs: list[Run] = []
        for place, letter in enumerate(levels):
            if letter != "-":
                self.give(place, {"H": "HIGH", "A": "AVERAGE", "L": "LOW"}[letter])

    def play(self, steps: list[Any]) -> None:
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
            assert list(study_faults(self.study)) == []

    # What holders and the committee do

    def give(self, place: int, level: str) -> None:
        form = selectors.consent_form_in_force(self.study)
        services.consent_give(holder=self.holders[place], level=level, form=form, acting_user=None)
        self.books.decide(self.holders[place].pk, level)

    def withdraw(self, place: int) -> None:
        try:
            services.consent_withdraw(holder=self.holders[place], acting_user=None)
        except ValidationError:
            return
        self.books.decide(self.holders[place].pk, "")

    def policy(self, epsilons: tuple[float, float, float]) -> None:
        factories.policy_approve(self.study, *epsilons)
        self.books.policy(epsilons)

    # What operators and workers do

    def approve(self, proposal: dict[str, Any], spending: dict[str, Any]) -> Run | None:
        fields = {name: value for name, value in proposal.items() if name != "dataset"}
        dataset = Dataset.objects.get(study=self.study, name=proposal["dataset"])
        run = run_draft(self.study, teachers=4, learner_parameters={}, **fields, private_dataset=dataset)
        try:
            lifecycle.run_approve(run=run, acting_user=factories.user_create("olga"), **spending)
        except PlanError:
            self.books.seen["refused"] += 1
            return None
        self.books.seen["approved"] += 1
        self.books.left[run.pk] = set()
        self.runs.append(run)
        return run

    def cancel(self, place: int) -> None:
        if run := self._open(place):
            lifecycle.run_cancel(run=run, acting_user=factories.user_create("olga"))
            self._look(run)

    def advance(self, place: int, steps: int) -> None:
        if run := self._open(place):
            for _ in range(steps):
                run.refresh_from_db()
                if run.has_ended:
                    break
                self._step(run)

    def _open(self, place: int) -> Run | None:
        """The run that has waited the longest but for ``place`` others."""
        running = self._running()
        return running[min(place, len(running) - 1)] if running else None

    def _running(self) -> list[Run]:
        for run in self.runs:
            run.refresh_from_db()
        return [run for run in self.runs if not run.has_ended]

    def _step(self, run: Run) -> None:
        """What a worker does between two looks at the row."""
        if run.status == Run.Status.TRAINING:
            for chunk in run.chunks.all():
                lifecycle.chunk_train(chunk.pk)
        try:
            lifecycle.STEPS[run.status](run)
        except RunError as error:
            lifecycle.run_fail(run.pk, str(error))
        self._look(run)

    def _look(self, run: Run) -> None:
        """Keep the books of what has just been committed."""
        run.refresh_from_db()
        if run.status == Run.Status.VOTING and run.pk not in self.books.polls:
            self.books.open(run)
            self.books.seen["beside others"] += len(self._running()) > 1
            assert Run.objects.filter(study=self.study, status=Run.Status.VOTING).count() == 1
        if poll := self.books.polls.get(run.pk):
            for batch in run.batches.filter(index__gte=poll.batches):
                self.books.released(run, batch)
                poll.batches += 1
        if run.stop_reason and run.status == Run.Status.STUDENT:
            self.books.seen[run.stop_reason] += 1
        if run.has_ended:
            self.books.seen[run.status] += 1
        assert list(release_faults(run)) == []

    def compare(self) -> None:
        """Do the histories say what the books say, holder by holder?"""
        found = by_histories(self.study)
        for holder, curve in self.books.spent.items():
            np.testing.assert_allclose(found[holder], curve, rtol=1e-9)
        for holder in found.keys() - self.books.spent.keys():
            assert not found[holder].any()


def study_of_two_datasets(delta: float) -> Study:
    """Nobody has decided anything yet."""
    study = factories.study_open("random", delta=delta)
    for name, owners in OWNERS.items():
        names = [f"p-{place:02}" for place in (*owners, owners[-1], owners[-1])]
        dataset_import(study=study, name=name, kind="private", rows=table_rows(len(names), names), schema=TABLE)
    for kind, number in (("public", POINTS), ("test", 6)):
        dataset_import(study=study, name=kind, kind=kind, rows=table_rows(number), schema=TABLE)
    return study


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, db: None) -> Callable[..., Site]:
    """A site that has seen nothing; time, noise and lots are the same in each."""

    def site(kind: type[Site] = Site) -> Site:
        seeds: Iterator[int] = iter(range(1_000_000))
        monkeypatch.setattr(timezone, "now", Clock().now)
        monkeypatch.setattr(voting, "SystemNoise", lambda: SimulationNoise(next(seeds)))
        monkeypatch.setattr(teaching, "assign", lambda plan, groups, _: assign(plan, groups, np.random.default_rng(1)))
        return kind()

    return site


def test_no_sequence_of_runs_costs_anybody_more_than_they_were_promised(site: Callable[..., Site]) -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=5, phases=PHASES)
    @given(st.lists(rounds, min_size=2, max_size=3))
    def check(rounds: list[Any]) -> None:
        with transaction.atomic():
            played = site()
            played.play([step for steps in rounds for step in steps])
            played.compare()
            reached.update(played.books.seen)
            transaction.set_rollback(True)

    check()
    assert reached["budget"] and reached["beside others"], reached


# --- What was reserved can be spent ---------------------------------------------------------------------------------

gaussian_proposals = st.fixed_dictionaries(
    {
        "dataset": st.sampled_from(["first", "first", "second"]),
        "aggregator": st.sampled_from([{"name": "gnmax", "sigma": 12.0}, {"name": "gnmax", "sigma": 7.0}]),
        "variant": st.sampled_from(["standard", "weighting"]),
        "method": st.just(Run.Method.DATA_INDEPENDENT),
        "on_exhausted": st.sampled_from(Run.OnExhausted.values),
        "batch_size": st.sampled_from([3, 10]),
        "wanted_labels": st.sampled_from([None, None, 3]),
        "conversion": st.sampled_from(["improved", "improved", "classic"]),
    }
)
gaussian_approvals = st.tuples(st.just("approve"), gaussian_proposals, spendings)
#: One run for a part, one for a part or all of what is left, one that may find nothing, and whatever is next.
gaussian_rounds = st.tuples(
    gaussian_approvals, gaussian_approvals, advances, gaussian_approvals, advances, advances, st.one_of(advances, ends)
)


class Reservations(Site):
    """A site on which all costs are Gaussian, RDP(α) = c·α: a cost and a reservation are one number for each holder."""

    def __init__(self) -> None:
        super().__init__(levels="L" * HOLDERS, delta=1e-5)
        self.reserved: dict[UUID, dict[int, float]] = {}

    def spent(self, holder: int) -> float:
        return float(self.books.spent[holder][0] / DEFAULT_ORDERS[0]) if holder in self.books.spent else 0.0

    def by_run(self, run: Run, holder: int) -> float:
        """What a run has cost a holder so far."""
        poll = self.books.polls.get(run.pk)
        if poll is None or holder not in poll.teachers:
            return 0.0
        weight = sum(poll.weights[teacher] for teacher in poll.teachers[holder])
        entries = VoteBatch.objects.filter(run=run)
        heard = [batch for batch in entries if not set(batch.silent_teachers).issuperset(poll.teachers[holder])]
        return sum(batch.labels for batch in heard) * (weight / run.plan["aggregator"]["sigma"]) ** 2

    def free(self, holder: int, conversion: str) -> float:
        """What is neither spent nor reserved, by the strictest conversion of this run and of those that wait."""
        held, strictest = 0.0, conversion
        for run in self._running():
            mine = self.reserved[run.pk].get(holder, 0.0) - self.by_run(run, holder)
            if run.status != Run.Status.STUDENT and mine > 0:
                held += mine
                strictest = max(strictest, run.conversion, key=["improved", "classic"].index)
        return largest_rate(EPSILONS[0][2], self.study.delta, strictest) - self.spent(holder) - held

    def approve(self, proposal: dict[str, Any], spending: dict[str, Any]) -> Run | None:
        owners = [self.holders[place].pk for place in OWNERS[proposal["dataset"]]]
        free = {holder: self.free(holder, proposal["conversion"]) for holder in owners}
        free = {holder: rate for holder, rate in free.items() if rate > 1e-9}
        run = super().approve(proposal, spending)
        assert (run is None) == (not free), "who is refused could have had something, or the other way round"
        if run:
            asked = math.inf
            if "epsilons" in spending:
                asked = largest_rate(spending["epsilons"]["LOW"], self.study.delta, run.conversion)
            self.reserved[run.pk] = {
                holder: min(asked, rate * spending.get("share", 1.0)) for holder, rate in free.items()
            }
        return run

    def _look(self, run: Run) -> None:
        super()._look(run)
        if run.stop_reason in (Run.StopReason.BUDGET, Run.StopReason.RETIRED) and run.status == Run.Status.STUDENT:
            poll, sigma = self.books.polls[run.pk], run.plan["aggregator"]["sigma"]
            assert poll.teachers.keys() == self.reserved[run.pk].keys()
            labels = [
                self.reserved[run.pk][holder] * (sigma / sum(poll.weights[teacher] for teacher in mine)) ** 2
                for holder, mine in poll.teachers.items()
            ]
            assert run.labels >= math.floor(min(labels) * (1 - 1e-6))


def test_what_was_reserved_for_a_run_can_be_spent_whatever_happens_beside_it(site: Callable[..., Site]) -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=4, phases=PHASES)
    @given(st.lists(gaussian_rounds, min_size=2, max_size=3))
    def check(rounds: list[Any]) -> None:
        with transaction.atomic():
            played = site(Reservations)
            played.play([step for steps in rounds for step in steps])
            reached.update(played.books.seen)
            transaction.set_rollback(True)

    check()
    assert reached["budget"] and reached["beside others"], reached
