"""Numbers of holders by state, now and over time; computing them takes as long for a thousand holders as for a million.

The last decisions are counted once, grouped by everything that determines their state, and stored with the number of
the last consent event included (:class:`consent.models.DecisionCount`). Later reads count only newer decisions. The
effects of a form, a day or a circumstance are applied to the stored counts, so nothing has to be counted again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple

import numpy as np
from django.core.cache import cache
from django.db.models import Case, CharField, Count, Exists, Max, OuterRef, Q, Subquery, When
from django.db.models.functions import Cast, Substr, Upper
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from consent.models import ConsentEvent, DataHolder, DecisionCount, Study
from consent.people.circumstances import Lapses
from consent.selectors import FEW_HOLDERS, GRANTING, LEVELS

#: Counts are stored again after this many new decisions. Until then, every read counts the new ones, so that pages need
#: not wait for a write lock.
FEW = 100
#: If there are more new decisions than this, all decisions are counted again.
MANY = 10_000
#: If a study has at least this many registered holders, they are counted at most once every REGISTERED_FOR seconds.
MANY_REGISTERED = 50_000
REGISTERED_FOR = 60
_COLUMNS = ("kind", "level", "form_id", "renew_by")
#: Largest number of days in the chart; a longer history is shown by evenly spaced days and the last day.
DAYS_SHOWN = 60
#: States of a holder after a decision.
STATES = (*LEVELS, "WITHDRAWN", "REFUSED")
_STATE = Case(When(level="", then=Upper("kind")), default="level")
#: Both databases write a time as text that begins with the day in UTC. Converting a million of them to dates would take
#: seconds.
_DAY = Substr(Cast("recorded_at", CharField()), 1, 10)


class LastDecision(NamedTuple):
    """The parts of a holder's last decision that determine the holder's state."""

    kind: str
    level: str
    form: int | None
    renew_by: datetime | None


def holders_per_level(study: Study) -> dict[str, int]:
    """Return numbers of holders by state: each level, WITHDRAWN, REFUSED, UNDECIDED, or SUSPENDED (must answer again).

    Numbers are exact, except that UNDECIDED may be a minute old in a large study.
    """
    now = timezone.now()
    decided = _decided(study)
    lapses = Lapses(study, now)
    counts = dict.fromkeys((*LEVELS, "WITHDRAWN", "REFUSED", "SUSPENDED"), 0)

    def add(last: LastDecision, number: int, suspended: bool) -> None:
        counts["SUSPENDED" if suspended else last.level or last.kind.upper()] += number

    for holder, answered_by, recorded_at, last in _last_of(study, lapses.holders):
        decided[last] -= 1
        lapse = lapses.of(holder, last.form, answered_by, recorded_at, last.renew_by)
        add(last, 1, last.kind in GRANTING and lapse is not None)
    for last, number in decided.items():
        add(last, number, last.kind in GRANTING and not lapses.counts(last.form, last.renew_by))
    counts["UNDECIDED"] = max(0, _registered(study) - sum(counts.values()))
    return counts


def _registered(study: Study) -> int:
    """Return the number of holders of a study, whether or not they have decided."""
    key = f"holders-registered-{study.pk}"
    number = cache.get(key)
    if number is None:
        number = DataHolder.objects.filter(study=study).count()
        if number >= MANY_REGISTERED:
            cache.set(key, number, REGISTERED_FOR)
    return number


def _decided(study: Study) -> Counter[LastDecision]:
    """Return the number of holders by their last decision."""
    kept = DecisionCount.objects.filter(study=study).first()
    counts = Counter({_from_json(row): row[-1] for row in kept.counts}) if kept else Counter()
    since = kept.sequence if kept else 0
    events = ConsentEvent.objects.filter(study=study, sequence__gt=since).order_by("-sequence")
    new = list(events.values_list("sequence", "holder_id", *_COLUMNS)[: MANY + 1])
    if not new:
        return counts
    sequence = new[0][0]
    if kept is None or len(new) > MANY:
        counts = _counted(study, sequence)
    else:
        last: dict[int, LastDecision] = {}
        for _number, holder, *columns in new:
            last.setdefault(holder, LastDecision(*columns))
        counts.update(last.values())
        counts.subtract(before for _holder, _by, _at, before in _last_of(study, last, since))
    if len(new) < FEW:
        return counts
    rows = [[*_to_json(each), number] for each, number in counts.items() if number]
    if kept is None:
        DecisionCount.objects.bulk_create(
            [DecisionCount(study=study, sequence=sequence, counts=rows)], ignore_conflicts=True
        )
    else:  # if two processes counted at the same time, the first one's numbers stay; both are right
        DecisionCount.objects.filter(study=study, sequence=since).update(sequence=sequence, counts=rows)
    return counts


def _counted(study: Study, sequence: int) -> Counter[LastDecision]:
    """Return the number of holders by their last decision up to ``sequence``, counted in one pass over decisions."""
    events = ConsentEvent.objects.filter(study=study, sequence__lte=sequence)
    ends = events.order_by().values("holder_id").annotate(last=Max("sequence")).values("last")
    numbers = ConsentEvent.objects.filter(study=study, sequence__in=ends).order_by().values_list(*_COLUMNS)
    return Counter({LastDecision(*columns): number for *columns, number in numbers.annotate(number=Count("pk"))})


def _last_of(
    study: Study, holders: Iterable[int], until: int | None = None
) -> Iterator[tuple[int, str, datetime, LastDecision]]:
    """Yield (id, answerer, time, decision) for the last decision of each given holder up to event ``until``, if any."""
    ids = list(holders)
    for start in range(0, len(ids), FEW_HOLDERS):
        some = ids[start : start + FEW_HOLDERS]
        known = ConsentEvent.objects.filter(holder=OuterRef("pk"))
        if until is not None:
            known = known.filter(sequence__lte=until)
        last = Subquery(known.order_by("-sequence").values("pk")[:1])
        ends = DataHolder.objects.filter(study=study, pk__in=some).annotate(last=last).values("last")
        events = ConsentEvent.objects.filter(pk__in=ends.order_by()).order_by()
        for holder, by, at, *columns in events.values_list("holder_id", "answered_by", "recorded_at", *_COLUMNS):
            yield holder, by, at, LastDecision(*columns)


def _to_json(decided: LastDecision) -> list[str | int | None]:
    kind, level, form, renew_by = decided
    return [kind, level, form, renew_by.isoformat() if renew_by else None]


def _from_json(row: list) -> LastDecision:
    kind, level, form, renew_by, _number = row
    return LastDecision(kind, level, form, parse_datetime(renew_by) if renew_by else None)


@dataclass(frozen=True)
class Overview:
    """Numbers of holders who were asked, who have a valid invitation, who have decided, and who are in each state.

    ``counts`` contains each of ``STATES`` and SUSPENDED (consents that are invalid until their holders answer a new
    form).
    """

    people: int
    invited: int
    decided: int
    counts: dict[str, int]


def recruitment_overview(study: Study) -> Overview:
    """Return exact numbers of a study's holders by state. Only for readers who may see group sizes."""
    counts = holders_per_level(study)
    decided = sum(count for state, count in counts.items() if state != "UNDECIDED")
    people = decided + counts.pop("UNDECIDED")
    invited = study.invitations.filter(Q(holder__isnull=False), revoked_at__isnull=True).count()
    return Overview(people, invited, decided, counts)


