"""Head counts, and the budget of each privacy group of a study across all runs: used, reserved, remaining. Public.

Everything is computed from policies, shares and the charges in the release register, never from accounts. No account in
a group exceeds these numbers (proof: docs/gaussian-accounts.md, "What a privacy group has used").
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from uuid import UUID

from django.db.models import Q, Subquery
from django.utils import timezone

from accounting.caps import caps_of, epsilon_of
from accounting.models import HeadCount, Release, ShareRecord
from accounting.shares import shares
from consent.models import EpsilonPolicy, Study
from consent.selectors import LEVELS, EpsilonRule, epsilon_promised_largest, epsilons_since


def head_counts(study: Study) -> list[HeadCount]:
    """Return the head counts that plans use, from the newest drawing or entry; empty if there are none yet."""
    newest = HeadCount.objects.filter(study=study).order_by("-release__sequence").values("release_id")[:1]
    counts = HeadCount.objects.filter(study=study, release_id=Subquery(newest)).order_by("epsilon", "pk")
    return list(counts.select_related("release").defer("release__content"))


@dataclass(frozen=True)
class HeadCountTotal:
    """Approximate number of participants from head counts; ``sigma`` is its standard deviation, 0 if it is public."""

    count: int
    sigma: float
    counted_at: datetime


def head_count_total(study: Study) -> HeadCountTotal | None:
    """Return the sum of the newest head counts, for people who must not see exact numbers; None if there are none."""
    counts = head_counts(study)
    return _total(counts, counts[0].release.recorded_at) if counts else None


def people_promised_more(study: Study, policy: EpsilonPolicy) -> HeadCountTotal | None:
    """Return the approximate number of people with a stronger promise than ``policy`` makes for their level.

    These people would be asked to accept a weaker promise. The number is the sum of the newest head counts of such
    promises, or None if there are none yet.
    """
    counts = head_counts(study)
    if not counts:
        return None
    # Changes that have taken effect since the drawing also apply to the people who were counted.
    since = epsilons_since(study, counts[0].release.recorded_at)
    more = [count for count in counts if min(count.epsilon, since[count.level]) < policy.epsilon(count.level)]
    return _total(more, counts[0].release.recorded_at)


def _total(counts: Sequence[HeadCount], counted_at: datetime) -> HeadCountTotal:
    sigma = math.sqrt(sum((count.sigma or 0.0) ** 2 for count in counts))
    return HeadCountTotal(sum(count.count for count in counts), sigma, counted_at)


#: Relative tolerance for detecting that a cost was reduced to the amount that its run may still charge.
_CUT = 1e-12


@dataclass(frozen=True)
class ChargedRun:
    """Run that has charged groups.

    Attributes:
        places: position of each promise (level, ε) in the run's lists of charges.
        allowed: largest charge to each promise, in μ².
    """

    title: str
    places: Mapping[tuple[str, float], int]
    allowed: Sequence[float]


@dataclass(frozen=True)
class BudgetUse:
    """Part of a group's budget used by a run, or by a release outside runs if ``run`` is None.

    ``charge`` is how much this use increased the group's largest possible total charge, in μ². ``at`` is the time of
    the last increase.
    """

    run: UUID | None
    kind: str
    title: str
    charge: float
    share: float
    epsilon: float
    at: datetime


@dataclass(frozen=True)
class GroupBudget:
    """Budget of the holders with one promise: a level under one policy or under earlier policies with the same ε.

    Attributes:
        policy: version of the newest policy that makes this promise.
        in_force: whether people who consent now get this promise.
        cap: μ² of the promise.
        used: the largest possible total charge to an account whose level never changed, in μ².
        reserved: part of the cap that active runs may still use.
        uses: releases and runs that used the budget, in the order of their first charges.
        history: the time of each release that charged the group, and the value of ``used`` after this release.
    """

    level: str
    policy: int
    epsilon: float
    in_force: bool
    delta: float
    cap: float
    used: float
    reserved: float
    uses: list[BudgetUse] = field(default_factory=list)
    history: list[tuple[datetime, float]] = field(default_factory=list)

    @property
    def share_used(self) -> float:
        """Used share of the cap; above 1 if the promise previously had a larger ε."""
        return self.used / self.cap

    @property
    def share_reserved(self) -> float:
        return min(self.reserved, max(0.0, 1 - self.share_used))

    @property
    def share_left(self) -> float:
        return max(0.0, 1 - self.share_used - self.share_reserved)

    @cached_property
    def epsilon_used(self) -> float:
        return epsilon_of(self.used, self.delta)

    @cached_property
    def epsilon_reserved(self) -> float:
        """ε of the reserved part by itself, because μ² is additive and ε is not."""
        return epsilon_of(self.share_reserved * self.cap, self.delta)

    @cached_property
    def epsilon_left(self) -> float:
        """ε that a single further release could use."""
        return epsilon_of(self.share_left * self.cap, self.delta)


@dataclass(frozen=True)
class _Group:
    """Promise of a level to people who consented under one of the policies up to ``last``.

    ``epsilons`` contains the ε of the level under every policy.
    """

    level: str
    last: int
    epsilon: float
    epsilons: tuple[float, ...]
    dates: tuple[datetime, ...]

    def policies_between(self, since: datetime, until: datetime) -> tuple[int, int]:
        """Return the first and last position (exclusive) of the policies in force at any time in an interval."""
        return max(0, bisect_right(self.dates, since) - 1), bisect_right(self.dates, until)

    def possible(self, first: int, end: int) -> set[float]:
        """Return every ε that an account with this level could have been promised under a range of policies."""
        return {min(self.epsilons[p : q + 1]) for q in range(first, end) for p in range(min(q, self.last) + 1)}

    @property
    def largest(self) -> float:
        return max(self.possible(*self.policies_between(self.dates[0], self.dates[-1])))


def _groups(rule: EpsilonRule) -> list[_Group]:
    """Return all promises that people may hold after consenting under past or current policies, smallest ε first."""
    groups: dict[tuple[float, int], _Group] = {}
    for place, level in enumerate(LEVELS):
        epsilons = tuple(policy.epsilon(level) for policy in rule.policies)
        for position in range(len(epsilons)):
            epsilon = min(epsilons[position:])
            groups[epsilon, place] = _Group(level, position, epsilon, epsilons, tuple(rule.dates))
    return [groups[promise] for promise in sorted(groups)]


@dataclass(frozen=True)
class BudgetFacts:
    """Facts that determine the budgets of a study's groups, apart from titles and plans of its runs.

    Attributes:
        release: hash of the register's newest entry.
        share: hash of the newest record of shares.
        policies: hash and start of every policy that has been in force, oldest first.
    """

    release: str
    share: str
    policies: tuple[tuple[str, datetime], ...]
    delta: float
    rehearsal: bool


def budget_facts(study: Study) -> BudgetFacts:
    """Return the facts on which the budgets of a study's groups depend now."""
    rule = EpsilonRule(study, timezone.now())
    policies = tuple((policy.hash, since) for policy, since in zip(rule.policies, rule.dates, strict=True))
    heads = (Release.head(study.pk).hash, ShareRecord.head(study.pk).hash)
    return BudgetFacts(*heads, policies, study.delta, study.rehearsal)


