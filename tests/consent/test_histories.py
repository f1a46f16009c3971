"""Rules 3, 4 and 5 over random histories, compared with a naive computation that stores everything."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.models import Release
from accounting.services import LimitExceeded, release_record
from consent import selectors, services
from consent.models import Circumstance, ConsentEvent, Level, Renewal, Role
from consent.people.circumstances import day_begin, day_of
from consent.services.consent_forms import OBJECTION_DAYS
from consent.services.holders import circumstance_record
from consent.services.replays import Lost, acts_apply
from tests import factories
from tests.accounting.charging import cap
from tests.clock import Clock
from tests.factories import user_create

pytestmark = pytest.mark.django_db

HOLDERS = 3
EPSILONS = [(1.0, 2.0, 3.0), (0.5, 1.0, 1.5), (2.0, 3.0, 4.0), (0.8, 2.5, 2.6)]

holders = st.integers(0, HOLDERS - 1)
actions = st.one_of(
    st.tuples(st.just("give"), holders, st.sampled_from(Level.values), st.just(True)),
    st.tuples(st.just("give"), holders, st.sampled_from(Level.values), st.booleans()),
    *(st.tuples(st.just(act), holders) for act in ("keep", "withdraw", "refuse")),
    st.tuples(st.just("policy"), st.sampled_from(EPSILONS), st.sampled_from([0, 2])),
    st.tuples(st.just("form"), st.sampled_from(Renewal.values), st.sampled_from([None, None, 1, 3])),
    st.tuples(st.just("circumstance"), holders, st.sampled_from(Circumstance.Kind.values)),
    st.tuples(st.just("vote"), st.sampled_from([0.001, 0.01, 0.03])),
    st.tuples(st.just("days"), st.one_of(st.integers(1, 3), st.just(OBJECTION_DAYS + 2))),
    st.tuples(st.just("correct")),
    st.tuples(st.just("lose"), st.just("give"), holders, st.sampled_from(Level.values)),
    st.tuples(st.just("lose"), st.sampled_from(["keep", "withdraw", "refuse"]), holders),
    st.tuples(st.just("lose"), st.just("circumstance"), holders, st.sampled_from(Circumstance.Kind.values)),
    st.tuples(st.just("replay")),
)


def of_each() -> list[list[Any]]:
    return [[] for _ in range(HOLDERS)]


@dataclass
class Naive:
    """A log of all events in plain lists; every result is computed from all of it."""

    policies: list[tuple[datetime, dict[str, float]]] = field(default_factory=list)
    forms: list[tuple[datetime, str, datetime | None]] = field(default_factory=list)
    decisions: list[list[tuple[datetime, str, int, float]]] = field(default_factory=of_each)
    circumstances: list[list[tuple[datetime, str, datetime | None]]] = field(default_factory=of_each)
    spent: list[float] = field(default_factory=lambda: [0.0] * HOLDERS)
    #: Circumstance under which someone decided, as recorded then, by holder and moment.
    decided_as: dict[tuple[int, datetime], str] = field(default_factory=dict)
    #: ε that someone gave up with a separate yes, by holder and moment.
    given_up: dict[tuple[int, datetime], float] = field(default_factory=dict)

    def epsilon_in_force(self, level: str, at: datetime) -> float:
        """Return the ε of the policy with the latest date up to ``at``."""
        _date, epsilons = max((each for each in self.policies if each[0] <= at), key=lambda each: each[0])
        return epsilons[level]

    def decide(self, holder: int, level: str, at: datetime, agreed: float | None = None) -> None:
        agreed = agreed or (self.epsilon_in_force(level, at) if level else math.nan)
        self.decisions[holder].append((at, level, len(self.forms), agreed))
        self.decided_as[holder, at] = self.state(holder, at)

    def last(self, holder: int, at: datetime) -> tuple[str, float] | None:
        """Return (level, ε) of the last consent ever given, even if it has ended since."""
        for decided_at, level, _form, agreed in reversed(self.decisions[holder]):
            if level:
                return level, min([agreed, *(each[level] for date, each in self.policies if decided_at < date <= at)])
        return None

    def weakens(self, holder: int, decision: tuple[datetime, str, int, float]) -> bool:
        """Return whether a decision promises less than the last consent did, without the person's yes to that."""
        at, level, _form, agreed = decision
        last = self.last(holder, at) if level else None
        return last is not None and agreed > last[1] and self.given_up.get((holder, at)) != last[1]

    def state(self, holder: int, at: datetime) -> str:
        """Return the circumstance of a holder at a moment."""
        kind = "person"
        for recorded_at, recorded, until in self.circumstances[holder]:
            if recorded_at <= at:
                kind = "person" if until is not None and until <= at else recorded
        return kind

    def has_ended(self, holder: int, decided_at: datetime, at: datetime) -> bool:
        """Return whether someone else or nobody has answered since the decision was made."""
        known = [each for each in self.circumstances[holder] if each[0] <= at]
        moments = [*(each[0] for each in known), *(each[2] for each in known if each[2] is not None), decided_at, at]
        by = self.decided_as[holder, decided_at]
        return any(self.state(holder, moment) != by for moment in moments if decided_at <= moment <= at)

    def promise(self, holder: int, at: datetime) -> tuple[str, float] | None:
        """Return (level, ε) of a holder at a moment, or None if they do not take part."""
        past = [decision for decision in self.decisions[holder] if decision[0] <= at]
        if not past or not past[-1][1]:
            return None
        decided_at, level, form, agreed = past[-1]
        for version, (published_at, renewal, _until) in enumerate(self.forms, 1):
            if version > form and published_at <= at and renewal == Renewal.REQUIRED:
                return None
        until = self.forms[form - 1][2]
        if (until is not None and until <= at) or self.has_ended(holder, decided_at, at):
            return None
        return level, min([agreed, *(each[level] for date, each in self.policies if decided_at < date <= at)])


