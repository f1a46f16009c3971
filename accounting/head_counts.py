"""Head counts: how many holders have each promise, as plans may know it (rule 7; condition 9 of the guarantee).

Drawn by one explicit action with noise, stored, charged and used again; or entered by the operator as public numbers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Subquery
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.accounts import accounts_stand
from accounting.caps import caps_of
from accounting.ceilings import rooms
from accounting.models import HeadCount, Release
from accounting.privacy import IndividualAccounts
from accounting.services import release_record
from accounting.shares import share_grant, share_open, share_settle
from common.bulk import rows_insert
from common.noise import Noise, SystemNoise
from consent.models import EpsilonPolicy, Level, Study
from consent.selectors import LEVELS, Promise, Snapshot, consent_snapshot, epsilons_since, promises_possible
from consent.services import study_lock

#: The share of the smallest cap that a drawing costs: σ = 10 / μ_min.
SHARE = 0.01


@dataclass(frozen=True)
class Drawing:
    """Plan of a drawing: the promises that are counted, and the standard deviation of each count's noise."""

    promises: list[Promise]
    sigma: float


def drawing_plan(study: Study) -> Drawing:
    """Plan of :func:`head_counts_draw`. Raises ValidationError where no ε policy is in force."""
    promises = promises_possible(study)
    if not promises:
        raise ValidationError(_("The study has no approved ε policy. Its ethics committee proposes and approves one."))
    smallest = float(caps_of([promise.epsilon for promise in promises], study.delta).min())
    return Drawing(promises, float(np.ceil(1 / np.sqrt(SHARE * smallest))))


@transaction.atomic
def head_counts_draw(*, study: Study, acting_user: AbstractBaseUser, noise: Noise | None = None) -> list[HeadCount]:
    """Count the holders of each promise with Gaussian noise, and charge everybody who is counted.

    A holder contributes a vector of norm 1 (one count), so that the charge is 1/σ², at most a hundredth of the smallest
    cap. Raises ValidationError where that share is not free.
    """
    study = study_lock(study.pk)
    drawing = drawing_plan(study)
    snapshot = consent_snapshot(study)
    counted = np.zeros((len(drawing.promises), len(snapshot)), dtype=bool)
    for place, promise in enumerate(drawing.promises):
        counted[place] = snapshot.have(promise)
    release = counts_draw(
        study=study,
        counting=Counting(Release.Kind.HEAD_COUNTS, gettext_noop("head counts"), snapshot, counted, most=1),
        sigma=drawing.sigma,
        content=lambda drawn: _content(drawing.promises, np.maximum(drawn, 0).tolist(), drawing.sigma),
        acting_user=acting_user,
        noise=noise,
    )
    counts = [each["count"] for each in release.content["counts"]]
    return _store(study, release, drawing.promises, counts, drawing.sigma)


@dataclass(frozen=True)
class Counting:
    """What is counted in one drawing.

    Attributes:
        kind: the :class:`Release.Kind`.
        purpose: of the share, in words.
        snapshot: everybody who takes part.
        counted: (cells, H) whether a holder counts in a cell.
        most: in how many cells one holder can count at most.
    """

    kind: str
    purpose: str
    snapshot: Snapshot
    counted: np.ndarray
    most: int


def counts_draw(
    *,
    study: Study,
    counting: Counting,
    sigma: float,
    content: Callable[[np.ndarray], dict],
    acting_user: AbstractBaseUser,
    noise: Noise | None,
) -> Release:
    """Add up who is counted, with Gaussian noise of standard deviation σ·√most in each cell, and charge them.

    A holder in k cells contributes a vector of norm √k; divided by √most it has the squared norm k/most ≤ 1 under noise
    of standard deviation σ, so that they are charged k/(most·σ²). Whoever cannot be charged is left out of the sum.

    Args:
        study: locked by :func:`consent.services.study_lock`, within the caller's transaction.
        counting: what is counted.
        sigma: of :func:`drawing_plan`.
        content: the noisy numbers of all cells → content of the release.
        acting_user: who draws.
        noise: only for tests.

    Raises:
        ValidationError: the share is not free.
    """
    subject, snapshot, counted = uuid4(), counting.snapshot, counting.counted
    share_grant(study=study, subject=subject, purpose=counting.purpose, share=SHARE, acting_user=acting_user)
    limit = share_open(study=study, subject=subject)
    limits = np.minimum(limit * caps_of(snapshot.epsilons, study.delta), rooms(study, snapshot.holders))
    accounts = IndividualAccounts(limits, accounts_stand(study, snapshot.holders))
    norms = counted.sum(axis=0) / counting.most
    takes_part = accounts.charge(norms, sigma) & counted.any(axis=0)
    spread = sigma * math.sqrt(counting.most)
    drawn = (counted & takes_part).sum(axis=1) + (noise or SystemNoise()).rounded_normal(spread, len(counted))
    charge = 1 / sigma**2
    release = release_record(
        study=study,
        kind=counting.kind,
        content=content(drawn),
        holders=snapshot.holders[takes_part],
        charges=norms[takes_part] * charge,
        limits=limits[takes_part],
        charge=charge,
        acting_user_id=acting_user.pk,
    )
    share_settle(study=study, subject=subject, used=SHARE)
    return release


