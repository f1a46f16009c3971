"""Head counts for plans: the number of holders with each promise (rule 7; condition 9 of the guarantee)."""

import math
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Subquery

from accounting.models import HeadCount
from consent.models import EpsilonPolicy, Study
from consent.selectors import epsilons_since


def head_counts(study: Study) -> list[HeadCount]:
    """Return the head counts that plans use: those of the newest drawing or entry; none before the first."""
    newest = HeadCount.objects.filter(study=study).order_by("-release__sequence").values("release_id")[:1]
    counts = HeadCount.objects.filter(study=study, release_id=Subquery(newest)).order_by("epsilon", "pk")
    return list(counts.select_related("release").defer("release__content"))


@dataclass(frozen=True)
class HeadCountTotal:
    """Approximate number of participants from the head counts: ``sigma`` is the noise of the sum, 0 if it is public."""

    count: int
    sigma: float
    counted_at: datetime


def head_count_total(study: Study) -> HeadCountTotal | None:
    """Return the sum of the newest head counts, for deciders who must not see exact numbers; None before the first."""
    counts = head_counts(study)
    if not counts:
        return None
    sigma = math.sqrt(sum((count.sigma or 0.0) ** 2 for count in counts))
    return HeadCountTotal(sum(count.count for count in counts), sigma, counts[0].release.recorded_at)


def people_promised_more(study: Study, policy: EpsilonPolicy) -> HeadCountTotal | None:
    """Return the approximate number of people promised more than ``policy`` gives their level, from the head counts.

    They would be asked to accept a weaker promise. The sum of the newest head counts of such promises; None before the
    first.
    """
    counts = head_counts(study)
    if not counts:
        return None
    # Changes that took effect since the drawing apply to the people who were counted.
    since = epsilons_since(study, counts[0].release.recorded_at)
    more = [count for count in counts if min(count.epsilon, since[count.level]) < policy.epsilon(count.level)]
    sigma = math.sqrt(sum((count.sigma or 0.0) ** 2 for count in more))
    return HeadCountTotal(sum(count.count for count in more), sigma, counts[0].release.recorded_at)
