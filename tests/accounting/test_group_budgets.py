"""Budgets of privacy groups, compared with accounts that spend as much as possible in random histories."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from django.db import transaction
from django.utils import translation

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.group_budgets import ChargedRun, GroupBudget, group_budgets
from accounting.models import Release
from accounting.services import release_record
from accounting.shares import share_grant, share_open, share_settle
from consent.models import ConsentForm, DataHolder, Level
from consent.selectors import Snapshot, consent_snapshot
from consent.services import holders_register, study_lock
from tests.clock import Clock
from tests.factories import consent_choose, policy_approve, study_open
from training.selectors import study_budgets

pytestmark = pytest.mark.django_db

LEVELS = list(Level.values)


def promises_of(snapshot: Snapshot) -> list[tuple[str, float]]:
    return [
        (LEVELS[level], epsilon) for level, epsilon in zip(snapshot.levels, snapshot.epsilons.tolist(), strict=True)
    ]


class History:
    """A study in which everybody contributes to everything, as much as their account allows."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self.rng, self.study = np.random.default_rng(seed), study_open("budgets", delta=1e-4)
        clock.days_pass(1)
        self.form = ConsentForm.objects.get(study=self.study)
        self.runs: dict[Any, ChargedRun] = {}
        # At each level: someone who decides at the start and perhaps after runs, someone who decides at the start and
        # after each policy, and someone who first decides later.
        names = [f"{level}-{kind}" for level in LEVELS for kind in ("once", "anew", "late")]
        holders_register(study=self.study, pseudonyms=names)
        self.holders = {holder.pseudonym: holder for holder in DataHolder.objects.filter(study=self.study)}
        self.decide("once", "anew")

    def decide(self, *kinds: str) -> None:
        for level in LEVELS:
            for kind in kinds:
                consent_choose(holder=self.holders[f"{level}-{kind}"], level=level, form=self.form)

    def policy(self) -> None:
        high = self.rng.uniform(0.3, 1.5)
        policy_approve(self.study, high, high * self.rng.uniform(1.1, 2), high * self.rng.uniform(2.1, 4))
        self.decide("anew")

    def count(self) -> None:
        """Count heads, with the same charge for everybody."""
        subject, snapshot = uuid4(), consent_snapshot(self.study)
        caps = caps_of(snapshot.epsilons, self.study.delta)
        share_grant(study=self.study, subject=subject, purpose="head counts", share=0.01, acting_user=None)
        limits = share_open(study=self.study, subject=subject) * caps
        self.charge(Release.Kind.HEAD_COUNTS, {}, np.full(len(caps), 0.01 * caps.min()), limits, 0.01 * caps.min())
        share_settle(study=self.study, subject=subject, used=0.01)

    def charge(
        self, kind: str, content: dict[str, Any], wanted: np.ndarray, limits: np.ndarray, charge: float, run: Any = None
    ) -> None:
        holders = consent_snapshot(self.study).holders
        room = np.maximum(limits - balances(self.study).of(holders), 0.0)
        charges = np.minimum(wanted, room)
        release_record(
            study=self.study, kind=kind, run=run, content=content, holders=holders, charges=charges, charge=charge
        )

    def run(self, *, by_teachers: bool = False, between: Iterator[Any] | None = None) -> None:
        """Carry out a run in batches with events in between; people in a teacher pay like their group."""
        study, rng, subject = self.study, self.rng, uuid4()
        share = rng.uniform(0.05, 0.3)
        share_grant(study=study, subject=subject, purpose="run", share=share, acting_user=None)
        approved = consent_snapshot(study)
        promises = sorted(set(promises_of(approved)))
        places = {promise: place for place, promise in enumerate(promises)}
        caps = caps_of([epsilon for _level, epsilon in promises], study.delta)
        allowed = share * caps
        self.runs[subject] = ChargedRun("run", places, allowed.tolist())
        limit, spent = share_open(study=study, subject=subject), np.zeros(len(promises))
        members: dict[int, int] = {}
        for holder, promise in zip(approved.holders.tolist(), promises_of(approved), strict=True):
            group = places[promise]
            stands = balances(study).of(np.array([holder]))[0]
            if stands + allowed[group] <= limit * caps[group]:
                members[holder] = group
        for _batch in range(3):
            bounds = caps * (rng.uniform(0.25, 0.33) * share if by_teachers else rng.uniform(0, 0.2, len(promises)))
            costs = bounds if by_teachers else np.minimum(bounds, np.maximum(allowed - spent, 0.0))
            now = consent_snapshot(study)
            own = caps_of(now.epsilons, study.delta)
            if by_teachers:
                wanted = np.array([bounds[members[h]] if h in members else 0.0 for h in now.holders.tolist()])
                limits = np.full(len(own), np.inf)
            else:
                known = map(places.get, promises_of(now))
                wanted = np.array([bounds.max() if place is None else bounds[place] for place in known])
                limits = limit * own
            self.charge(
                Release.Kind.COUNTS, {"charges": costs.tolist()}, wanted, limits, float(bounds.max()), run=subject
            )
            spent += costs
            next(between or iter(()), None)
        share_settle(study=study, subject=subject, used=min(share, float((spent / caps).max())))

    def budgets(self) -> dict[tuple[str, float], GroupBudget]:
        return {(each.level, each.epsilon): each for each in group_budgets(self.study, self.runs)}

    def most(self) -> dict[tuple[str, float], float]:
        """Return the largest account for each promise."""
        snapshot = consent_snapshot(self.study)
        spent, most = balances(self.study).of(snapshot.holders), dict[tuple[str, float], float]()
        for promise, amount in zip(promises_of(snapshot), spent.tolist(), strict=True):
            most[promise] = max(amount, most.get(promise, 0.0))
        return most


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (1, 2))])
def test_no_account_exceeds_its_groups_budget_in_any_history(seed: int, clock: Clock) -> None:
    with transaction.atomic():
        history = History(seed, clock)
        study_lock(history.study.pk)

        def happen() -> Iterator[None]:
            while True:
                (history.policy if history.rng.random() < 0.4 else history.count)()
                yield

        for _run in range(4):
            if history.rng.random() < 0.6:
                history.decide("late")
            history.run(by_teachers=history.rng.random() < 0.4, between=happen())
            history.decide(history.rng.choice(["once", "late"]))
            budgets, most = history.budgets(), history.most()
            assert most.keys() <= budgets.keys()
            for promise, amount in most.items():
                assert amount <= budgets[promise].used * (1 + 1e-9), promise
        # Shares refer to current promises; an earlier, larger ε can have used more than all of it.
        for budget in budgets.values():
            parts = budget.share_used + budget.share_reserved + budget.share_left
            assert parts == pytest.approx(max(1.0, budget.share_used))
            assert sum(use.share for use in budget.uses) == pytest.approx(budget.share_used)