@transaction.atomic
def head_counts_enter(*, study: Study, acting_user: AbstractBaseUser, counts: Mapping[str, int]) -> list[HeadCount]:
    """Enter public numbers, by level, for the promises of the ε policy in force; nobody is charged.

    They must not come from the consents: whoever enters them states where they are known from. Raises ValidationError.
    """
    study = study_lock(study.pk)
    if set(counts) != set(Level.values) or not all(type(each) is int and each >= 0 for each in counts.values()):
        raise ValidationError(_("Give a whole number of holders, 0 or more, for each of the three levels."))
    promises = drawing_plan(study).promises
    newest: dict[str, Promise] = {promise.level: promise for promise in promises if promise.in_force}
    chosen = [newest[level] for level in LEVELS]
    numbers = [counts[level] for level in LEVELS]
    release = release_record(
        study=study,
        kind=Release.Kind.HEAD_COUNTS,
        content=_content(chosen, numbers, None),
        acting_user_id=acting_user.pk,
    )
    return _store(study, release, chosen, numbers, None)


def head_counts(study: Study) -> list[HeadCount]:
    """The head counts that plans use: those of the newest drawing or entry; none before the first."""
    newest = HeadCount.objects.filter(study=study).order_by("-release_id").values("release_id")[:1]
    counts = HeadCount.objects.filter(study=study, release_id=Subquery(newest)).order_by("epsilon", "pk")
    return list(counts.select_related("release").defer("release__content"))


@dataclass(frozen=True)
class PeopleCounted:
    """About how many people take part, as the head counts say: ``sigma`` is the noise of the sum, 0 if it is public."""

    count: int
    sigma: float
    counted_at: datetime


def people_counted(study: Study) -> PeopleCounted | None:
    """Sum of the newest head counts, for those who decide and must not see exact numbers; None before the first."""
    counts = head_counts(study)
    if not counts:
        return None
    sigma = math.sqrt(sum((count.sigma or 0.0) ** 2 for count in counts))
    return PeopleCounted(sum(count.count for count in counts), sigma, counts[0].release.recorded_at)


def people_promised_more(study: Study, policy: EpsilonPolicy) -> PeopleCounted | None:
    """About how many people were promised more than ``policy`` gives their level, as the head counts say.

    They would be asked to accept a weaker promise. The sum of the newest head counts of such promises; None before the
    first.
    """
    counts = head_counts(study)
    if not counts:
        return None
    # What took effect since they were drawn holds for those who were counted.
    since = epsilons_since(study, counts[0].release.recorded_at)
    more = [count for count in counts if min(count.epsilon, since[count.level]) < policy.epsilon(count.level)]
    sigma = math.sqrt(sum((count.sigma or 0.0) ** 2 for count in more))
    return PeopleCounted(sum(count.count for count in more), sigma, counts[0].release.recorded_at)


def _content(promises: list[Promise], counts: list[int], sigma: float | None) -> dict:
    return {
        "source": gettext_noop("entered") if sigma is None else gettext_noop("drawn with noise"),
        "sigma": sigma,
        "counts": [
            {"level": promise.level, "epsilon": promise.epsilon, "count": count}
            for promise, count in zip(promises, counts, strict=True)
        ],
    }


def _store(
    study: Study, release: Release, promises: list[Promise], counts: list[int], sigma: float | None
) -> list[HeadCount]:
    rows_insert(
        [
            HeadCount(
                study=study, release=release, level=promise.level, epsilon=promise.epsilon, count=count, sigma=sigma
            )
            for promise, count in zip(promises, counts, strict=True)
        ]
    )
    return head_counts(study)
