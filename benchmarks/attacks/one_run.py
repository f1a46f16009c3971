"""One run with many worst cases at once, each put in by the toss of a coin: how many are guessed from the release."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accounting.caps import caps_of
from accounting.privacy import IndividualAccounts
from common.noise import SystemNoise
from learning.mechanisms.base import People, Records
from learning.mechanisms.counts.columns import CLASSES, Column
from learning.mechanisms.counts.planner import CountsPlan
from learning.mechanisms.counts.question import CountsQuestion
from learning.mechanisms.neighbours.release import release_counts
from learning.mechanisms.neighbours.votes import neighbour_votes
from learning.mechanisms.steps.linear import release_sums, step_contributions
from learning.mechanisms.steps.records import owned_records

Floats = NDArray[np.float64]
Taking = NDArray[np.bool_]
_ROUNDING = 1 + 1e-9
WHOLE = slice(0, 1)


def votes_scores(takes_part: Taking, epsilon: float, delta: float) -> Floats:
    """`(m,)` of a run in which every holder votes: each canary alone has a record at one query, which uses up its cap.

    Args:
        takes_part: `(m,)` by the toss of a coin.
        epsilon, delta: what everyone was promised.
    """
    count, cap = len(takes_part), float(caps_of(epsilon, delta))
    sigma = _ROUNDING / math.sqrt(cap)
    side = math.isqrt(count - 1) + 1
    points = np.stack(np.divmod(np.arange(count), side), axis=1)
    sums, _ = neighbour_votes(
        points,
        points,
        points[takes_part],
        np.zeros(int(takes_part.sum()), int),
        np.arange(int(takes_part.sum())),
        radius_share=1 / count,
        n_classes=2,
        accounts=IndividualAccounts(np.full(int(takes_part.sum()), cap)),
        sigma=sigma,
    )
    return release_counts(sums, sigma, SystemNoise())[:, 0].astype(np.float64)


def steps_scores(takes_part: Taking, epsilon: float, delta: float) -> Floats:
    """`(m,)` of one private gradient step of all, in which each canary has a coordinate of their own."""
    count, cap = len(takes_part), float(caps_of(epsilon, delta))
    sigma = _ROUNDING / math.sqrt(cap)
    x = (127 * np.eye(count, dtype=np.int8))[takes_part]
    people = np.arange(len(x))
    records = owned_records(x, np.zeros(len(x), int), people, people)
    sums, _ = step_contributions(
        records,
        np.zeros((count + 1, 2)),
        clip_norm=0.1,
        accounts=IndividualAccounts(np.full(len(x), cap)),
        sigma=sigma,
    )
    released = release_sums(sums, sigma, SystemNoise())
    return (released[:count, 1] - released[:count, 0]).astype(np.float64)


def counts_scores(takes_part: Taking, epsilon: float, delta: float) -> Floats:
    """`(m,)` of one table of counts, in which each canary has a cell of their own."""
    count, cap = len(takes_part), float(caps_of(epsilon, delta))
    plan = CountsPlan(_ROUNDING / math.sqrt(cap), cap, float(count), float(count), count)
    question = CountsQuestion(plan, ((Column(CLASSES, tuple(map(str, range(count)))),),), (cap,))
    classes = np.flatnonzero(takes_part)
    holders, caps = np.arange(len(classes)), np.full(len(classes), cap)
    records = Records(np.zeros((len(classes), 1)), classes, holders)
    sums, _ = question.contributions(People(holders, caps, caps, np.zeros(len(classes))), records)
    return question.release(WHOLE, None, [{"sums": sums}], SystemNoise()).arrays["sums"].astype(np.float64)


MECHANISMS: dict[str, Callable[[Taking, float, float], Floats]] = {
    "neighbours, one round": votes_scores,
    "sgd, individual": steps_scores,
    "counts": counts_scores,
}


def guesses_right(takes_part: Taking, scores: Floats, guesses: int) -> int:
    """Of the guesses: "took part" for the highest scores, "did not" for as many of the lowest."""
    order = np.argsort(scores, kind="stable")
    each = guesses // 2
    return int((~takes_part[order[:each]]).sum() + takes_part[order[-each:]].sum())