@dataclass(frozen=True)
class RecruitmentHistory:
    """Number of holders in each state over time.

    ``holders[d, s]`` (D, S) int64: holders in ``STATES[s]`` at the end of ``days[d]`` (UTC), a day with a decision. A
    consent is counted at its level from the decision on, even while a new form is waiting for an answer.
    """

    days: list[date]
    holders: np.ndarray

    @property
    def rows(self) -> list[tuple[date, list[int]]]:
        return list(zip(self.days, self.holders.tolist(), strict=True))


def recruitment_history(study: Study) -> RecruitmentHistory:
    """Return the daily number of holders in each state, counted in the database."""
    position = {state: place for place, state in enumerate(STATES)}
    change: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(STATES), dtype=np.int64))
    entered = ConsentEvent.objects.filter(study=study).order_by()
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    next_day = Subquery(later.order_by("sequence").annotate(day=_DAY).values("day")[:1])
    # A holder enters a state with a decision, and leaves it with the next.
    for sign, events, day in ((1, entered, _DAY), (-1, entered.filter(Exists(later)), next_day)):
        counted = events.annotate(day=day, state=_STATE).values_list("day", "state").annotate(holders=Count("pk"))
        for counted_day, state, holders in counted:
            change[counted_day][position[state]] += sign * holders
    days = sorted(change)
    in_state = np.cumsum([change[day] for day in days] or np.zeros((0, len(STATES))), axis=0, dtype=np.int64)
    drawn = np.linspace(0, max(len(days) - 1, 0), min(len(days), DAYS_SHOWN))
    places = np.unique(drawn.round().astype(int))
    return RecruitmentHistory([date.fromisoformat(days[place]) for place in places], in_state[places])
