"""Circumstances of holders: who answers for each of them, and what ends a consent without anybody withdrawing it.

A consent that was given counts until one of these happens: a form that has to be answered is published, the time for
which it was given is over, someone else answers for the person than when it was given, or the person dies or can no
longer decide, where their study says that consents end then. What has ended so does not begin again by itself; whoever
answers decides anew.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import reduce
from operator import or_
from typing import Any

from dateutil.relativedelta import relativedelta
from django.db.models import Exists, Max, OuterRef, Q, QuerySet, TextChoices
from django.utils import timezone

from consent.models import (
    Afterwards,
    Answerer,
    Circumstance,
    ConsentEvent,
    ConsentForm,
    DataHolder,
    Renewal,
    Study,
    Validity,
)

#: So long before a consent ends people are reminded, and asked to decide again.
REMINDED = timedelta(days=30)
_KIND = Circumstance.Kind
#: Kinds after which somebody else than the person answers.
REPRESENTED = (_KIND.GUARDIAN, _KIND.PROXY)


class Lapse(TextChoices):
    """Reason why a consent that was given does not count."""

    DEATH = "death"
    INCAPACITY = "incapacity"
    ANSWERER = "answerer"
    EXPIRED = "expired"
    FORM = "form"


def day_begin(day: date) -> datetime:
    """Moment at which a day begins in the site's time zone, whatever zone the reader has."""
    return datetime.combine(day, time(), timezone.get_default_timezone())


def day_of(moment: datetime) -> date:
    """Day of a moment in the site's time zone."""
    return moment.astimezone(timezone.get_default_timezone()).date()


def renew_by(form: Validity | None, decided_on: date) -> datetime | None:
    """Moment from which a consent to ``form``, given on ``decided_on``, no longer counts; None: it counts for good."""
    if form is not None and form.valid_months:
        return day_begin(decided_on + relativedelta(months=form.valid_months) + timedelta(days=1))
    if form is not None and form.valid_until and form.valid_until < date.max:  # no day follows 31 December 9999
        return day_begin(form.valid_until + timedelta(days=1))
    return None


def counts_after(form: Validity | None, moment: datetime) -> bool:
    """Whether a consent to ``form`` that is given today counts from ``moment`` on, at least for a while."""
    ends = renew_by(form, day_of(timezone.now()))
    return ends is None or ends > moment


def ends_with_form() -> Q:
    """Condition of decisions that no new one outlasts: the form in force counts up to a fixed day, not after theirs."""
    newer = ConsentForm.objects.filter(study=OuterRef("study"), version__gt=OuterRef("version"))
    fixed = ConsentForm.objects.filter(~Exists(newer), valid_until__isnull=False)
    ends = ((form.study_id, renew_by(form, day_of(timezone.now()))) for form in fixed)
    return reduce(or_, (Q(study=study, renew_by__gte=end) for study, end in ends if end is not None), Q(pk__in=[]))


def last_day(event: ConsentEvent) -> date | None:
    """Last day on which a consent counts by the form that was answered; None: it counts for good."""
    return day_of(event.renew_by - timedelta(microseconds=1)) if event.renew_by is not None else None


@dataclass(frozen=True)
class Answering:
    """Role of whoever answers for a holder, and the first day on which they no longer do; None: for good.

    ``kind`` is the last circumstance on record; ``consents``: whether anybody can give consent at all.
    """

    role: Answerer = Answerer.PERSON
    until: date | None = None
    kind: str = _KIND.PERSON

    @property
    def consents(self) -> bool:
        return self.kind not in (_KIND.INCAPABLE, _KIND.DIED)

    @property
    def represents(self) -> bool:
        """Whether someone else answers for the person."""
        return self.role != Answerer.PERSON


def answering(kind: str, until: date | None, on: date) -> Answering:
    """Answerer of a day, by the last circumstance on record."""
    if kind in REPRESENTED and (until is None or on < until):
        return Answering(Answerer(kind), until, kind)
    return Answering(kind=_KIND.PERSON if kind in REPRESENTED else kind)


def circumstance_last(holder: DataHolder) -> Circumstance | None:
    """Last circumstance on record of a holder, or None."""
    return Circumstance.objects.filter(holder=holder).order_by("-sequence").first()


def answering_for(holder: DataHolder, on: date | None = None) -> Answering:
    """Answerer for a holder on a day (default: today), by what is on record now."""
    last = circumstance_last(holder) if holder.pk else None
    return answering(last.kind, last.until, on or day_of(timezone.now())) if last else Answering()


def time_is_over(at: datetime) -> Q:
    """Condition of circumstances whose guardian or proxy no longer answers at ``at``."""
    return Q(kind__in=REPRESENTED, until__lte=day_of(at))


def required_form_version(study: Study, at: datetime | None = None) -> int:
    """Oldest version with which a consent counts at ``at`` (default: now): the newest with a required renewal, or 0."""
    required = ConsentForm.objects.filter(study=study, renewal=Renewal.REQUIRED, published_at__lte=at or timezone.now())
    return required.aggregate(newest=Max("version"))["newest"] or 0


def forms_that_count(study: Study, at: datetime) -> set[int]:
    """Primary keys of the versions with which a consent counts at ``at``."""
    forms = ConsentForm.objects.filter(study=study).order_by().values_list(*_FORM_COLUMNS)
    return _that_count(list(forms), at)


_FORM_COLUMNS = ("pk", "version", "renewal", "published_at")


