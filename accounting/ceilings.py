"""The ceiling: the largest total charge, in μ², to one person's account across all studies of the installation.

In each study, the person may only use the part of the ceiling that remains after the largest possible charges of their
*other* studies, which are public (:func:`largest_charge`). A person's remaining budget therefore follows from the
studies that their account is linked to and from public numbers, never from their decisions, records or charges
elsewhere. So no release of one study reveals whether a person takes part in another.

In the study itself, a vote of teachers charges its open share without checking the ceiling again. All other charges in
the meantime must therefore leave enough of the ceiling for that share (:func:`share_reserved`). See "Several studies"
in docs/gaussian-accounts.md.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

import numpy as np
from django.conf import settings
from django.db.models import F, Q, QuerySet

from accounting.accounts import account_balances, balances_load, caps_largest, charges_of, floors
from accounting.caps import caps_of
from accounting.models import EndedReach, Release, ShareRecord
from accounting.restores import missing_rows
from accounting.shares import Share, opened_share, shares
from common.progress import counted
from consent.models import ConsentEvent, DataHolder, Study
from consent.selectors import GRANTING, epsilon_promised_largest

#: Largest number of holders to list in a query; if there are more, the query selects all holders of the study.
_FEW = 500
#: Relative tolerance for comparing sums of charges with the ceiling, to allow for rounding.
_ROUNDING = 1e-8


def largest_charge(study: Study) -> float:
    """Return an upper bound, in μ², on any account's charges in a study, given the shares opened so far.

    The bound is public: it is the opened share times the largest cap that any approved policy has ever promised.
    """
    # After a restore it is unknown which other shares have been opened.
    opened = 1.0 if missing_rows(study) else opened_share(study)
    # This cap includes policies that a restored database lacks.
    largest = max([epsilon_promised_largest(study), *(floor.epsilon for floor in floors(study))])
    return opened * float(caps_of(largest, study.delta)) if largest else 0.0


def ceilings_left(study: Study, holders: np.ndarray) -> np.ndarray:
    """Return the part of the ceiling that remains for a study after the possible charges in a person's other studies.

    Args:
        holders: (H,) ids of the study's holders.

    Returns:
        μ², (H,); infinite if there is no ceiling, and for holders without an account.
    """
    left = np.full(len(holders), np.inf)
    if settings.PERSON_CEILING is None:
        return left
    linked = DataHolder.objects.filter(study=study, user__isnull=False)
    if len(holders) <= _FEW:
        linked = linked.filter(pk__in=holders.tolist())
    elsewhere = _largest_charges_elsewhere(study, linked)
    people = linked.order_by("pk").values_list("pk", "user_id").iterator(chunk_size=10_000)
    own = np.fromiter(
        ((pk, settings.PERSON_CEILING - elsewhere.get(user, 0.0)) for pk, user in people),
        dtype=[("holder", np.int64), ("left", np.float64)],
    )
    own = own[np.isin(own["holder"], holders)]
    order = np.argsort(holders)
    left[order[np.searchsorted(holders, own["holder"], sorter=order)]] = np.maximum(own["left"], 0.0)
    return left


def ceiling_limits(study: Study, holders: np.ndarray, *, subject: UUID) -> np.ndarray:
    """Return the limits that the ceiling sets for accounts when ``subject`` charges them, regardless of their caps.

    Call this after reading consents, in the transaction that charges the accounts or opens the share to be charged.

    Args:
        holders: (H,) ids of the study's holders.

    Returns:
        μ², (H,): the ceiling minus possible charges in other studies and amounts reserved by other open shares of this
        study; infinite if there is no ceiling, and for holders without an account.
    """
    limits = ceilings_left(study, holders)
    under = np.flatnonzero(np.isfinite(limits))
    if len(under):
        for other, share in shares(study).items():
            if other != subject and share.is_open:
                limits[under] -= share_reserved(study, share, holders[under])
    return np.maximum(limits, 0.0)


def share_reserved(study: Study, share: Share, holders: np.ndarray) -> np.ndarray:
    """Return the amounts (H,) still chargeable to ``holders`` under an open share of their study, in μ². Secret."""
    charged = np.zeros(len(holders))
    for name in Release.objects.filter(study=study, run=share.subject).exclude(charges="").values_list("charges"):
        charged += balances_load(*name).of(holders)
    return np.maximum(share.granted * caps_largest(study, holders) - charged, 0.0)


def _largest_charges_elsewhere(study: Study, linked: QuerySet[DataHolder]) -> dict[int, float]:
    """Return, for each account that is also linked to other studies, an upper bound on the person's charges there."""
    totals: dict[int, float] = defaultdict(float)
    users = linked.values("user")
    totals.update(EndedReach.objects.filter(user__in=users).values_list("user_id", "mu_squared"))
    others = DataHolder.objects.exclude(study=study).filter(user__in=users).order_by("study_id", "pk")
    pairs = list(others.values_list("user_id", "study_id").iterator(chunk_size=10_000))
    studies = Study.objects.filter(pk__in={study_id for _user, study_id in pairs})
    largest = {each.pk: largest_charge(each) for each in studies}
    for user, study_id in pairs:
        totals[user] += largest[study_id]
    return totals