class History:
    """The site and the naive computation, step by step."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.naive = clock, Naive()
        self.moments: list[datetime] = []
        self.lost: list[tuple[int, dict[str, Any], tuple[datetime, str, int, float]]] = []
        self.lost_circumstances: list[tuple[int, dict[str, Any], tuple[datetime, str, datetime | None]]] = []
        #: Announced corrections: when they take effect, and the version that they correct.
        self.announced: list[tuple[datetime, int]] = []
        self.study = factories.study_create("random")
        conrad = user_create("conrad")
        services.membership_add(study=self.study, user=conrad, role=Role.COMMITTEE, acting_user=None)
        self.form("not_asked", None)
        self.policy(EPSILONS[0], 0)
        self.holders = [factories.holder_create(self.study, f"P-{n}") for n in range(HOLDERS)]

    def step(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)
        self.moments.append(self.clock.now())

    def days(self, number: int) -> None:
        self.clock.days_pass(number)
        before = len(self.naive.forms)
        for until, version in self.announced:
            if until <= self.clock.moment and version == len(self.naive.forms):
                self.naive.forms.append((self.clock.moment, Renewal.NOT_ASKED, self.naive.forms[-1][2]))
        assert services.corrections_publish() == len(self.naive.forms) - before
        self.announced = [each for each in self.announced if each[0] > self.clock.moment]

    def correct(self) -> None:
        """Announce a small correction, which changes nobody's consent when it takes effect."""
        form = selectors.consent_form_in_force(self.study)
        words = form.texts["en"].split()
        text = {"en": " ".join([*words[:2], "page" if words[2:] == ["sheet"] else "sheet"])}
        try:
            proposal = services.consent_form_correct(study=self.study, acting_user=user_create("olga"), texts=text)
        except ValidationError:
            until = self.naive.forms[-1][2]
            assert until is not None and until <= self.clock.now(), "someone who could object exists"
            return
        self.announced.append((proposal.objection_until, form.version))

    def form(self, renewal: str, days: int | None) -> None:
        """Publish a version with a consent period in days, or without one."""
        last = None if days is None else day_of(self.clock.moment) + timedelta(days=days)
        text = {"en": f"Version {len(self.naive.forms) + 1} page"}
        form = factories.form_publish(self.study, text, renewal, services.Valid(until=last))
        self.naive.forms.append((form.published_at, renewal, last and day_begin(last + timedelta(days=1))))

    def circumstance(self, holder: int, kind: str) -> None:
        until = day_of(self.clock.moment) + timedelta(days=2) if kind == "guardian" else None
        try:
            fields = {"pseudonym": self.holders[holder].pseudonym, "kind": kind, "until": until}
            record = circumstance_record(study=self.study, reason="So it is.", acting_user=None, **fields)
        except ValidationError:
            return
        self.naive.circumstances[holder].append((record.recorded_at, kind, until and day_begin(until)))

    def policy(self, epsilons: tuple[float, float, float], days_ahead: int) -> None:
        start = self.clock.moment
        self.clock.days_pass(days_ahead)
        effective, self.clock.moment = self.clock.now(), start
        policy = factories.policy_approve(self.study, *epsilons, effective_from=effective)
        by_level = dict(zip(("HIGH", "AVERAGE", "LOW"), epsilons, strict=True))
        effective = policy.approval.effective_from
        # The newest version replaces those that were due to start on or after its date.
        self.naive.policies = [each for each in self.naive.policies if each[0] < effective]
        self.naive.policies.append((effective, by_level))

    def give(self, holder: int, level: str, yes: bool = True) -> None:
        """Give consent, with or without a yes to a weaker promise."""
        last = self.naive.last(holder, self.clock.now())
        weakens = last is not None and self.naive.epsilon_in_force(level, self.clock.now()) > last[1]
        answer = {"level": level, "accepts_weaker_than": last[1] if last and yes else None}
        event = self.consent(holder, services.consent_give, refused=weakens and not yes, **answer)
        if event is not None:
            self.naive.decide(holder, level, event.recorded_at)
            assert event.epsilon_before in (None, last and last[1])
            if event.epsilon_before is not None:
                self.naive.given_up[holder, event.recorded_at] = event.epsilon_before

    def keep(self, holder: int) -> None:
        """Check that people who keep their promise still have it, and that plans and privacy groups include it."""
        last = self.naive.last(holder, self.clock.now())
        epsilon = last[1] if last else EPSILONS[0][0]
        event = self.consent(holder, services.consent_keep, refused=last is None, epsilon=epsilon)
        if event is not None:
            self.naive.decide(holder, last[0], event.recorded_at, last[1])
            possible = {(each.level, each.epsilon) for each in selectors.promises_possible(self.study)}
            assert last in possible

    def consent(self, holder: int, act: Callable[..., ConsentEvent], *, refused: bool, **answer: Any) -> Any:
        form = selectors.consent_form_in_force(self.study)
        until = self.naive.forms[-1][2]
        is_over = until is not None and until <= self.clock.now()
        nobody = self.naive.state(holder, self.clock.now()) in ("died", "incapable")
        try:
            event = act(holder=self.holders[holder], form=form, acting_user=None, **answer)
        except ValidationError:
            assert is_over or nobody or refused
            return None
        assert not (is_over or nobody or refused)
        return event

    def withdraw(self, holder: int) -> None:
        try:
            event = services.consent_withdraw(holder=self.holders[holder], acting_user=None)
        except ValidationError:
            return
        self.naive.decide(holder, "", event.recorded_at)

    def refuse(self, holder: int) -> None:
        event = services.consent_refuse(holder=self.holders[holder], acting_user=None)
        self.naive.decide(holder, "", event.recorded_at)

    def lose(self, act: str, holder: int, *arguments: Any) -> None:
        """Lose a decision or circumstance from a restored database; the journal still has it."""
        chain: type[Any] = Circumstance if act == "circumstance" else ConsentEvent
        kept: list[Any] = (self.naive.circumstances if chain is Circumstance else self.naive.decisions)[holder]
        lost: list[Any] = self.lost_circumstances if chain is Circumstance else self.lost
        before, known = len(kept), chain.chain(self.study.pk).count()
        with transaction.atomic():
            getattr(self, act)(holder, *arguments)
            acts = [row.as_act() for row in chain.chain(self.study.pk)[known:]]
            transaction.set_rollback(True)
        if acts:
            lost.append((holder, acts[0], kept[before]))
        del kept[before:]

    def replay(self) -> None:
        """Record lost decisions again, and then those made since, except for any that weaken a promise."""
        circumstances = [Circumstance.from_act(act) for _holder, act, _lost in self.lost_circumstances]
        newest = {holder: self.naive.decisions[holder][-1:] for holder, _act, _lost in self.lost}
        since = {n: [each for each in newest[n] if each[0] > lost[0]] for n, _act, lost in self.lost}
        events = [ConsentEvent.from_act(act) for _holder, act, _lost in self.lost]
        acts_apply(self.study, Lost({Circumstance: circumstances, ConsentEvent: events}))
        for holder, _act, circumstance in self.lost_circumstances:
            self.naive.circumstances[holder].append(circumstance)
            self.naive.circumstances[holder].sort(key=lambda each: each[0])
        again = [(holder, lost) for holder, _act, lost in self.lost]
        for holder, decision in [*again, *((n, each) for n in since for each in since[n])]:
            if not self.naive.weakens(holder, decision):
                self.naive.decisions[holder].append(decision)
        self.lost, self.lost_circumstances = [], []

    def vote(self, cost: float) -> None:
        """Release something that costs every participant ``cost``; it is refused if anyone cannot pay."""
        now = self.clock.now()
        promises = {n: promise for n in range(HOLDERS) if (promise := self.naive.promise(n, now))}
        caps = {n: cap(epsilon, self.study.delta) for n, (_, epsilon) in promises.items()}
        too_much = any(self.naive.spent[n] + cost > most for n, most in caps.items())
        snapshot = selectors.consent_snapshot(self.study)
        try:
            with transaction.atomic():
                limits = caps_of(snapshot.epsilons, self.study.delta)
                fields = {"kind": "labels", "content": {}, "holders": snapshot.holders, "charge": cost}
                charges = np.full(len(snapshot), cost)
                release_record(study=self.study, charges=charges, limits=limits, **fields)
        except LimitExceeded:
            assert too_much, "the vote was refused although everyone could afford it"
            return
        assert not too_much, "rule 3: someone was charged more than promised"
        for n in promises:
            self.naive.spent[n] += cost

    def promised(self, at: datetime) -> dict[int, tuple[str, float]]:
        """Return the state at a moment according to the site."""
        snapshot = selectors.consent_snapshot(self.study, at)
        rows = zip(snapshot.holders.tolist(), snapshot.levels.tolist(), snapshot.epsilons.tolist(), strict=True)
        number = {holder.pk: n for n, holder in enumerate(self.holders)}
        return {number[pk]: (selectors.LEVELS[level], epsilon) for pk, level, epsilon in rows}

    def recorded(self, at: datetime) -> dict[int, tuple[str, float]]:
        """Return the state at a moment according to the naive computation."""
        return {n: promise for n in range(HOLDERS) if (promise := self.naive.promise(n, at))}


