"""Drawings: one question to everybody who takes part, outside of any run, with a share of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db.models import Max
from django.utils.translation import gettext as _

from accounting.accounts import accounts_stand
from accounting.caps import caps_of
from accounting.ceilings import rooms
from accounting.models import Release
from accounting.services import release_record
from accounting.shares import share_grant, share_open, share_settle
from common.noise import Noise, SystemNoise
from consent.models import Study
from consent.selectors import Promise, Snapshot, promises_possible
from learning.mechanisms.head_counts import HeadCountQuestion
from learning.mechanisms.protocol import Draws, People
from training.models import Run

#: The share of the smallest cap that a drawing costs: σ = 10 / μ_min (condition 9 of the guarantee).
SHARE = 0.01


@dataclass(frozen=True)
class Drawing:
    """Plan of a drawing: the promises that people can have, and the standard deviation of the noise."""

    promises: list[Promise]
    sigma: float


def drawing_plan(study: Study) -> Drawing:
    """Plan of :func:`question_draw`. Raises ValidationError where no ε policy is in force."""
    promises = promises_possible(study)
    if not promises:
        raise ValidationError(_("The study has no approved ε policy. Its ethics committee proposes and approves one."))
    smallest = float(caps_of([promise.epsilon for promise in promises], study.delta).min())
    return Drawing(promises, float(np.ceil(1 / np.sqrt(SHARE * smallest))))


def drawing_last(study: Study, kind: str) -> int:
    """Sequence number of the newest release of a kind of drawing; 0 before the first."""
    return Release.objects.filter(study=study, kind=kind).aggregate(newest=Max("sequence"))["newest"] or 0


def question_draw(
    *,
    study: Study,
    kind: str,
    purpose: str,
    question: HeadCountQuestion,
    snapshot: Snapshot,
    counted: np.ndarray,
    content: Callable[[np.ndarray], dict[str, Any]],
    acting_user: AbstractBaseUser,
    noise: Noise | None,
    follows: int | None,
) -> Release:
    """Ask everybody the question, release the noisy numbers, and charge whoever is in them.

    Whoever cannot be charged is left out of the sum.

    Args:
        study: Locked by :func:`consent.services.study_lock`, within the caller's transaction.
        kind: The :class:`Release.Kind`.
        purpose: Of the share, in words.
        question: With the noise of :func:`drawing_plan`.
        snapshot: Everybody who takes part.
        counted: (cells, H) whether a holder is in a cell.
        content: The noisy numbers (cells,) → content of the release.
        acting_user: Who draws.
        noise: Only for tests.
        follows: What :func:`drawing_last` said to whoever draws, so that a form that is sent twice draws once; None
            where nobody looked.

    Raises:
        ValidationError: The share is not free, a run counts people, or there is a newer release.
    """
    if follows is not None and follows != drawing_last(study, kind):
        raise ValidationError(_("There are newer numbers than when you opened the page. Nothing was drawn again."))
    if any(map(_counts_people, Run.objects.filter(study=study, status=Run.Status.ASKING, rehearsal=False))):
        raise ValidationError(
            _(
                "A run counts people, and would leave out everybody who is charged for something else meanwhile. "
                "Wait until it ends."
            )
        )
    subject = uuid4()
    share_grant(study=study, subject=subject, purpose=purpose, share=SHARE, acting_user=acting_user)
    caps = caps_of(snapshot.epsilons, study.delta)
    limit = share_open(study=study, subject=subject)
    limits = np.minimum(limit * caps, rooms(study, snapshot.holders, subject=subject))
    people = People(snapshot.holders, caps, limits, accounts_stand(study, snapshot.holders))
    part, draws = slice(0, question.size), Draws(noise or SystemNoise())
    answer = question.answer(part, None, people, lambda: counted, alone=True, draws=draws)
    drawn = question.release(part, None, [answer], draws.noise).arrays["counts"]
    charged = answer["charge"] > 0
    release = release_record(
        study=study,
        kind=kind,
        content=content(drawn),
        holders=snapshot.holders[charged],
        charges=answer["charge"][charged],
        limits=limits[charged],
        charge=question.charge,
        acting_user_id=acting_user.pk,
    )
    share_settle(study=study, subject=subject, used=SHARE)
    return release


def _counts_people(run: Run) -> bool:
    """Whether a run has rounds of counts before it: there everybody is charged for the whole round, or left out.

    A share that is opened later is not in the run's limit, but in what people have spent.
    """
    counted = [each for each in run.plan.get("rounds", []) if each.keys() & {"table", "marginals"}]
    return run.batches.count() < len(counted)
