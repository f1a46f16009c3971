"""Restore drills over random histories, beside a computation that forgets nothing.

A study lives on after its backup: people join, consent, change levels, withdraw, ask for erasure and die, policies
change, accounts are charged up to their limits. Then the backup is put back, the gap is settled, and life goes on.
"""

import random
from collections import defaultdict
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from django.core.management import call_command
from django.db import transaction

from accounting.accounts import accounts_stand
from accounting.caps import caps_of
from accounting.ceilings import rooms
from accounting.models import Release
from accounting.restores import missing_rows
from accounting.services import release_record
from accounting.shares import share_free, share_grant, share_open, share_settle
from accounting.verification import study_faults
from common.journal import acts_forget
from consent.circumstances import Lapse
from consent.models import Circumstance, ConsentEvent, DataHolder, Level, Study
from consent.selectors import (
    answerer_faults,
    consent_current,
    consent_form_in_force,
    consent_snapshot,
    policy_in_force,
    promise_faults,
    promise_last,
)
from consent.services import consent_refuse, consent_withdraw, holder_link
from consent.services.erasures import holders_waiting
from consent.services.handover import circumstance_record
from consent.services.replays import acts_lost
from consent.standing import standing
from ipate_web.backups.keys import NAME as KEYS
from tests.factories import consent_choose, form_publish, holder_create, policy_approve, study_open, user_create

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.both,
    pytest.mark.usefixtures("storages_apart"),
]

POLICIES = [(1.0, 2.0, 3.0), (0.5, 1.0, 1.5), (2.0, 3.0, 4.0)]