@pytest.mark.parametrize("seed", range(1))
def test_under_one_policy_a_groups_budget_equals_its_largest_account(seed: int, clock: Clock) -> None:
    with transaction.atomic():
        history = History(seed, clock)
        study_lock(history.study.pk)
        for _run in range(3):
            history.count()
            history.run()
        budgets = history.budgets()
        for promise, amount in history.most().items():
            assert amount == pytest.approx(budgets[promise].used, rel=1e-9)
            assert caps_of(budgets[promise].epsilon_used, 1e-4) == pytest.approx(amount, rel=1e-6)
            assert budgets[promise].history[-1][1] == budgets[promise].used


def test_remembered_budgets_follow_releases_policies_and_languages(clock: Clock) -> None:
    history = History(3, clock)
    assert not any(group.used for group in study_budgets(history.study))
    history.count()
    english, again = study_budgets(history.study), study_budgets(history.study)
    assert english == again and all(group.used for group in english)
    with translation.override("de"):
        assert {use.title for group in study_budgets(history.study) for use in group.uses} == {"Personenzahlen"}
    caps = caps_of(consent_snapshot(history.study).epsilons, history.study.delta)
    history.charge(Release.Kind.HEAD_COUNTS, {}, np.full(len(caps), 0.001 * caps.min()), caps, 0.001 * caps.min())
    assert all(now.used > then.used for now, then in zip(study_budgets(history.study), english, strict=True))
    clock.days_pass(1)
    history.policy()
    assert {group.epsilon for group in study_budgets(history.study)} != {group.epsilon for group in english}
