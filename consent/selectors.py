"""Every read of the consent app that joins or aggregates."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import numpy as np
from django.conf import settings
from django.db import connection
from django.db.models import Case, Count, Exists, Max, OuterRef, Q, QuerySet, Value, When
from django.db.models.expressions import Combinable
from django.utils import timezone

from consent.models import ConsentEvent, ConsentForm, ConsentFormDraft, DataHolder, EpsilonPolicy, Level, Renewal, Study

#: The position of each level in a snapshot's ``levels``.
LEVELS = tuple(Level.values)
#: The kinds of event after which a holder takes part.
GRANTING = (ConsentEvent.Kind.GIVEN, ConsentEvent.Kind.CHANGED)


def consent_form_in_force(study: Study) -> ConsentForm | None:
    """The newest published version."""
    return ConsentForm.objects.filter(study=study).first()


def consent_form_languages(study: Study) -> list[str]:
    """In which languages the next version is written: the site's first, those promised, and those that have a text."""
    form, draft = consent_form_in_force(study), ConsentFormDraft.objects.filter(study=study).first()
    written = [*(form.texts if form else ()), *(draft.texts if draft else ())]
    return list(dict.fromkeys([settings.LANGUAGE_CODE, *study.languages, *written]))


def consent_form_required(study: Study, at: datetime | None = None) -> int:
    """The version below which no consent counts at ``at`` (now): the newest that had to be answered anew, or 0."""
    required = ConsentForm.objects.filter(study=study, renewal=Renewal.REQUIRED, published_at__lte=at or timezone.now())
    return required.aggregate(newest=Max("version"))["newest"] or 0


def forms_that_count(study: Study, at: datetime) -> set[int]:
    """The versions with which a consent counts at ``at``."""
    forms = ConsentForm.objects.filter(study=study, version__gte=consent_form_required(study, at))
    return set(forms.values_list("pk", flat=True))


@dataclass(frozen=True)
class RenewalAsked:
    """A holder who takes part is asked again: ``form`` is what they are asked to read.

    ``counts``: does their consent to the earlier version count until they answer?
    """

    form: ConsentForm
    counts: bool


def renewal_asked(holder: DataHolder) -> RenewalAsked | None:
    """Is the holder asked to decide anew, because a form since their consent says so? None where nothing is asked."""
    current = consent_current(holder)
    if current is None or not current.grants or current.form is None:
        return None
    later = list(ConsentForm.objects.filter(study_id=holder.study_id, version__gt=current.form.version))
    decisions = {form.renewal for form in later} - {Renewal.NOT_ASKED}
    return RenewalAsked(form=later[0], counts=Renewal.REQUIRED not in decisions) if decisions else None


def policies_in_force(study: Study, at: datetime | None = None) -> QuerySet[EpsilonPolicy]:
    """The approved policies that are or were in force by ``at`` (now), the current one last."""
    return EpsilonPolicy.objects.filter(study=study, approval__effective_from__lte=at or timezone.now()).order_by(
        "approval__effective_from", "version"
    )


def policy_in_force(study: Study, at: datetime | None = None) -> EpsilonPolicy | None:
    return policies_in_force(study, at).last()


def consent_current(holder: DataHolder) -> ConsentEvent | None:
    """The holder's last event: what stands now."""
    return ConsentEvent.objects.filter(holder=holder).order_by("-sequence").first()


class EpsilonRule:
    """Rule 5 of the design: the ε of a consent, given every policy since.

    It is the ε that the level had when consent was given, or the smallest that any policy effective since then gives
    the level: a later, smaller ε applies at once; a larger one only after a new consent.
    """

    def __init__(self, study: Study, at: datetime) -> None:
        policies = list(policies_in_force(study, at).select_related("approval"))
        self._policies = policies
        self._by_id = {policy.pk: policy for policy in policies}
        self._dates = [policy.approval.effective_from for policy in policies]
        self._smallest = cache(self._smallest_since)

    def _smallest_since(self, policy_id: int, level: str, position: int) -> float:
        agreed = self._by_id[policy_id].epsilon(level)
        return min([agreed, *(policy.epsilon(level) for policy in self._policies[position:])])

    def epsilon(self, policy_id: int, level: str, consented_at: datetime) -> float:
        return self.epsilon_after(policy_id, level, bisect_right(self._dates, consented_at))

    def epsilon_after(self, policy_id: int, level: str, position: int) -> float:
        """The ε of a consent before which ``position`` of the policies had taken effect."""
        return self._smallest(policy_id, level, position)

    def policies_before(self) -> Combinable:
        """How many of the policies had taken effect before a consent event was recorded, for a query."""
        effective = [Case(When(recorded_at__gte=date, then=1), default=0) for date in self._dates]
        return sum(effective, start=Value(0))


def epsilons_since(study: Study, since: datetime) -> dict[str, float]:
    """Level → the smallest ε that a policy effective after ``since`` gives it; infinity if there is none."""
    later = list(policies_in_force(study).filter(approval__effective_from__gt=since))
    return {level: min((policy.epsilon(level) for policy in later), default=math.inf) for level in LEVELS}


