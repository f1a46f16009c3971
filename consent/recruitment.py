"""Recruitment statistics: invited, decided, and the holders of each state over time."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date

import numpy as np
from django.db.models import Case, CharField, Count, Exists, OuterRef, Q, Subquery, When
from django.db.models.functions import Cast, Substr, Upper

from consent.counts import holders_per_level
from consent.models import ConsentEvent, Study
from consent.selectors import LEVELS

#: So many days are drawn at most; of a longer history, evenly spaced ones and the last.
DAYS_SHOWN = 60
#: After a decision a holder is in one of these.
STATES = (*LEVELS, "WITHDRAWN", "REFUSED")
_STATE = Case(When(level="", then=Upper("kind")), default="level")
#: In both databases a moment reads as its day and time in UTC; as dates, a million moments take seconds.
_DAY = Substr(Cast("recorded_at", CharField()), 1, 10)


@dataclass(frozen=True)
class Overview:
    """Numbers of holders asked, with a valid invitation, decided, and in each state.

    ``counts`` has each of ``STATES`` and SUSPENDED: consents that do not count until their holders answer a new form.
    """

    people: int
    invited: int
    decided: int
    counts: dict[str, int]


def recruitment_overview(study: Study) -> Overview:
    """Current exact numbers of a study's holders by state: for those who may see group sizes, and for nobody else."""
    counts = holders_per_level(study)
    decided = sum(count for state, count in counts.items() if state != "UNDECIDED")
    people = decided + counts.pop("UNDECIDED")
    invited = study.invitations.filter(Q(holder__isnull=False), revoked_at__isnull=True).count()
    return Overview(people, invited, decided, counts)


@dataclass(frozen=True)
class RecruitmentHistory:
    """Number of holders in each state over time.

    ``holders[d, s]`` (D, S) int64: holders in ``STATES[s]`` at the end of ``days[d]`` (UTC), a day with a decision. A
    consent counts at its level from the decision on, also while a new form waits to be answered.
    """

    days: list[date]
    holders: np.ndarray

    @property
    def rows(self) -> list[tuple[date, list[int]]]:
        return list(zip(self.days, self.holders.tolist(), strict=True))


def recruitment_history(study: Study) -> RecruitmentHistory:
    """Number of holders in each state day by day, counted in the database."""
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