def replayed(monkeypatch: pytest.MonkeyPatch, steps: list[Any]) -> History:
    """Play a history on an empty site; the caller rolls it back."""
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock.now)
    history = History(clock)
    for name, *arguments in steps:
        history.step(name, *arguments)
    return history


@pytest.mark.parametrize("number", [6, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_random_histories_keep_every_promise(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(selectors, "WORTH_KEEPING", 0)
    monkeypatch.setattr(selectors, "_kept_snapshots", {})
    lost = [("lose", "give", 0, "HIGH"), ("lose", "give", 0, "AVERAGE")]  # by two restores, one after the other

    @settings(max_examples=number)
    @given(st.lists(actions, max_size=14))
    @example([*lost, ("give", 0, "LOW", True), ("replay",)])
    def check(steps: list[Any]) -> None:
        with transaction.atomic():
            history = replayed(monkeypatch, steps)
            for moment in history.moments:
                assert history.promised(moment) == history.recorded(moment), "rules 4 and 5, at any moment"
            spent = balances(history.study).of(np.array([holder.pk for holder in history.holders]))
            assert spent == pytest.approx(history.naive.spent)
            assert list(ConsentEvent.chain_faults(history.study.pk)) == []
            assert list(selectors.promise_faults(history.study)) == []
            assert list(Release.chain_faults(history.study.pk)) == []
            transaction.set_rollback(True)

    check()
