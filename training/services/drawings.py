"""Drawings: single questions to all participants outside runs, each with a share of the caps.

Head counts are the numbers of holders with each promise, which plans need (condition 9 in docs/gaussian-accounts.md).
They are either drawn with noise at a user's request, charged, stored and reused, or entered by an operator as public
numbers.

For each check question, a drawing counts the people whose first answer was right and those whose first answer was
wrong. Each person is therefore counted in at most one cell per question. See docs/gaussian-accounts.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max
from django.utils.translation import gettext as _

from accounting.accounts import account_balances
from accounting.caps import caps_of
from accounting.ceilings import ceiling_limits
from accounting.group_budgets import head_counts
from accounting.models import HeadCount, Release
from accounting.services import release_record
from accounting.shares import share_grant, share_open, share_settle
from common.bulk import rows_insert
from common.noise import Noise, SystemNoise
from common.sentences import gettext_noop
from consent.models import CheckAnswers, ConsentForm, Level, Study
from consent.promises.questions import KEYS
from consent.selectors import LEVELS, Promise, Snapshot, consent_form_in_force, consent_snapshot, promises_possible
from consent.services import check_answers_clear, study_lock
from learning.mechanisms.head_counts import HeadCountQuestion
from learning.mechanisms.protocol import Draws, People
from training.errors import STATE
from training.models import Run

#: Share of the smallest cap that a drawing costs; it implies σ = 10 / μ_min (condition 9 in docs/gaussian-accounts.md).
SHARE = 0.01


@dataclass(frozen=True)
class Drawing:
    """Plan of a drawing: the promises that people can have, and the standard deviation of the noise."""

    promises: list[Promise]
    sigma: float


def drawing_plan(study: Study) -> Drawing:
    """Return the plan of :func:`question_draw`. Raises ValidationError if no ε policy is in force."""
    promises = promises_possible(study)
    if not promises:
        raise ValidationError(
            _("The study has no approved ε policy. Its ethics committee needs to propose and approve one.")
        )
    smallest = float(caps_of([promise.epsilon for promise in promises], study.delta).min())
    return Drawing(promises, float(np.ceil(1 / np.sqrt(SHARE * smallest))))


def drawing_last(study: Study, kind: str) -> int:
    """Return the sequence number of the newest release of this kind of drawing; 0 before the first."""
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
    """Ask all participants the question, release the noisy numbers, and charge everyone who is counted.

    People who cannot be charged are not counted.

    Args:
        study: Locked by :func:`consent.services.study_lock`, within the caller's transaction.
        kind: The :class:`Release.Kind`.
        question: A question with the noise of :func:`drawing_plan`.
        snapshot: All participants.
        counted: Whether each holder is in each cell, (cells, H).
        content: Function from the noisy numbers (cells,) to the content of the release.
        noise: Source of noise; set only by tests.
        follows: The result of :func:`drawing_last` when the user opened the form, so that sending the form twice draws
            only once; None if unknown.

    Raises:
        ValidationError: The share is not free, a run is counting people, or there is a newer release than expected.
    """
    if follows is not None and follows != drawing_last(study, kind):
        raise ValidationError(_("The numbers have changed since you saw them, so no new ones were taken."), code=STATE)
    if any(map(_counts_people, Run.objects.filter(study=study, status=Run.Status.ASKING, rehearsal=False))):
        raise ValidationError(
            _(
                "A run is counting people and would leave out everyone who is charged for something else in the "
                "meantime. Wait until the run ends."
            )
        )
    subject = uuid4()
    share_grant(study=study, subject=subject, purpose=purpose, share=SHARE, acting_user=acting_user)
    caps = caps_of(snapshot.epsilons, study.delta)
    limit = share_open(study=study, subject=subject)
    limits = np.minimum(limit * caps, ceiling_limits(study, snapshot.holders, subject=subject))
    people = People(snapshot.holders, caps, limits, account_balances(study, snapshot.holders))
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
    """Return whether a run still has rounds of counts.

    A round of counts omits people who cannot pay for all of it. If another share is opened and charged now, more people
    are omitted, because the run's limit stays the same while less of their budgets is left.
    """
    counted = [each for each in run.plan.get("rounds", []) if each.keys() & {"table", "marginals"}]
    return run.batches.count() < len(counted)


# --- Head counts ------------------------------------------------------------------------------------------------------


# More people than any study has, and less than the largest integer that a database can store.
MOST = 1_000_000_000


@transaction.atomic
def head_counts_draw(
    *, study: Study, acting_user: AbstractBaseUser, noise: Noise | None = None, follows: int | None = None
) -> list[HeadCount]:
    """Draw head counts: count the holders of each promise with Gaussian noise, and charge everyone who is counted.

    Each holder is in one cell, so the charge is 1/σ², at most a hundredth of the smallest cap. Raises ValidationError
    if that share is not free, or if the newest counts are not those of the release ``follows``.
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
    """Record public numbers of people by level for the ε policy in force; no one is charged.

    The numbers must not be derived from consents; the person who enters them states their source. Raises
    ValidationError.
    """
    study = study_lock(study.pk)
    if set(counts) != set(Level.values) or not all(type(each) is int and 0 <= each <= MOST for each in counts.values()):
        message = _("Enter a whole number of holders from 0 to %(most)d for each of the three levels.")
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
        "source": gettext_noop("entered") if sigma is None else gettext_noop("taken with noise"),
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