def largest_charge_record(study: Study) -> None:
    """Record a bound on a study's charges to each account before its links are deleted. The caller holds the lock."""
    if settings.PERSON_CEILING is None or not (charge := largest_charge(study)):
        return
    users = DataHolder.objects.filter(study=study, user__isnull=False).values_list("user_id", flat=True)
    EndedReach.objects.bulk_create([EndedReach(user_id=user) for user in users], ignore_conflicts=True)
    EndedReach.objects.filter(user__holdings__study=study).update(mu_squared=F("mu_squared") + charge)


def ceiling_faults(study: Study) -> Iterator[str]:
    """Yield messages about accounts charged for a release of any study although the person's ceiling did not allow it.

    Charges outside an open share of the study must leave enough of the ceiling for charges still possible under that
    share. Charges made before the ceiling was set or lowered are not faults. Nor are shares opened before an account
    was linked to both studies, because it was then unknown that these holders were the same person.
    """
    with_ceiling = Release.objects.filter(content__has_key="ceiling").values_list("content", flat=True)
    lowest = min((content["ceiling"] for content in with_ceiling), default=None)
    if lowest is None:
        return
    people = _people_above(study, lowest)
    if not people:
        return
    holders = {holder.pk: holder for own in people.values() for holder in own}
    ids = np.array(sorted(holders), dtype=np.int64)
    opened = dict(ShareRecord.objects.filter(kind=ShareRecord.Kind.OPENED).values_list("subject", "recorded_at"))
    charged = Release.objects.filter(study__in={holder.study_id for holder in holders.values()}).exclude(charges="")
    spent, in_force = np.zeros(len(ids)), _Ceilings()
    known = _Known(holders, ids)
    increases, reserved = _Increases(known), _Reserved(known)
    beyond = set()
    for release in charged.order_by("recorded_at", "pk").iterator(chunk_size=100):
        charges, ceiling = charges_of(release).of(ids), release.content.get("ceiling")
        spent += charges
        reserved.charge(release, charges)
        if ceiling is None:
            continue
        began = release.recorded_at if release.run is None else opened.get(release.run, release.recorded_at)
        # a ceiling set during a vote of teachers does not apply to that vote
        if release.kind in (Release.Kind.LABELS, Release.Kind.TALLIES):
            ceiling = max(ceiling, in_force.at(began, ceiling))
        known.advance(release.recorded_at)
        totals = spent + increases.at(release.recorded_at) + reserved.when_charged(release)
        for place in np.flatnonzero(charges):
            user = _account(holders[int(ids[place])])
            places = np.searchsorted(ids, sorted(holder.pk for holder in people[user]))
            linked = all(_linked(holders[int(ids[own])]) <= began for own in places[totals[places] > 0])
            if linked and totals[places].sum() > ceiling * (1 + _ROUNDING):
                beyond.add(user)
    if beyond:
        accounts = counted(len(beyond), "account", "accounts")
        yield f"These accounts are above their person's ceiling across all studies: {accounts}."


class _Ceilings:
    """Ceilings in force over time, as recorded with the charges of all studies."""

    def __init__(self) -> None:
        charged = Release.objects.exclude(charges="").exclude(kind=Release.Kind.GAP).order_by("recorded_at", "pk")
        self._noted = list(charged.values_list("recorded_at", "content__ceiling"))

    def at(self, moment: datetime, otherwise: float) -> float:
        """Return the ceiling at a moment: infinite if there was none, ``otherwise`` before the first charge."""
        place = bisect_right(self._noted, moment, key=lambda each: each[0])
        if not place:
            return otherwise
        ceiling = self._noted[place - 1][1]
        return math.inf if ceiling is None else float(ceiling)