@dataclass(frozen=True)
class Snapshot:
    """Who takes part in a study at a moment.

    ``holders`` (H,) int64 are holder ids in rising order, ``levels`` (H,) int8 positions in ``LEVELS``, ``epsilons``
    (H,) float64 their ε budgets; ``sequence`` is the last consent event looked at.
    """

    study_id: int
    at: datetime
    sequence: int
    holders: np.ndarray
    levels: np.ndarray
    epsilons: np.ndarray

    def __len__(self) -> int:
        return len(self.holders)

    def of(self, holders: Iterable[int] | np.ndarray) -> "Snapshot":
        """The part of the snapshot that concerns ``holders``."""
        keep = np.isin(self.holders, np.asarray(list(holders), dtype=np.int64))
        return Snapshot(
            self.study_id, self.at, self.sequence, self.holders[keep], self.levels[keep], self.epsilons[keep]
        )


def _last_events(study: Study, at: datetime) -> QuerySet[ConsentEvent]:
    """The last event of each holder by ``at``: one look into an index for each event, however the database plans."""
    events = ConsentEvent.objects.filter(study=study, recorded_at__lte=at).order_by()
    later = ConsentEvent.objects.filter(
        holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"), recorded_at__lte=at
    )
    return events.filter(~Exists(later))


def last_events(study: Study, at: datetime) -> QuerySet[ConsentEvent]:
    """The last event of each holder by ``at``, of everyone at once: PostgreSQL walks along one index.

    To be read whole: a filter on it would look away from events, not from holders.
    """
    if not connection.features.can_distinct_on_fields:
        return _last_events(study, at)
    events = ConsentEvent.objects.filter(study=study, recorded_at__lte=at)
    return events.order_by("holder_id", "-sequence").distinct("holder_id")


#: Up to how many holders are asked for by name; for more, everyone is read.
FEW_HOLDERS = 500


def consent_snapshot(study: Study, at: datetime | None = None, *, among: np.ndarray | None = None) -> Snapshot:
    """Who takes part at ``at`` (now), at which level and ε: the only way in which training learns it.

    ``among`` (A,) ids narrows it to some holders; for a few of them it costs next to nothing.
    Memory: 17 bytes a holder, whatever their history.
    """
    at = at or timezone.now()
    rule, forms = EpsilonRule(study, at), forms_that_count(study, at)
    events = ConsentEvent.objects.filter(study=study, recorded_at__lte=at)
    sequence = events.aggregate(last=Max("sequence"))["last"] or 0
    if among is not None and len(among) <= FEW_HOLDERS:
        last = _last_events(study, at).filter(holder_id__in=among.tolist())
    else:
        last = last_events(study, at)
    decisions = last.annotate(policies_before=rule.policies_before()).values_list(
        "holder_id", "kind", "form_id", "level", "policy_id", "policies_before"
    )
    rows = np.fromiter(
        (
            (holder, LEVELS.index(level), rule.epsilon_after(policy, level, position))
            for holder, kind, form, level, policy, position in decisions.iterator(chunk_size=10_000)
            if kind in GRANTING and form in forms
        ),
        dtype=[("holder", np.int64), ("level", np.int8), ("epsilon", np.float64)],
    )
    rows = rows[np.argsort(rows["holder"])]
    snapshot = Snapshot(study.pk, at, sequence, rows["holder"], rows["level"], rows["epsilon"])
    return snapshot if among is None else snapshot.of(among)


@dataclass(frozen=True)
class Consequence:
    """What a policy would do to those who take part at one level: how many would get its smaller ``at_once``, how many
    would stay ``protected`` by the smaller ε that they have until they consent anew, and how many see no change."""

    at_once: int
    protected: int
    unchanged: int


def policy_consequences(study: Study, policy: EpsilonPolicy) -> dict[str, Consequence]:
    """By level, what putting ``policy`` in force now would mean for those who take part (rule 5)."""
    snapshot = consent_snapshot(study)
    result = {}
    for position, level in enumerate(LEVELS):
        epsilons, proposed = snapshot.epsilons[snapshot.levels == position], policy.epsilon(level)
        counts = (epsilons > proposed, epsilons < proposed, epsilons == proposed)
        result[level] = Consequence(*(int(np.count_nonzero(each)) for each in counts))
    return result


def holders_suspended_since(study: Study, since: datetime) -> np.ndarray:
    """(S,) int64: the holders whose consent a form published after ``since`` has set aside until they answer it."""
    now = timezone.now()
    required = consent_form_required(study, now)
    if required == consent_form_required(study, since):
        return np.empty(0, dtype=np.int64)
    suspended = _last_events(study, now).filter(kind__in=GRANTING, form__version__lt=required)
    return np.fromiter(suspended.values_list("holder_id", flat=True).iterator(chunk_size=10_000), dtype=np.int64)


def holders_per_level(study: Study) -> dict[str, int]:
    """How many holders stand at each level, and how many withdrew, refused, have not decided, or must answer anew."""
    now = timezone.now()
    kinds = ConsentEvent.Kind
    in_force = Q(form__in=forms_that_count(study, now))
    states = {level: Q(level=level) & in_force for level in LEVELS}
    states |= {"WITHDRAWN": Q(kind=kinds.WITHDRAWN), "REFUSED": Q(kind=kinds.REFUSED)}
    states["SUSPENDED"] = Q(kind__in=GRANTING) & ~in_force
    # Counted in one walk: SQLite would sort a million events to group them.
    counts = _last_events(study, now).aggregate(**{name: Count("pk", filter=state) for name, state in states.items()})
    counts["UNDECIDED"] = DataHolder.objects.filter(study=study).count() - sum(counts.values())
    return counts