class World:
    """A study, and beside it what really happened to each person, by pseudonym, whatever a database forgets."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.study = study_open("drill")
        self.spent: dict[str, float] = defaultdict(float)
        self.largest: dict[str, float] = defaultdict(float)
        self.out: set[str] = set()
        self.erased: set[str] = set()
        self.joined = 0
        for _ in range(5):
            self.join()

    def people(self) -> list[DataHolder]:
        return list(self.study.holders.filter(erased_at=None).order_by("pk"))

    def join(self) -> None:
        self.joined += 1
        holder_create(self.study, f"P-{self.joined}")

    def give(self, holder: DataHolder | None = None, level: str = "") -> None:
        holder = holder or self.random.choice(self.people())
        level, policy = level or self.random.choice(Level.values), policy_in_force(self.study)
        last = Circumstance.objects.filter(holder=holder).last()
        if last is not None and last.kind == Circumstance.Kind.DIED:
            return
        form = consent_form_in_force(self.study)
        assert form is not None and policy is not None
        consent_choose(holder=holder, level=level, form=form)
        self.largest[holder.pseudonym] = max(self.largest[holder.pseudonym], policy.epsilon(level))
        self.out.discard(holder.pseudonym)
        self.erased.discard(holder.pseudonym)

    def withdraw(self) -> None:
        holder = self.random.choice(self.people())
        current = consent_current(holder)
        if current is None or not current.grants:
            return
        erase = self.random.random() < 0.5
        consent_withdraw(holder=holder, acting_user=None, keep=not erase)
        self.out.add(holder.pseudonym)
        if erase:
            self.erased.add(holder.pseudonym)

    def die(self) -> None:
        holder = self.random.choice(self.people())
        circumstance_record(
            study=self.study, pseudonym=holder.pseudonym, kind="died", reason="A relative wrote.", acting_user=None
        )
        self.out.add(holder.pseudonym)

    def policy(self) -> None:
        policy_approve(self.study, *self.random.choice(POLICIES))

    def charge(self) -> None:
        """Charge whoever takes part a random part of what they have left, most of them all of it."""
        share = min(self.random.choice([0.05, 0.1, 0.2]), share_free(self.study))
        if share < 0.01:
            return
        subject = uuid4()
        share_grant(study=self.study, subject=subject, purpose="run", share=share, acting_user=None)
        limit = share_open(study=self.study, subject=subject)
        snapshot = consent_snapshot(self.study)
        limits = limit * caps_of(snapshot.epsilons, self.study.delta)
        room = np.maximum(limits - accounts_stand(self.study, snapshot.holders), 0.0)
        charges = room * [self.random.choice([1.0, 1.0, self.random.random()]) for _ in room]
        with transaction.atomic():
            release_record(
                study=self.study,
                kind=Release.Kind.COUNTS,
                content={},
                holders=snapshot.holders,
                charges=charges,
                limits=limits,
                charge=float(charges.max(initial=0.0)),
            )
        used = self.random.choice([share, share / 2])
        share_settle(
            study=self.study, subject=subject, used=used if (charges <= used * limits / limit).all() else share
        )
        names = dict(self.study.holders.values_list("pk", "pseudonym"))
        for holder, charge in zip(snapshot.holders.tolist(), charges.tolist(), strict=True):
            self.spent[names[holder]] += charge

    def live(self, steps: int) -> None:
        acts = [
            self.give,
            self.give,
            self.give,
            self.charge,
            self.charge,
            self.withdraw,
            self.join,
            self.die,
            self.policy,
        ]
        for _ in range(steps):
            self.random.choice(acts)()

    def check(self, *, complete: bool) -> None:
        """Compare the study with what really happened.

        Args:
            complete: whether the study knows all decisions: then every account stands at its truth or above it.
        """
        study = Study.objects.get(pk=self.study.pk)
        assert list(study_faults(study)) == []
        holders = {each.pseudonym: each for each in study.holders.all()}
        stands = {name: accounts_stand(study, np.array([holder.pk]))[0] for name, holder in holders.items()}
        taking_part = set(consent_snapshot(study).holders.tolist())
        for name, spent in self.spent.items():
            promised = float(caps_of(self.largest[name], study.delta))
            assert spent <= promised * (1 + 1e-9), f"{name} was charged beyond their largest promise"
            if complete:
                assert stands[name] >= spent * (1 - 1e-9), f"{name}'s account lies below what they were charged"
        for name in self.out & holders.keys():
            assert holders[name].pk not in taking_part, f"{name} was learned from again"
        waiting = holders_waiting(study)
        for name in self.erased & holders.keys():
            assert holders[name].pk in waiting, f"the erasure that {name} asked for was forgotten"


def backup(folder: Path) -> Path:
    call_command("backup", str(folder), "--unencrypted", stdout=StringIO())
    (made,) = set(folder.iterdir()) - {folder / KEYS}
    return made


def restore(made: Path) -> None:
    call_command("restore", str(made), "--yes", "--replace", stdout=StringIO())


def settle(study: Study, *options: str) -> None:
    unknown = acts_lost(study).unknown
    call_command("settle_restore", study.slug, "--user", "olga", "--give-up", str(unknown), *options, stdout=StringIO())


@pytest.mark.parametrize("seed", range(8))
def test_after_a_restore_every_account_stands_at_its_truth_or_above(seed: int, tmp_path: Path) -> None:
    world = World(seed)
    for round in range(2):
        world.live(world.random.randrange(4, 10))
        made = backup(tmp_path / f"backups-{round}")
        people = world.people()
        world.live(world.random.randrange(4, 14))
        restore(made)
        complete = not acts_lost(world.study).unknown
        if world.random.random() < 0.5:  # decisions on the locked database
            world.give(world.random.choice(people))
            world.withdraw()
        settle(world.study)
        world.check(complete=complete and all(name in known(world) for name in world.spent))
        if not complete:
            return  # who is lost comes back as somebody new: the promise is tested below
        world.live(6)
        world.check(complete=all(name in known(world) for name in world.spent))


def known(world: World) -> set[str]:
    return set(world.study.holders.values_list("pseudonym", flat=True))


@pytest.mark.parametrize("seed", range(4))
def test_promises_hold_after_the_journal_lost_decisions(seed: int, tmp_path: Path) -> None:
    world = World(100 + seed)
    world.live(5)
    made = backup(tmp_path / "backups")
    world.join()
    lost = f"P-{world.joined}"
    for each in world.people():  # first consents, and levels raised, that nobody will know of
        world.give(each, Level.LOW)
    for _ in range(3):
        world.charge()
    assert world.spent[lost] > 0
    acts_forget(world.study.pk, timedelta(0))
    restore(made)
    settle(world.study, "--decisions-entered")
    world.out.clear()  # nobody has entered who withdrew
    world.erased.clear()
    world.check(complete=False)
    holder_create(world.study, lost)
    for each in world.people():  # they come back, with the same level or another one
        world.give(each, world.random.choice([Level.LOW, Level.LOW, Level.HIGH]))
    for _ in range(12):
        world.charge()
    world.check(complete=False)
    assert Release.objects.get(kind=Release.Kind.GAP).recorded_by == user_create("olga")


def test_a_withdrawal_counts_though_the_form_that_was_read_is_lost(tmp_path: Path) -> None:
    world = World(0)
    (leaves, stays), study = world.people()[:2], world.study
    for holder in (leaves, stays):
        world.give(holder)
    made = backup(tmp_path / "backups")
    consent_refuse(holder=leaves, form=form_publish(study, {"en": "In other words."}), acting_user=None)
    restore(made)
    settle(study)
    assert consent_snapshot(study).holders.tolist() == [stays.pk]
    assert holders_waiting(study) == {leaves.pk}
    assert list(ConsentEvent.chain_faults(study.pk)) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_consent_counts_no_more_after_a_stricter_one_that_cannot_be_recorded(tmp_path: Path, again: bool) -> None:
    """Its policy was lost. Whoever has decided anew since the restore keeps that decision."""
    world = World(0)
    holder, study = world.people()[0], world.study
    world.give(holder, Level.LOW)
    policy_approve(study, 0.5, 1.5, 2.5)
    made = backup(tmp_path / "backups")
    policy_approve(study, 0.4, 1.4, 2.4)
    world.give(holder, Level.HIGH)
    restore(made)
    if again:
        world.give(holder, Level.AVERAGE)
    settle(study)
    assert consent_snapshot(study).epsilons.tolist() == ([1.5] if again else [])
    assert list(study_faults(study)) == list(promise_faults(study)) == list(answerer_faults(study)) == []
    if not again:
        state = standing(holder)
        assert state.lapse == Lapse.EXPIRED and state.asks, "they are asked anew"
        promise = promise_last(holder)
        assert promise is not None and promise.epsilon == 2.5


def test_a_policy_that_a_backup_forgot_counts_for_the_ceiling_at_once_and_for_good(
    tmp_path: Path, settings: Any
) -> None:
    """What the person was charged under it must fit, though the study is locked, or has another policy since."""
    one, two = study_open("one"), study_open("two")
    caps = {epsilon: float(caps_of(epsilon, one.delta)) for epsilon in (3.0, 6.0)}
    settings.PERSON_CEILING = caps[6.0] + caps[3.0] / 2
    here = holder_create(two, "P-1")
    for holder in (holder_create(one, "P-1"), here):
        holder_link(holder=holder, user=user_create("hanna"))

    def left() -> float:
        return float(rooms(two, np.array([here.pk]))[0])

    made = backup(tmp_path / "backups")
    policy_approve(one, 1.0, 2.0, 6.0)
    share_grant(study=one, subject=(subject := uuid4()), purpose="run", share=1.0, acting_user=None)
    share_open(study=one, subject=subject)
    truth = left()
    assert truth == pytest.approx(caps[3.0] / 2)
    restore(made)
    assert left() == pytest.approx(truth)
    policy_approve(one, 0.5, 1.0, 2.0)
    assert left() == pytest.approx(truth)
    settle(one)
    assert left() == pytest.approx(truth)
    policy_approve(one, 0.4, 0.9, 1.9)
    restore(made)
    settle(one)
    assert left() == pytest.approx(truth), "of two restores, one after the other"


def test_a_new_study_is_none_that_a_backup_has_forgotten(tmp_path: Path) -> None:
    kept = study_open("kept")
    made = backup(tmp_path / "backups")
    lost = study_open("lost")
    restore(made)
    new = study_open("later")
    assert new.pk not in (kept.pk, lost.pk) and missing_rows(new) == {}
    assert list(study_faults(new)) == []
    policy_approve(new, 1.0, 2.0, 3.0)
