"""Check of the ceiling: the charges of every person with an account, over all the studies of the account."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

import numpy as np
from django.db.models import Q

from accounting.accounts import Floor, accounts_stand, caps_largest, floors
from accounting.book import charges_of
from accounting.models import Release, ShareRecord
from accounting.restores import missing_rows
from common.counted import counted
from consent.models import DataHolder, Study

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
    spent: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    beyond, raised = set(), _Raised(list(holders.values()), ids)
    for release in charged.order_by("recorded_at", "pk").iterator(chunk_size=100):
        charges = charges_of(release).of(ids) + raised.by(release)
        for place in np.flatnonzero(charges):
            holder = holders[int(ids[place])]
            own = spent[_account(holder)]
            own[holder.pk] += float(charges[place])
            began = release.recorded_at if release.run is None else opened.get(release.run, release.recorded_at)
            ceiling = release.content.get("ceiling")
            linked = all(_linked(holders[pk]) <= began for pk in own)
            if ceiling is not None and linked and sum(own.values()) > ceiling * (1 + _ROUNDING):
                beyond.add(holder.user_id)
    if beyond:
        accounts = counted(len(beyond), "account", "accounts")
        yield f"Charged beyond the ceiling of their person over all studies: {accounts}."


class _Raised:
    """Amounts that gaps after restores add to some accounts, of any studies, one gap after the other."""

    def __init__(self, holders: list[DataHolder], ids: np.ndarray) -> None:
        studies = {holder.study_id: holder.study for holder in holders}
        self._ids, self._caps, self._so_far = ids, np.zeros(len(ids)), np.zeros(len(ids))
        study_of = {holder.pk: holder.study_id for holder in holders}
        self._study = np.array([study_of[holder] for holder in ids.tolist()])
        self._floors: dict[tuple[int, int], Floor] = {}
        for study in studies.values():
            known = {(study.pk, floor.sequence): floor for floor in floors(study)}
            if known:
                mine = self._study == study.pk
                self._caps[mine] = caps_largest(study, ids[mine])
                self._floors |= known

    def by(self, release: Release) -> np.ndarray:
        """Amounts that ``release`` adds, (H,) μ²: 0 unless it is a gap."""
        floor = self._floors.get((release.study_id, release.sequence))
        if floor is None:
            return np.zeros(len(self._ids))
        mine = self._study == release.study_id
        raised = np.where(mine, np.maximum(self._so_far, floor.missing(self._ids, self._caps)), self._so_far)
        added, self._so_far = raised - self._so_far, raised
        return added


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