class _Known:
    """Holders in several studies, with the largest cap that each was promised up to a given moment.

    Later increases are not included.
    """

    def __init__(self, holders: dict[int, DataHolder], ids: np.ndarray) -> None:
        self.ids, self.caps = ids, np.zeros(len(ids))
        self.study = np.array([holders[holder].study_id for holder in ids.tolist()])
        self.studies = {holder.study_id: holder.study for holder in holders.values()}
        events = ConsentEvent.objects.filter(study__in=self.studies, kind__in=GRANTING).order_by("-recorded_at")
        consents = events.select_related("policy", "study").iterator(chunk_size=10_000)
        # The latest event comes first, because items are taken from the end of the list.
        self._promised = [event for event in consents if event.holder_id in holders]

    def advance(self, moment: datetime) -> None:
        """Advance to a moment, which must not be earlier than in the previous call."""
        while self._promised and self._promised[-1].recorded_at <= moment:
            event = self._promised.pop()
            assert event.policy is not None, "every consent is given under a policy"
            place = np.searchsorted(self.ids, event.holder_id)
            cap = float(caps_of(event.policy.epsilon(event.level), event.study.delta))
            self.caps[place] = max(self.caps[place], cap)


class _Increases:
    """Possible increases of some accounts due to gaps after restores, based on the caps known so far."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self._floors = {pk: own for pk, study in known.studies.items() if (own := list(floors(study)))}

    def at(self, moment: datetime) -> np.ndarray:
        """Return the increases (H,) of the accounts at a given moment, in μ²."""
        known = self._known
        raised = np.zeros(len(known.ids))
        for study, own in self._floors.items():
            mine = known.study == study
            for floor in own:
                if floor.settled_at <= moment:
                    raised[mine] = np.maximum(raised[mine], floor.missing(known.ids[mine], known.caps[mine]))
        return raised


class _Reserved:
    """Amounts that may still be charged under other open shares of a study when a release is charged."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self._charged: dict[UUID, np.ndarray] = defaultdict(lambda: np.zeros(len(known.ids)))
        rows = ShareRecord.objects.filter(study__in=known.studies).exclude(kind=ShareRecord.Kind.GRANTED)
        self._opened: dict[UUID, ShareRecord] = {}
        self._settled: dict[UUID, datetime] = {}
        for row in rows.order_by("study", "sequence"):
            if row.kind == ShareRecord.Kind.OPENED:
                self._opened[row.subject] = row
            else:
                self._settled[row.subject] = row.recorded_at

    def charge(self, release: Release, charges: np.ndarray) -> None:
        """Add a release's charges to those already made under its share."""
        if release.run is not None:
            self._charged[release.run] += charges

    def when_charged(self, release: Release) -> np.ndarray:
        """Return the amounts (H,) reserved by the study's other open shares when a release was charged, in μ²."""
        reserved, moment = np.zeros(len(self._known.ids)), release.recorded_at
        there = [
            (subject, row)
            for subject, row in self._opened.items()
            if row.study_id == release.study_id
            and row.recorded_at <= moment
            and (subject not in self._settled or self._settled[subject] > moment)
        ]
        # A charge outside runs has just opened its own share, in the same transaction.
        own = release.run or (there[-1][0] if there else None)
        mine = self._known.study == release.study_id
        for subject, row in there:
            if subject != own:
                left = row.share * self._known.caps - self._charged[subject]
                reserved[mine] += np.maximum(left, 0.0)[mine]
        return reserved


def _people_above(study: Study, ceiling: float) -> dict[int, list[DataHolder]]:
    """Return account ids with their holders, for those of a study's people whose total may exceed ``ceiling``.

    The total consists of a person's charges in all studies and of the amounts reserved by open shares. Charges in a
    study that is locked after a restore are unknown, so they are included only once it is settled.
    """
    known = DataHolder.objects.filter(user__isnull=False)
    own = known.filter(Q(study=study) | Q(user__holdings__study=study)).distinct().order_by("study_id", "pk")
    people: dict[int, list[DataHolder]] = defaultdict(list)
    by_study: dict[int, list[DataHolder]] = defaultdict(list)
    for holder in own.select_related("study").iterator(chunk_size=10_000):
        people[_account(holder)].append(holder)
        by_study[holder.study_id].append(holder)
    totals: dict[int, float] = defaultdict(float)
    for holders in by_study.values():
        if missing_rows(holders[0].study):  # a backup may refer to an accounts file that has since been replaced
            continue
        owner, ids = holders[0].study, np.array([holder.pk for holder in holders], dtype=np.int64)
        spent = account_balances(owner, ids)
        for share in shares(owner).values():
            if share.is_open:
                spent = spent + share_reserved(owner, share, ids)
        for holder, charged in zip(holders, spent.tolist(), strict=True):
            totals[_account(holder)] += charged
    return {user: own for user, own in people.items() if totals[user] > ceiling * (1 + _ROUNDING)}


def _account(holder: DataHolder) -> int:
    assert holder.user_id is not None, "only holders with an account are checked"
    return holder.user_id


def _linked(holder: DataHolder) -> datetime:
    return holder.linked_at or holder.created_at
