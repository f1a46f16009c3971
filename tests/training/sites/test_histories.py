"""Random histories of an alliance: joint runs, lost and replaced keys, withdrawals, erasures, restores."""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from accounting.accounts import Balances, balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release
from consent.models import DataHolder, Study
from consent.selectors import consent_snapshot
from consent.services import consent_withdraw
from learning.mechanisms.protocol import PlanError
from learning.sites.documents import Refused
from tests.factories import user_create
from tests.restored import backup_of, restore
from tests.training.runs import run_approve
from tests.training.sites.alliances import advance, olga
from tests.training.sites.renewals import Renewed, renewed_make
from training.alliances import renewals
from training.alliances.runs import joint_run_decline, joint_run_go_on
from training.alliances.services import alliance_leave
from training.alliances.wire import Unreachable
from training.models import JointAnswer, Run
from training.services.erasures import records_erase
from training.services.restores import restore_settle
from training.services.runs import run_cancel
from training.verification import checks_of

pytestmark = pytest.mark.django_db

METHODS: list[dict[str, Any]] = [
    {"method": Run.Method.SGD, "choices": {"steps": 2, "sigma": 10.0}, "student_learner": "nearest_neighbour"},
    {
        "method": Run.Method.NEIGHBOURS,
        "choices": {"sigma": 10.0, "radius_share": 0.2},
        "batch_size": 6,
        "student_learner": "nearest_neighbour",
    },
    {"method": Run.Method.COUNTS, "choices": {"column": "class", "across": "length"}, "asks": False},
]
REFUSALS = (ValidationError, Refused, Unreachable, PlanError)
HUB = None
SEEDS = (7, 13)
"""Histories that release totals, chosen from the first seeds."""
WORK = 60
"""Number of steps after which every fully approved run has ended."""


