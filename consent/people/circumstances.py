"""Holders' circumstances: the person who answers for each holder, and events that end a consent without a withdrawal.

Consent is valid until one of these happens: a form that requires a new answer is published, the consent's validity
expires, another person starts to answer, or the person dies or can no longer decide and their study ends consent in
that case. Consent that has ended in this way does not become valid again automatically; the person who answers has to
decide again.
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

#: Time before the end of a consent at which people are reminded and asked to decide again.
REMINDED = timedelta(days=30)
_KIND = Circumstance.Kind
#: Kinds of circumstance after which another person answers for the holder.
REPRESENTED = (_KIND.GUARDIAN, _KIND.PROXY)


class Lapse(TextChoices):
    """Reason why a consent that was given is not valid."""

    DEATH = "death"
    INCAPACITY = "incapacity"
    ANSWERER = "answerer"
    EXPIRED = "expired"
    FORM = "form"


def day_begin(day: date) -> datetime:
    """Return the time at which a day begins in the site's time zone, regardless of the reader's time zone."""
    return datetime.combine(day, time(), timezone.get_default_timezone())


def day_of(moment: datetime) -> date:
    """Return the date of a time in the site's time zone."""
    return moment.astimezone(timezone.get_default_timezone()).date()


def renew_by(form: Validity | None, decided_on: date) -> datetime | None:
    """Return the time at which a consent to ``form`` given on ``decided_on`` expires (None if it does not)."""
    if form is not None and form.valid_months:
        return day_begin(decided_on + relativedelta(months=form.valid_months) + timedelta(days=1))
    if form is not None and form.valid_until and form.valid_until < date.max:  # there is no day after 31 December 9999
        return day_begin(form.valid_until + timedelta(days=1))
    return None


def is_valid_after(form: Validity | None, moment: datetime) -> bool:
    """Return whether a consent to ``form`` given today would be valid at ``moment`` or later."""
    ends = renew_by(form, day_of(timezone.now()))
    return ends is None or ends > moment


def ends_with_form() -> Q:
    """Return the condition for decisions that would not last longer if renewed, because the form's end is fixed."""
    newer = ConsentForm.objects.filter(study=OuterRef("study"), version__gt=OuterRef("version"))
    fixed = ConsentForm.objects.filter(~Exists(newer), valid_until__isnull=False)
    fixed = fixed.only("study", "valid_months", "valid_until")
    ends = ((form.study_id, renew_by(form, day_of(timezone.now()))) for form in fixed)
    return reduce(or_, (Q(study=study, renew_by__gte=end) for study, end in ends if end is not None), Q(pk__in=[]))


def last_day(event: ConsentEvent) -> date | None:
    """Return the last day on which a consent is valid according to its form (None if the form sets no limit)."""
    return day_of(event.renew_by - timedelta(microseconds=1)) if event.renew_by is not None else None


@dataclass(frozen=True)
class Answering:
    """Role of the person who answers for a holder, and the first day on which another person does (None if unlimited).

    ``kind`` is the last recorded circumstance; ``consents`` shows whether anyone can consent at all.
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
    """Return the person who answers on a day, given the last recorded circumstance."""
    if kind in REPRESENTED and (until is None or on < until):
        return Answering(Answerer(kind), until, kind)
    return Answering(kind=_KIND.PERSON if kind in REPRESENTED else kind)


def circumstance_last(holder: DataHolder) -> Circumstance | None:
    """Return a holder's last recorded circumstance, or None."""
    return Circumstance.objects.filter(holder=holder).order_by("-sequence").first()


def answering_for(holder: DataHolder) -> Answering:
    """Return the person who answers for a holder today."""
    last = circumstance_last(holder) if holder.pk else None
    return answering(last.kind, last.until, day_of(timezone.now())) if last else Answering()


def authority_has_ended(at: datetime) -> Q:
    """Return the condition for circumstances with a guardian or proxy who no longer answers at ``at``."""
    return Q(kind__in=REPRESENTED, until__lte=day_of(at))


def required_form_version(study: Study, at: datetime | None = None) -> int:
    """Return the oldest version valid at ``at`` (default: now): the newest that required a renewal, or 0."""
    required = ConsentForm.objects.filter(study=study, renewal=Renewal.REQUIRED, published_at__lte=at or timezone.now())
    return required.aggregate(newest=Max("version"))["newest"] or 0


def valid_forms(study: Study, at: datetime) -> set[int]:
    """Return the primary keys of the versions for which a consent is valid at ``at``."""
    forms = ConsentForm.objects.filter(study=study).order_by().values_list(*_FORM_COLUMNS)
    return _valid_versions(list(forms), at)


_FORM_COLUMNS = ("pk", "version", "renewal", "published_at")