def group_budgets(study: Study, runs: Mapping[UUID, ChargedRun]) -> list[GroupBudget]:
    """Return budgets of all groups of a study, smallest ε first; empty before its first policy, and in a rehearsal.

    Args:
        runs: for each run, the positions of promises in its lists of charges, and the largest charges.
    """
    rule = EpsilonRule(study, timezone.now())
    if study.rehearsal or not rule.policies:
        return []
    all_shares, (granted_at, limits) = shares(study), _limits(study)
    rows = (
        Release.chain(study.pk)
        .filter(Q(charge__gt=0) | Q(kind=Release.Kind.GAP))
        .values_list("kind", "run", "charge", "content__charges", "content__reached", "recorded_at")
    )
    releases, charged = [], dict[UUID, list[float]]()
    for kind, run, charge, charges, reached, at in rows:
        before = charged.get(run) or [0.0] * len(charges or [])
        if run is not None:
            charged[run] = [sum(pair) for pair in zip(before, charges or [], strict=True)]
        releases.append((kind, run, charge, charges or [], before, reached, at))
    budgets = []
    for group in _groups(rule):
        cap = float(caps_of(group.epsilon, study.delta))
        tally = _Tally(group, float(caps_of(group.largest, study.delta)), runs)
        for kind, run, charge, charges, before, reached, at in releases:
            if kind == Release.Kind.GAP:
                tally.raise_to((reached or 0.0) * tally.largest, kind, run, at)
            elif run is None:
                tally.raise_to(min(tally.used + charge, tally.largest), kind, run, at)
            else:
                bound = tally.bound(run, charge, charges, before, granted_at.get(run, at), at)
                tally.raise_to(min(tally.used + bound, limits.get(run, 1.0) * tally.largest), kind, run, at)
        reserved = sum(
            max(0.0, share.granted - tally.by_subject.get(subject, 0.0) / cap)
            for subject, share in all_shares.items()
            if share.used is None
        )
        budgets.append(
            GroupBudget(
                level=group.level,
                policy=rule.policies[group.last].version,
                epsilon=group.epsilon,
                in_force=group.last == len(rule.policies) - 1,
                delta=study.delta,
                cap=cap,
                used=tally.used,
                reserved=reserved,
                uses=tally.uses(cap, study.delta),
                history=tally.history,
            )
        )
    return budgets


