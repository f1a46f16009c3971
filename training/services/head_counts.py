"""Head counts: how many holders have each promise, for plans (rule 7; condition 9 of the guarantee).

Drawn by one explicit action with noise, stored, charged and used again; or entered by the operator as public numbers.
"""

from collections.abc import Mapping

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.head_counts import head_counts
from accounting.models import HeadCount, Release
from accounting.services import release_record
from common.bulk import rows_insert
from common.noise import Noise
from consent.models import Level, Study
from consent.selectors import LEVELS, Promise, consent_snapshot
from consent.services import study_lock
from learning.mechanisms.head_counts import HeadCountQuestion
from training.engine.drawings import drawing_plan, question_draw

#: More people than any study asks, and less than a database counts up to.
MOST = 1_000_000_000


@transaction.atomic
def head_counts_draw(
    *, study: Study, acting_user: AbstractBaseUser, noise: Noise | None = None, follows: int | None = None
) -> list[HeadCount]:
    """Count the holders of each promise with Gaussian noise, and charge everybody who is counted.

    A holder is in one cell, so that the charge is 1/σ², at most a hundredth of the smallest cap. Raises ValidationError
    where that share is not free, or other counts than the release ``follows`` are the newest.
    """
    study = study_lock(study.pk)
    drawing, snapshot = drawing_plan(study), consent_snapshot(study)
    counted = np.zeros((len(drawing.promises), len(snapshot)), dtype=bool)
    for place, promise in enumerate(drawing.promises):
        counted[place] = snapshot.have(promise)
    release = question_draw(
        study=study,
        kind=Release.Kind.HEAD_COUNTS,
        purpose=gettext_noop("head counts"),
        question=HeadCountQuestion(cells=len(counted), most=1, noise=drawing.sigma),
        snapshot=snapshot,
        counted=counted,
        content=lambda drawn: _content(drawing.promises, np.maximum(drawn, 0).tolist(), drawing.sigma),
        acting_user=acting_user,
        noise=noise,
        follows=follows,
    )
    counts = [each["count"] for each in release.content["counts"]]
    return _store(study, release, drawing.promises, counts, drawing.sigma)


@transaction.atomic
def head_counts_enter(*, study: Study, acting_user: AbstractBaseUser, counts: Mapping[str, int]) -> list[HeadCount]:
    """Enter public numbers, by level, for the promises of the ε policy in force; nobody is charged.

    They must not come from the consents: whoever enters them states where they are known from. Raises ValidationError.
    """
    study = study_lock(study.pk)
    if set(counts) != set(Level.values) or not all(type(each) is int and 0 <= each <= MOST for each in counts.values()):
        message = _("Give a whole number of holders, from 0 to %(most)d, for each of the three levels.")
        raise ValidationError(message % {"most": MOST})
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