def _that_count(rows: list[Any], at: datetime) -> set[int]:
    """Primary keys of those of all versions, with ``_FORM_COLUMNS``, with which a consent counts at ``at``."""
    required = max((row[1] for row in rows if row[2] == Renewal.REQUIRED and row[3] <= at), default=0)
    return {row[0] for row in rows if row[1] >= required}


class Lapses:
    """Reasons why consents of a study do not count at ``at``; one query, whatever the number of consents.

    Args:
        at: the moment.
        among: ids of the holders who will be asked about; everybody by default.
    """

    def __init__(self, study: Study, at: datetime, among: Iterable[int] | None = None) -> None:
        self._study, self._at = study, at
        # What a person was told when they decided holds for their consent, whatever later versions say.
        afterwards = ("facts__after_death", "facts__after_incapacity")
        forms = list(ConsentForm.objects.filter(study=study).order_by().values_list(*_FORM_COLUMNS, *afterwards))
        self._forms = _that_count(forms, at)
        self._afterwards: dict[int | None, tuple[str, str]] = {row[0]: (row[4], row[5]) for row in forms}
        # By time: what a restored backup had forgotten is recorded after what is newer.
        circumstances = Circumstance.objects.filter(study=study, recorded_at__lte=at).order_by(
            "recorded_at", "sequence"
        )
        if among is not None:
            circumstances = circumstances.filter(holder_id__in=list(among))
        self._of: dict[int, list[tuple[str, date | None, datetime]]] = defaultdict(list)
        rows = circumstances.values_list("holder_id", "kind", "until", "recorded_at")
        for holder, kind, until, recorded_at in rows.iterator(chunk_size=10_000):
            self._of[holder].append((kind, until, recorded_at))

    @property
    def holders(self) -> list[int]:
        """Ids of the holders of whom a circumstance is on record."""
        return list(self._of)

    def of(
        self, holder: int, form: int | None, answered_by: str, recorded_at: datetime, renew_by: datetime | None
    ) -> Lapse | None:
        """Reason why this consent does not count; None where it counts.

        Args:
            holder: id of the holder.
            form: id of the version that was answered.
            answered_by: the role of whoever gave it.
            renew_by: see :class:`consent.models.ConsentEvent`.
        """
        if holder in self._of:
            lapse = self._by_circumstance(self._of[holder], form, answered_by, recorded_at)
            if lapse is not None:
                return lapse
        return self._by_time_or_form(form, renew_by)

    def counts(self, form: int | None, renew_by: datetime | None) -> bool:
        """Whether consents count that were given to ``form`` until ``renew_by``, where no circumstance is on record."""
        return self._by_time_or_form(form, renew_by) is None

    def _by_time_or_form(self, form: int | None, renew_by: datetime | None) -> Lapse | None:
        if renew_by is not None and renew_by <= self._at:
            return Lapse.EXPIRED
        return None if form in self._forms else Lapse.FORM

    def _by_circumstance(
        self,
        history: list[tuple[str, date | None, datetime]],
        form: int | None,
        answered_by: str,
        recorded_at: datetime,
    ) -> Lapse | None:
        # Those before the consent do not matter, but the last of them, which says who could give it.
        since = bisect_left(history, recorded_at, key=lambda each: each[2])
        for place in range(max(since - 1, 0), len(history)):
            kind, until, _recorded_at = history[place]
            following = history[place + 1][2] if place + 1 < len(history) else self._at
            if place >= since:
                lapse = self._ended_by(kind, form, answered_by)
            else:
                lapse = _not_theirs(answering(kind, until, day_of(recorded_at)), answered_by)
            if lapse is None and answered_by != Answerer.PERSON and until is not None:
                lapse = Lapse.ANSWERER if day_begin(until) <= min(following, self._at) else None
            if lapse is not None:
                # Of what was recorded by mistake, or is over, nothing is told but that somebody has to decide again.
                return lapse if place + 1 == len(history) else Lapse.ANSWERER
        return None

    def _ended_by(self, kind: str, form: int | None, answered_by: str) -> Lapse | None:
        """Reason why a consent to ``form`` that ``answered_by`` gave before a circumstance ends with it."""
        ends = Afterwards.ENDS
        after_death, after_incapacity = self._afterwards.get(form, (ends, ends))
        if kind == _KIND.DIED:
            return Lapse.DEATH if after_death == ends else None
        if kind == _KIND.INCAPABLE:
            return Lapse.INCAPACITY if after_incapacity == ends else None
        if kind == _KIND.PROXY and answered_by == Answerer.PERSON:
            # What the person decided while they could is theirs, and stands if the study says so.
            return Lapse.ANSWERER if after_incapacity == ends else None
        return None if kind == answered_by else Lapse.ANSWERER


def _not_theirs(answers: Answering, answered_by: str) -> Lapse | None:
    """Reason why a consent never counted that ``answered_by`` gave where ``answers`` was on record; None where it did.

    A restored backup takes consents by whom it remembers to answer, until it is told who does.
    """
    if not answers.consents:
        return Lapse.DEATH if answers.kind == _KIND.DIED else Lapse.INCAPACITY
    return None if answers.role == answered_by else Lapse.ANSWERER


def circumstances_last(*studies: Study) -> QuerySet[Circumstance]:
    """Last circumstance of each holder of some studies of whom one is on record."""
    return _last().filter(study__in=studies)


def circumstances_over(at: datetime) -> QuerySet[Circumstance]:
    """Last circumstances of holders whose guardian or proxy no longer answers at ``at``."""
    return _last().filter(time_is_over(at))


def _last() -> QuerySet[Circumstance]:
    later = Circumstance.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    return Circumstance.objects.filter(~Exists(later)).select_related("holder")