def largest_cap(study: Study) -> float:
    """Return the cap of the largest promise of any approved policy, in μ²; infinity if there is none. Public.

    No account is charged more than this.
    """
    epsilon = epsilon_promised_largest(study)
    return float(caps_of(epsilon, study.delta)) if epsilon else math.inf


def _limits(study: Study) -> tuple[dict[UUID, datetime], dict[UUID, float]]:
    """Return the time of each share's grant, and its limit: the fraction of a cap that accounts could reach under it.

    The limit is the recorded one plus any shares opened in the meantime, for example for head counts during a run.
    """
    granted_at, limits, being_spent = dict[UUID, datetime](), dict[UUID, float](), set[UUID]()
    rows = ShareRecord.chain(study.pk).values_list("subject", "kind", "share", "limit", "recorded_at")
    for subject, kind, share, limit, at in rows:
        if kind == ShareRecord.Kind.GRANTED:
            granted_at[subject] = at
        elif kind == ShareRecord.Kind.SETTLED:
            being_spent.discard(subject)
        else:
            for other in being_spent:
                limits[other] = min(1.0, limits[other] + share)
            being_spent.add(subject)
            limits[subject] = 1.0 if limit is None else limit
    return granted_at, limits


class _Tally:
    """Charges of one group, release by release.

    Attributes:
        largest: the largest cap, in μ², that an account whose level never changed could have had.
        used: the largest possible total charge to such an account so far, in μ².
        by_subject: the part of ``used`` due to each run, or to each kind of release outside runs.
        history: times of increases of ``used``, with the new value.
    """

    def __init__(self, group: _Group, largest: float, runs: Mapping[UUID, ChargedRun]) -> None:
        self.group, self.largest, self._runs = group, largest, runs
        self.used = 0.0
        self.by_subject: dict[UUID | tuple[str, datetime], float] = {}
        self.history: list[tuple[datetime, float]] = []
        self._facts: dict[UUID | tuple[str, datetime], tuple[str, datetime]] = {}
        self._places = cache(self._places_between)

    def _places_between(self, run: UUID, first: int, end: int) -> list[int] | None:
        """Return the indices, in a run's charges, of promises under a range of policies; None if one is missing."""
        known = self._runs.get(run)
        epsilons = self.group.possible(first, end)
        places = [known.places.get((self.group.level, epsilon)) for epsilon in epsilons] if known else [None]
        if None in places:
            return None
        return [place for place in places if place is not None and place >= 0]  # below 0: not part of the run

    def bound(
        self, run: UUID, charge: float, charges: list[float], before: list[float], since: datetime, at: datetime
    ) -> float:
        """Return the largest possible charge of a batch to an account in the group, in μ².

        Args:
            charge: the batch's largest possible charge to anyone.
            charges: the largest charge to each group of the run's plan, from the register.
            before: the sum of the charges of the run's earlier batches to each group.
            since: when the run was approved. Some methods base charges on the promises at that time.
            at: when the batch was released.
        """
        places = self._places(run, *self.group.policies_between(since, at))
        if places is None or not charges:
            return charge
        # If a cost was reduced to what was left of the run's share, accounts with unused earlier shares may have been
        # charged more.
        allowed = self._runs[run].allowed
        return max(
            (charge if charges[p] >= (allowed[p] - before[p]) * (1 - _CUT) else charges[p] for p in places),
            default=0.0,
        )

    def raise_to(self, used: float, kind: str, run: UUID | None, at: datetime) -> None:
        """Record that a release may have brought an account in the group to ``used``."""
        if used <= self.used:
            return
        subject = run or (kind, at)
        self.by_subject[subject] = self.by_subject.get(subject, 0.0) + used - self.used
        self._facts[subject] = (kind, at)
        self.used = used
        self.history.append((at, used))

    def uses(self, cap: float, delta: float) -> list[BudgetUse]:
        found = []
        for subject, charge in self.by_subject.items():
            kind, at = self._facts[subject]
            run = None if isinstance(subject, tuple) else subject
            known = self._runs.get(run) if run else None
            title = known.title if known else str(Release.Kind(kind).label)
            found.append(BudgetUse(run, kind, title, charge, charge / cap, epsilon_of(charge, delta), at))
        return found