# --- Check questions --------------------------------------------------------------------------------------------------


#: Standard normal quantile for intervals that contain the true share with probability 0.95.
_QUANTILE = 1.959963984540054


@dataclass(frozen=True)
class Understanding:
    """Result of a count for one question; ``right``, ``low`` and ``high`` (out of 100) are None if too noisy."""

    key: str
    right: int | None = None
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class AnswerCounts:
    """Results of the newest count of answers to a version of the form; questions with the most wrong answers first."""

    form_version: int
    counted_at: datetime
    questions: list[Understanding]


@transaction.atomic
def check_answers_count(
    *, study: Study, acting_user: AbstractBaseUser, noise: Noise | None = None, follows: int | None = None
) -> Release:
    """Count the first answers to the current form with noise, charge everyone who is counted, and delete all answers.

    Answers of people who do not take part are not counted, because they have no accounts.

    Raises:
        ValidationError: no form or policy is in force, the share is not free, or the newest count is not the release
            ``follows``.
    """
    study = study_lock(study.pk)
    form = consent_form_in_force(study)
    if form is None:
        raise ValidationError(
            _("The study has no published consent form, so there are no answers to count. Publish a form first.")
        )
    question, snapshot = _question(study), consent_snapshot(study)
    release = question_draw(
        study=study,
        kind=Release.Kind.ANSWERS,
        purpose=gettext_noop("answers to check questions"),
        question=question,
        snapshot=snapshot,
        counted=_counted(form, snapshot.holders),
        content=lambda drawn: {
            "form_version": form.version,
            "sigma": question.spread,
            "questions": [
                {"question": key, "right": int(right), "wrong": int(wrong)}
                for key, right, wrong in zip(KEYS, drawn[: len(KEYS)], drawn[len(KEYS) :], strict=True)
            ],
        },
        acting_user=acting_user,
        noise=noise,
        follows=follows,
    )
    check_answers_clear(form)
    return release


def answers_sigma(study: Study) -> float:
    """Return the standard deviation of the noise in each number. Raises ValidationError without an ε policy."""
    return _question(study).spread


def _question(study: Study) -> HeadCountQuestion:
    return HeadCountQuestion(cells=2 * len(KEYS), most=len(KEYS), noise=drawing_plan(study).sigma)


def _counted(form: ConsentForm, holders: np.ndarray) -> np.ndarray:
    """Return the holders' first answers, shape (2·questions, H): a row per question for “right”, then for “wrong”."""
    answered, right = np.zeros(len(holders), dtype=np.int64), np.zeros(len(holders), dtype=np.int64)
    rows = CheckAnswers.objects.filter(form=form, counted=False, answered__gt=0)
    for holder, mask, right_mask in rows.values_list("holder_id", "answered", "right").iterator(chunk_size=5000):
        place = int(np.searchsorted(holders, holder))
        if place < len(holders) and holders[place] == holder:
            answered[place], right[place] = mask, right_mask
    bits = 1 << np.arange(len(KEYS))[:, None]
    return np.concatenate([(right & bits) > 0, ((answered & ~right) & bits) > 0])


def answer_counts(study: Study) -> AnswerCounts | None:
    """Return the results of the newest count, with the most wrong answers first; None before the first count."""
    release = Release.chain(study.pk).filter(kind=Release.Kind.ANSWERS).order_by("-sequence").first()
    if release is None:
        return None
    sigma = release.content["sigma"]
    understandings = [understanding_of(each, sigma) for each in release.content["questions"]]
    understandings.sort(key=lambda each: (each.right is None, each.right or 0))
    return AnswerCounts(release.content["form_version"], release.recorded_at, understandings)


def understanding_of(counts: dict, sigma: float) -> Understanding:
    """Return the share of right answers from one question's noisy ``counts``, with its interval by Fieller's theorem.

    For the true share p, right - p·(right + wrong) is noise with variance σ²·((1 - p)² + p²). The interval contains all
    p for which this noise is within the quantile. These p solve a quadratic inequality, and form a finite interval if
    the number of answers is large compared with its noise.
    """
    right, number = counts["right"], counts["right"] + counts["wrong"]
    spread = (_QUANTILE * sigma) ** 2
    a, b, c = number**2 - 2 * spread, right * number - spread, right**2 - spread
    if number <= 0 or a <= 0:
        return Understanding(counts["question"])
    half = math.sqrt(max(b * b - a * c, 0.0)) / a
    low, high = max(b / a - half, 0.0), min(b / a + half, 1.0)
    if low >= high:  # noise has moved both ends below 0 or above 1, so use the share closest to the estimate
        low = high = min(max(b / a, 0.0), 1.0)
    estimate = min(max(right / number, low), high)
    return Understanding(
        counts["question"], round(100 * estimate), math.floor(100 * low + 1e-9), math.ceil(100 * high - 1e-9)
    )
