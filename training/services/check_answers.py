"""First answers to the check questions: how many were right, counted with noise and charged as head counts are.

For each question those whose first answer was right and those whose first answer was wrong are counted. One person
counts in at most one of the two, so in at most as many cells as there are questions. See docs/gaussian-accounts.md.
"""

import math
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from common.noise import Noise
from consent.models import CheckAnswers, ConsentForm, Study
from consent.promises.questions import KEYS
from consent.selectors import consent_form_in_force, consent_snapshot
from consent.services import check_answers_clear, study_lock
from learning.mechanisms.head_counts import HeadCountQuestion
from training.engine.drawings import drawing_plan, question_draw

#: Standard normal quantile of intervals: they hold the true share with probability 0.95.
_QUANTILE = 1.959963984540054


@dataclass(frozen=True)
class Understanding:
    """What a count says of one question; ``right``, ``low`` and ``high`` in 100 are None where noise hides it."""

    key: str
    right: int | None = None
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class AnswerCounts:
    """The newest count of answers: to which version of the form, when, and what it says, worst first."""

    form_version: int
    counted_at: datetime
    questions: list[Understanding]


@transaction.atomic
def check_answers_count(
    *, study: Study, acting_user: AbstractBaseUser, noise: Noise | None = None, follows: int | None = None
) -> Release:
    """Count the first answers to the form in force with noise, charge whoever is counted, and clear all answers.

    Those of people who do not take part are not counted: they have no account.

    Raises:
        ValidationError: no form or policy is in force, the share is not free, or another count than the release
            ``follows`` is the newest.
    """
    study = study_lock(study.pk)
    form = consent_form_in_force(study)
    if form is None:
        raise ValidationError(_("The study has no published consent form, so nobody was asked anything."))
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
    """Standard deviation of the noise of each number of a count. Raises ValidationError without an ε policy."""
    return _question(study).spread


def _question(study: Study) -> HeadCountQuestion:
    return HeadCountQuestion(cells=2 * len(KEYS), most=len(KEYS), noise=drawing_plan(study).sigma)


def _counted(form: ConsentForm, holders: np.ndarray) -> np.ndarray:
    """(2·questions, H): whose first answer to each question was right, then whose was wrong."""
    answered, right = np.zeros(len(holders), dtype=np.int64), np.zeros(len(holders), dtype=np.int64)
    rows = CheckAnswers.objects.filter(form=form, counted=False, answered__gt=0)
    for holder, mask, right_mask in rows.values_list("holder_id", "answered", "right").iterator(chunk_size=5000):
        place = int(np.searchsorted(holders, holder))
        if place < len(holders) and holders[place] == holder:
            answered[place], right[place] = mask, right_mask
    bits = 1 << np.arange(len(KEYS))[:, None]
    return np.concatenate([(right & bits) > 0, ((answered & ~right) & bits) > 0])


def answer_counts(study: Study) -> AnswerCounts | None:
    """What the newest count says, the question worst answered first; None before the first."""
    release = Release.chain(study.pk).filter(kind=Release.Kind.ANSWERS).order_by("-sequence").first()
    if release is None:
        return None
    sigma = release.content["sigma"]
    understandings = [understanding_of(each, sigma) for each in release.content["questions"]]
    understandings.sort(key=lambda each: (each.right is None, each.right or 0))
    return AnswerCounts(release.content["form_version"], release.recorded_at, understandings)


def understanding_of(counts: dict, sigma: float) -> Understanding:
    """Share of right answers of one question's noisy ``counts``, and its interval by Fieller's theorem.

    For the true share p, right - p·(right + wrong) is noise of variance σ²·((1 - p)² + p²). The interval are all p for
    which that is within the quantile: the solutions of a quadratic inequality, a finite interval where the number of
    answers stands out of its noise.
    """
    right, number = counts["right"], counts["right"] + counts["wrong"]
    spread = (_QUANTILE * sigma) ** 2
    a, b, c = number**2 - 2 * spread, right * number - spread, right**2 - spread
    if number <= 0 or a <= 0:
        return Understanding(counts["question"])
    half = math.sqrt(max(b * b - a * c, 0.0)) / a
    low, high = max(b / a - half, 0.0), min(b / a + half, 1.0)
    if low >= high:  # Noise of either sign beyond 0 or 1: as near as a share can be.
        low = high = min(max(b / a, 0.0), 1.0)
    estimate = min(max(right / number, low), high)
    return Understanding(
        counts["question"], round(100 * estimate), math.floor(100 * low + 1e-9), math.ceil(100 * high - 1e-9)
    )