class History:
    """An alliance of three sites whose operators, people and workers act in an order drawn by ``seed``."""

    def __init__(self, renewed: Renewed, seed: int) -> None:
        self.renewed, self.there, self.random = renewed, renewed.there, random.Random(seed)
        self.done: list[str] = []
        self.backups = {place: backup_of(study) for place, study in self.places.items()}
        #: State that never goes back: charges by holder (each charge file once), what was charged for, and what was
        #: answered.
        self.spent = {place: Balances.empty() for place in self.places}
        self.charges: set[str] = set()
        self.paid_for: set[tuple[int, str]] = set()
        self.answers: dict[tuple[str, str], str] = {}

    @property
    def places(self) -> dict[int | None, Study]:
        return {HUB: self.there.hub_study, **dict(enumerate(self.there.studies))}

    def site(self) -> int:
        return self.random.randrange(len(self.there.sites))

    def runs(self, place: int | None) -> list[Run]:
        return list(Run.objects.filter(study=self.places[place], status__in=Run.ACTIVE).order_by("created_at", "pk"))

    @contextmanager
    def at(self, place: int | None) -> Iterator[None]:
        """Act at one of the installations, with its secret key."""
        (self.renewed.as_first if place == 0 and self.renewed.lost else self.renewed.as_others)()
        try:
            yield
        finally:
            self.renewed.as_others()

    def propose(self) -> None:
        """Propose a run at the hub, and sometimes leave it as a draft."""
        self.there.hub = self.renewed.hub
        mode = self.random.choice(["together", "separate"])
        run = self.there.draft(mode=mode, **self.random.choice(METHODS))
        if self.random.random() < 0.8:
            run_approve(run=run, acting_user=olga(), share=self.random.choice([0.1, 0.2, 0.5]))

    def take(self) -> None:
        for place in range(len(self.there.sites)):
            with suppress(*REFUSALS):
                self.there.sites[place] = self.renewed.contact(place)
                for run in Run.objects.filter(pk__in=self.there.sites[place].proposals).order_by("created_at"):
                    with self.at(place):
                        self.there.take(run, place, share=self.random.choice([0.1, 0.2, 0.5]))

    def decline(self) -> None:
        site = self.renewed.contact(self.site())
        for number in list(site.proposals):
            joint_run_decline(alliance=site, number=number, acting_user=olga())

    def leave(self) -> None:
        """Let a site leave permanently."""
        if self.random.random() < 0.3:
            alliance_leave(alliance=self.there.sites[self.site()], acting_user=olga())

    def work(self) -> None:
        for _ in range(self.random.randrange(1, 12)):
            self.work_once()

    def work_once(self) -> None:
        for place in self.random.sample(list(self.places), len(self.places)):
            for run in self.runs(place):
                with self.at(place):
                    advance(run)

    def lose_key(self) -> None:
        """Give the first site another secret key, and sometimes keep the previous one as a fallback."""
        self.renewed.keeps = self.random.random() < 0.5
        self.renewed.lose()

    def register(self) -> None:
        self.renewed.lose()
        self.renewed.register()

    def confirm(self) -> None:
        for place in self.random.choice([[HUB], [self.site()], list(self.places)]):
            alliance = self.renewed.hub if place is HUB else self.renewed.contact(place)
            for waiting in renewals.renewals_waiting(alliance)[-1:]:
                self.renewed.confirm(place, waiting.fingerprint)

    def drop_key(self) -> None:
        renewals.renewal_drop(alliance=self.renewed.hub, acting_user=olga())

    def back_up(self) -> None:
        place = self.random.choice(list(self.places))
        self.backups[place] = backup_of(self.places[place])

    def restore(self) -> None:
        """Restore an installation from its backup; its study is locked until that is settled."""
        place = self.random.choice(list(self.backups))
        restore(self.places[place], self.backups[place])

    def settle(self) -> None:
        for place, study in self.places.items():
            with self.at(place):
                restore_settle(study=study, acting_user=olga())

    def withdraw(self) -> None:
        holders = DataHolder.objects.filter(study=self.random.choice(self.there.studies)).order_by("pk")
        consent_withdraw(holder=self.random.choice(list(holders)), acting_user=None)

    def erase(self) -> None:
        records_erase(self.random.choice(self.there.studies).pk)

    def go_on(self) -> None:
        self.go_on_without(self.random.choice(self.there.names))

    def go_on_without(self, site: str) -> None:
        for run in self.runs(HUB):
            with suppress(ValidationError):  # nothing waits for it
                joint_run_go_on(run=run, without=site, acting_user=olga())

    def cancel(self) -> None:
        place = self.random.choice(list(self.places))
        self.cancel_all(self.runs(place)[:1])

    def act(self) -> None:
        often = [*[self.propose] * 6, *[self.take] * 8, *[self.work] * 12, *[self.confirm] * 4]
        restores = [*[self.back_up] * 3, self.restore, self.settle, self.settle]
        seldom = [self.lose_key, self.register, self.drop_key, self.go_on, self.cancel, self.decline, self.leave]
        act = self.random.choice([*often, *restores, *[self.withdraw] * 3, *[self.erase] * 2, *seldom])
        try:
            act()
            self.done.append(act.__name__)
        except REFUSALS as refusal:
            self.done.append(f"{act.__name__}: {refusal}")
        finally:
            self.renewed.as_others()

    def end(self, settings: Any) -> None:
        """Let workers finish. Operators cancel runs that someone has not approved or that wait for a lost key."""
        self.settle()
        self.cancel_all(run for run in self.runs(HUB) if run.joint.missing)
        for step in range(WORK):
            if not any(map(self.runs, self.places)):
                return
            self.work_once()
            for place in range(len(self.there.sites)):
                try:
                    self.renewed.contact(place)
                except Unreachable:
                    assert place == 0 and self.renewed.lost, self.done
                    self.cancel_all(self.runs(place))
            if step == WORK // 2:
                settings.SITES_PATIENCE = 0.0  # a silent participant still has the forgotten run

    @staticmethod
    def cancel_all(runs: Iterable[Run]) -> None:
        for run in runs:
            run_cancel(run=run, acting_user=user_create("otto"))

    def look(self) -> None:
        """Note charges and answers, including those that a restore will forget."""
        for place, study in self.places.items():
            for entry in Release.objects.filter(study=study).exclude(charges="").exclude(charges__in=self.charges):
                self.charges.add(entry.charges)
                self.spent[place] = self.spent[place].charged(charges_of(entry))
                if entry.kind == Release.Kind.SUMS:
                    self.paid_for.add((study.pk, entry.content["asked"]))
        for answer in JointAnswer.objects.select_related("question"):
            asked = (answer.site, answer.question.document.digest())
            assert self.answers.setdefault(asked, answer.content) == answer.content, self.done

    def check_caps(self) -> None:
        """Check that nobody has spent more than their cap, including what a restore has forgotten."""
        for place, study in self.places.items():
            snapshot = consent_snapshot(study)
            caps = caps_of(snapshot.epsilons, study.delta)
            assert (self.spent[place].of(snapshot.holders) <= caps * (1 + 1e-9)).all(), self.done
            assert (balances(study).of(snapshot.holders) <= caps).all(), self.done

    def check_charges(self) -> None:
        """Check that recomputing all charges gives the same result."""
        for study in self.places.values():
            assert [fault for check in checks_of(study) for fault in check.faults()] == [], self.done

    def check_totals(self) -> int:
        """Return the number of released totals, after checking that participating sites charged their people."""
        studies = dict(zip(self.there.names, self.there.studies, strict=True))
        released = Release.objects.filter(study=self.there.hub_study, content__has_key="joint")
        totals = [entry.content["joint"] for entry in released]
        for total in totals:
            for name in total["participants"]:
                assert (studies[name].pk, total["asked"]) in self.paid_for, self.done
        return len(totals)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_every_total_was_paid_for_at_each_site(monkeypatch, settings, seed) -> None:
    history = History(renewed_make(monkeypatch), seed)
    for _ in range(40):
        history.act()
        history.look()
        history.check_caps()
    history.end(settings)
    history.look()
    history.check_caps()
    history.check_charges()
    left = [(place, run.status, str(run.message)) for place in history.places for run in history.runs(place)]
    assert not left, history.done
    assert history.check_totals() > 0
