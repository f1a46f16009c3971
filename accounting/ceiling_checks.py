"""Check of the ceiling: the charges of every person with an account, over all the studies of the account."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

import numpy as np
from django.db.models import Q

from accounting.accounts import accounts_stand, floors
from accounting.book import charges_of
from accounting.caps import caps_of
from accounting.models import Release, ShareRecord
from accounting.restores import missing_rows
from common.counted import counted
from consent.models import ConsentEvent, DataHolder, Study
from consent.selectors import GRANTING

#: What sums of charges may exceed the ceiling by: each is tested against its own limit up to the rounding of sums.
_ROUNDING = 1e-8


def ceiling_faults(study: Study) -> Iterator[str]:
    """Accounts that were charged for a release of any study although their person's ceiling was reached.

    What was charged before the ceiling was set or lowered stays, and so does what was opened before an account was
    linked to both studies: nobody knew then that these holders are one person.
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
    spent, raised, in_force = np.zeros(len(ids)), _Raised(holders, ids), _Ceilings()
    beyond = set()
    for release in charged.order_by("recorded_at", "pk").iterator(chunk_size=100):
        charges, ceiling = charges_of(release).of(ids), release.content.get("ceiling")
        spent += charges
        if ceiling is None:
            continue
        began = release.recorded_at if release.run is None else opened.get(release.run, release.recorded_at)
        if release.kind == Release.Kind.LABELS:  # nobody falls silent in a vote of teachers, whatever is set meanwhile
            ceiling = max(ceiling, in_force.at(began, ceiling))
        stands = spent + raised.at(release.recorded_at)
        for place in np.flatnonzero(charges):
            user = _account(holders[int(ids[place])])
            places = np.searchsorted(ids, sorted(holder.pk for holder in people[user]))
            linked = all(_linked(holders[int(ids[own])]) <= began for own in places[stands[places] > 0])
            if linked and stands[places].sum() > ceiling * (1 + _ROUNDING):
                beyond.add(user)
    if beyond:
        accounts = counted(len(beyond), "account", "accounts")
        yield f"Charged beyond the ceiling of their person over all studies: {accounts}."


class _Ceilings:
    """Ceilings that were in force by the charges of all studies that note them."""

    def __init__(self) -> None:
        charged = Release.objects.exclude(charges="").exclude(kind=Release.Kind.GAP).order_by("recorded_at", "pk")
        self._noted = list(charged.values_list("recorded_at", "content__ceiling"))

    def at(self, moment: datetime, otherwise: float) -> float:
        """The ceiling at a moment, infinite if there was none; ``otherwise`` where nothing was charged before."""
        place = bisect_right(self._noted, moment, key=lambda each: each[0])
        if not place:
            return otherwise
        ceiling = self._noted[place - 1][1]
        return math.inf if ceiling is None else float(ceiling)


class _Raised:
    """Amounts by which gaps after restores raise some accounts, of any studies, at one moment after the other.

    By what their holders had been promised until then: what raises an account later was not known.
    """

    def __init__(self, holders: dict[int, DataHolder], ids: np.ndarray) -> None:
        self._ids, self._caps = ids, np.zeros(len(ids))
        self._study = np.array([holders[holder].study_id for holder in ids.tolist()])
        studies = {holder.study_id: holder.study for holder in holders.values()}
        self._floors = {pk: known for pk, study in studies.items() if (known := list(floors(study)))}
        events = ConsentEvent.objects.filter(study__in=self._floors, kind__in=GRANTING).order_by("-recorded_at")
        consents = events.select_related("policy", "study").iterator(chunk_size=10_000)
        # The latest one first: the end of the list is taken.
        self._promised = [event for event in consents if event.holder_id in holders]

    def at(self, moment: datetime) -> np.ndarray:
        """Amounts at a moment, not before that of the last call, (H,) μ²."""
        while self._promised and self._promised[-1].recorded_at <= moment:
            event = self._promised.pop()
            assert event.policy is not None, "who gives consent does so under a policy"
            place = np.searchsorted(self._ids, event.holder_id)
            cap = float(caps_of(event.policy.epsilon(event.level), event.study.delta))
            self._caps[place] = max(self._caps[place], cap)
        raised = np.zeros(len(self._ids))
        for study, known in self._floors.items():
            mine = self._study == study
            for floor in known:
                if floor.settled_at <= moment:
                    raised[mine] = np.maximum(raised[mine], floor.missing(self._ids[mine], self._caps[mine]))
        return raised


def _people_above(study: Study, ceiling: float) -> dict[int, list[DataHolder]]:
    """Account → its holders, of people of a study who have been charged more than ``ceiling`` over all studies.

    What they were charged in a study that a restore has locked counts once that is settled: until then nobody knows.
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
        if missing_rows(holders[0].study):  # the backup may name a file of accounts that was replaced since
            continue
        spent = accounts_stand(holders[0].study, np.array([holder.pk for holder in holders], dtype=np.int64))
        for holder, charged in zip(holders, spent.tolist(), strict=True):
            totals[_account(holder)] += charged
    return {user: own for user, own in people.items() if totals[user] > ceiling * (1 + _ROUNDING)}


def _account(holder: DataHolder) -> int:
    assert holder.user_id is not None, "only holders with an account are looked at"
    return holder.user_id


def _linked(holder: DataHolder) -> datetime:
    return holder.linked_at or holder.created_at