def _valid_versions(rows: list[Any], at: datetime) -> set[int]:
    """Return the primary keys of the versions valid at ``at``, given the ``_FORM_COLUMNS`` of all versions."""
    required = max((row[1] for row in rows if row[2] == Renewal.REQUIRED and row[3] <= at), default=0)
    return {row[0] for row in rows if row[1] >= required}


class Lapses:
    """Reasons why consents of a study are not valid at ``at``, read with one query for any number of consents.

    Args:
        at: the time.
        among: ids of the holders who will be looked up; all by default.
    """

    def __init__(self, study: Study, at: datetime, among: Iterable[int] | None = None) -> None:
        self._study, self._at = study, at
        # A consent is determined by the information that the person received when they decided, not by later versions.
        afterwards = ("facts__after_death", "facts__after_incapacity")
        forms = list(ConsentForm.objects.filter(study=study).order_by().values_list(*_FORM_COLUMNS, *afterwards))
        self._forms = _valid_versions(forms, at)
        self._afterwards: dict[int | None, tuple[str, str]] = {row[0]: (row[4], row[5]) for row in forms}
        # Ordered by time, because circumstances lost in a restore are recorded again after newer ones.
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
        """Return the ids of the holders who have a recorded circumstance."""
        return list(self._of)

    def of(
        self, holder: int, form: int | None, answered_by: str, recorded_at: datetime, renew_by: datetime | None
    ) -> Lapse | None:
        """Return the reason why this consent is not valid, or None if it is.

        Args:
            holder: id of the holder.
            form: id of the version that was answered.
            answered_by: the role of the person who gave it.
            renew_by: see :class:`consent.models.ConsentEvent`.
        """
        if holder in self._of:
            lapse = self._by_circumstance(self._of[holder], form, answered_by, recorded_at)
            if lapse is not None:
                return lapse
        return self._by_time_or_form(form, renew_by)

    def counts(self, form: int | None, renew_by: datetime | None) -> bool:
        """Return whether a consent to ``form`` that expires at ``renew_by`` is valid, ignoring circumstances."""
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
        # Circumstances before the consent do not matter, except the last one, which shows who could consent.
        since = bisect_left(history, recorded_at, key=lambda each: each[2])
        for place in range(max(since - 1, 0), len(history)):
            kind, until, _recorded_at = history[place]
            following = history[place + 1][2] if place + 1 < len(history) else self._at
            if place >= since:
                lapse = self._ended_by(kind, form, answered_by)
            else:
                lapse = _lapse_of_answerer(answering(kind, until, day_of(recorded_at)), answered_by)
            if lapse is None and answered_by != Answerer.PERSON and until is not None:
                lapse = Lapse.ANSWERER if day_begin(until) <= min(following, self._at) else None
            if lapse is not None:
                # If circumstances were recorded by mistake or no longer apply, the message only says that someone has
                # to decide again.
                return lapse if place + 1 == len(history) else Lapse.ANSWERER
        return None

    def _ended_by(self, kind: str, form: int | None, answered_by: str) -> Lapse | None:
        """Return the reason why a circumstance ends the consent to ``form`` that ``answered_by`` gave before it."""
        ends = Afterwards.ENDS
        after_death, after_incapacity = self._afterwards.get(form, (ends, ends))
        if kind == _KIND.DIED:
            return Lapse.DEATH if after_death == ends else None
        if kind == _KIND.INCAPABLE:
            return Lapse.INCAPACITY if after_incapacity == ends else None
        if kind == _KIND.PROXY and answered_by == Answerer.PERSON:
            # A decision that the person made while able to decide stays valid if the study says so.
            return Lapse.ANSWERER if after_incapacity == ends else None
        return None if kind == answered_by else Lapse.ANSWERER


def _lapse_of_answerer(answers: Answering, answered_by: str) -> Lapse | None:
    """Return why a consent was invalid; None if it was valid.

    ``answered_by`` gave the consent, and ``answers`` was recorded at that time. Records restored from a backup may be
    outdated. Until they are corrected, the site accepts consents from the person who answers according to them.
    """
    if not answers.consents:
        return Lapse.DEATH if answers.kind == _KIND.DIED else Lapse.INCAPACITY
    return None if answers.role == answered_by else Lapse.ANSWERER


def circumstances_last(*studies: Study) -> QuerySet[Circumstance]:
    """Return the last circumstance of each holder in the given studies. Holders without a circumstance are omitted."""
    return _last().filter(study__in=studies)


def circumstances_ended(at: datetime) -> QuerySet[Circumstance]:
    """Return the last circumstance of each holder whose guardian or proxy no longer answers at ``at``."""
    return _last().filter(authority_has_ended(at))


def _last() -> QuerySet[Circumstance]:
    later = Circumstance.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    return Circumstance.objects.filter(~Exists(later)).select_related("holder")
