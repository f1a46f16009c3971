"""The displayed uses over random histories of consents, policies and releases, compared with the worst account."""

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from django.utils import timezone

from accounting.accounts import account_balances
from accounting.caps import caps_of
from accounting.services import release_record
from accounting.shares import share_free, share_grant, share_open, share_settle
from consent import services
from consent.models import DataHolder, Level
from consent.promises.uses import usage_of
from consent.selectors import consent_current, consent_form_in_force, consent_snapshot
from tests.factories import consent_choose, policy_approve, user_create
from tests.training.asking import EVERYBODY
from tests.training.runs import run_draft, study_with_table
from training.models import Run
from training.services.drawings import SHARE, head_counts_draw

pytestmark = pytest.mark.django_db

EPSILONS = [(1.0, 2.0, 3.0), (0.5, 1.0, 1.5), (2.0, 3.0, 4.0), (0.8, 2.5, 2.6)]


def seeds(numbers: range) -> list[Any]:
    """Return the first seed for every suite, and the others for the exhaustive one."""
    return [numbers[0], *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in numbers[1:])]


class History:
    """A study whose releases charge everybody as much as possible, and the largest account that anybody could have."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.study = study_with_table(levels="HAL-", holders=4)
        self.holders = list(DataHolder.objects.filter(study=self.study).order_by("pk"))
        self.worst: dict[int, float] = defaultdict(float)

    def decide(self) -> None:
        holder = self.random.choice(self.holders)
        consent_choose(holder=holder, level=self.random.choice(Level.values), form=consent_form_in_force(self.study))

    def withdraw(self) -> None:
        holder = self.random.choice(self.holders)
        current = consent_current(holder)
        if current is not None and current.grants:
            services.consent_withdraw(holder=holder, acting_user=None)

    def policy(self) -> None:
        policy_approve(self.study, *self.random.choice(EPSILONS))

    def change(self) -> None:
        self.random.choice([self.decide, self.decide, self.withdraw, self.policy])()

    def count(self) -> None:
        if share_free(self.study) < SHARE:
            return
        before = self.stand()
        head_counts_draw(study=self.study, acting_user=user_create("olga"))
        for holder, spent in self.stand().items():
            self.worst[holder] += spent - before[holder]

    def run(self) -> None:
        """Return a run that uses all of its share, or gives back what its batches did not use."""
        granted = self.random.choice([0.05, 0.1, 0.3])
        if granted > share_free(self.study):
            return
        run, limit = self.begun(granted)
        parts = [granted * part for part in self.random.choice([[1.0], [0.3, 0.7], [0.2, 0.3], [0.1]])]
        for batch, part in enumerate(parts):
            if batch:
                self.change()
            snapshot = consent_snapshot(self.study)
            caps = caps_of(snapshot.epsilons, self.study.delta)
            full = sum(parts) > granted * (1 - 1e-9)
            room = np.maximum(limit * caps - account_balances(self.study, snapshot.holders), 0)
            charges = room if full else np.where(part * caps <= room, part * caps, 0)
            self.release(run, batch, snapshot.holders, charges, limit * caps)
            self.released(snapshot.holders[charges > 0].tolist())
            for holder, cap in zip(snapshot.holders.tolist(), caps.tolist(), strict=True):
                spent = self.worst[holder]
                self.worst[holder] = max(spent, limit * cap if full else min(spent + part * cap, limit * cap))
        share_settle(study=self.study, subject=run.pk, used=sum(parts))

    def begun(self, granted: float) -> tuple[Run, float]:
        """Return a run that was granted a share and may spend it, and the limit of that share."""
        run, now = run_draft(self.study, **EVERYBODY), timezone.now()
        share_grant(study=self.study, subject=run.pk, purpose="run", share=granted, acting_user=None)
        limit = share_open(study=self.study, subject=run.pk)
        Run.objects.filter(pk=run.pk).update(approved_at=now, snapshot_at=now, spending_began_at=now)
        return run, limit

    def release(self, run: Run, batch: int, holders: np.ndarray, charges: np.ndarray, limits: np.ndarray) -> None:
        """Record a batch of a run with its charges."""
        release_record(
            study=self.study,
            kind="counts",
            content={},
            run=run.pk,
            batch=batch,
            holders=holders,
            charges=charges,
            limits=limits,
            charge=float(charges.max(initial=0)),
        )

    def released(self, charged: list[int]) -> None:
        """Receive the ids of the people charged by a batch; subclasses may override this."""

    def stand(self) -> dict[int, float]:
        """Return everybody's charges."""
        ids = np.array([holder.pk for holder in self.holders])
        return dict(zip(ids.tolist(), account_balances(self.study, ids).tolist(), strict=True))

    def reported_bounds(self) -> dict[int, float]:
        """Return what each person reads."""
        return {holder.pk: usage_of(holder).mu_squared for holder in self.holders}


@pytest.mark.parametrize("seed", seeds(range(3)))
def test_the_reported_bound_covers_accounts_and_grows_with_releases(seed: int) -> None:
    history = History(seed)
    record = history.reported_bounds()
    for _ in range(14):
        step = history.random.choice([history.change, history.change, history.run, history.count])
        step()
        before, record = record, history.reported_bounds()
        if step == history.change:
            assert record == before, "nothing was released"
        for holder, spent in history.stand().items():
            assert spent <= record[holder] * (1 + 1e-9)
            assert history.worst[holder] <= record[holder] * (1 + 1e-9)
            assert record[holder] >= before[holder] * (1 - 1e-12), "nothing that was released is reversed"


@pytest.mark.parametrize("seed", seeds(range(100, 102)))
def test_the_bound_equals_the_worst_account_where_shares_are_used_up(seed: int) -> None:
    history = History(seed)
    for _ in range(6):
        history.change()
        granted = 0.15
        run, limit = history.begun(granted)
        for batch in range(2):
            history.change()
            snapshot = consent_snapshot(history.study)
            limits = limit * caps_of(snapshot.epsilons, history.study.delta)
            charges = np.maximum(limits - account_balances(history.study, snapshot.holders), 0)
            history.release(run, batch, snapshot.holders, charges, limits)
        share_settle(study=history.study, subject=run.pk, used=granted)
        record = history.reported_bounds()
        for holder, spent in history.stand().items():
            assert record[holder] == pytest.approx(spent, rel=1e-9), "each was charged as much as possible"
