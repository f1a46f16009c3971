"""Every read of the consent app that joins or aggregates."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import numpy as np
from django.db.models import Count, Max, QuerySet
from django.utils import timezone

from consent.models import ConsentEvent, ConsentForm, DataHolder, EpsilonPolicy, Level, Study

#: The position of each level in a snapshot's ``levels``.
LEVELS = tuple(Level.values)


def consent_form_in_force(study: Study) -> ConsentForm | None:
    """The newest published version."""
    return ConsentForm.objects.filter(study=study).first()


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
        return self._smallest(policy_id, level, bisect_right(self._dates, consented_at))


def epsilon_since(study: Study, level: str, since: datetime) -> float:
    """The smallest ε that a policy effective after ``since`` gives ``level``; infinity if there is none."""
    later = policies_in_force(study).filter(approval__effective_from__gt=since)
    return min((policy.epsilon(level) for policy in later), default=math.inf)


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


def consent_snapshot(study: Study, at: datetime | None = None) -> Snapshot:
    """Who takes part at ``at`` (now), at which level and ε: the only way in which training learns it.

    Memory: 17 bytes a holder, whatever their history.
    """
    at = at or timezone.now()
    rule = EpsilonRule(study, at)
    events = ConsentEvent.objects.filter(study=study, recorded_at__lte=at)
    sequence = events.aggregate(last=Max("sequence"))["last"] or 0
    last_of_each = events.order_by().values("holder").annotate(last=Max("sequence")).values("last")
    standing = (
        ConsentEvent.objects.filter(study=study, sequence__in=last_of_each)
        .filter(kind__in=[ConsentEvent.Kind.GIVEN, ConsentEvent.Kind.CHANGED])
        .order_by("holder_id")
        .values_list("holder_id", "level", "policy_id", "recorded_at")
    )
    rows = np.fromiter(
        (
            (holder, LEVELS.index(level), rule.epsilon(policy, level, recorded_at))
            for holder, level, policy, recorded_at in standing.iterator(chunk_size=10_000)
        ),
        dtype=[("holder", np.int64), ("level", np.int8), ("epsilon", np.float64)],
    )
    return Snapshot(study.pk, at, sequence, rows["holder"], rows["level"], rows["epsilon"])


def holders_per_level(study: Study) -> dict[str, int]:
    """How many holders stand at each level, and how many withdrew, refused or have not decided."""
    last_of_each = (
        ConsentEvent.objects.filter(study=study)
        .order_by()
        .values("holder")
        .annotate(last=Max("sequence"))
        .values("last")
    )
    rows = (
        ConsentEvent.objects.filter(study=study, sequence__in=last_of_each)
        .order_by()
        .values_list("kind", "level")
        .annotate(holders=Count("pk"))
    )
    counts = dict.fromkeys(LEVELS, 0) | {"WITHDRAWN": 0, "REFUSED": 0}
    for kind, level, holders in rows:
        counts[level or kind.upper()] += holders
    counts["UNDECIDED"] = DataHolder.objects.filter(study=study).count() - sum(counts.values())
    return counts
