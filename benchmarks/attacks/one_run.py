"""One run with many worst cases, each included by a coin toss, and the number of them guessed from the release."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accounting.caps import caps_of, slack_of
from accounting.privacy import IndividualAccounts
from benchmarks.attacks.canaries import SPREAD, seen_by_colluders
from common.noise import SystemNoise
from learning.formats import TabularSchema
from learning.formats.columns import NumericColumn
from learning.mechanisms.counts.table_plan import CLASSES, CountedColumn, CountsPlan
from learning.mechanisms.counts.tables import PERSON, CountsQuestion
from learning.mechanisms.neighbours.released_counts import release_counts
from learning.mechanisms.neighbours.votes import neighbour_votes
from learning.mechanisms.protocol import People, PlannedLevel, Records
from learning.mechanisms.sampled_steps import training
from learning.mechanisms.sampled_steps.run_plan import plan_sampled
from learning.mechanisms.steps.linear import owned_records, release_sums, step_contributions
from learning.mechanisms.synthesis.rounds import ROUNDS, Marginals, plan_synthesis

Floats = NDArray[np.float64]
Taking = NDArray[np.bool_]
_ROUNDING = 1 + 1e-9
WHOLE = slice(0, 1)


def votes_scores(takes_part: Taking, epsilon: float, delta: float) -> Floats:
    """Return `(m,)` scores of a vote of every holder. Each canary has a record at one query, which uses up its cap.

    Args:
        takes_part: `(m,)` participation, by the toss of a coin.
        epsilon, delta: everyone's promise.
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
    """Return `(m,)` scores of one private gradient step with all canaries, each with its own coordinate."""
    count, cap = len(takes_part), float(caps_of(epsilon, delta))
    sigma = _ROUNDING / math.sqrt(cap)
    x = (127 * np.eye(count, dtype=np.int8))[takes_part]
    people = np.arange(len(x))
    records = owned_records(x, np.zeros(len(x), int), people, people)
    sums, _ = step_contributions(
        records, np.zeros((count + 1, 2)), clip_norm=0.1, accounts=IndividualAccounts(np.full(len(x), cap)), sigma=sigma
    )
    released = release_sums(sums, sigma, SystemNoise())
    return (released[:count, 1] - released[:count, 0]).astype(np.float64)


def counts_scores(takes_part: Taking, epsilon: float, delta: float) -> Floats:
    """Return `(m,)` scores of one table of counts, in which each canary has its own cell."""
    count, cap = len(takes_part), float(caps_of(epsilon, delta))
    plan = CountsPlan(_ROUNDING / math.sqrt(cap), cap, float(count), float(count), count)
    question = CountsQuestion(plan, ((CountedColumn(CLASSES, tuple(map(str, range(count)))),),), (cap,))
    classes = np.flatnonzero(takes_part)
    holders, caps = np.arange(len(classes)), np.full(len(classes), cap)
    records = Records(np.zeros((len(classes), 1)), classes, holders)
    sums, _ = question.contributions(People(holders, caps, caps, np.zeros(len(classes))), records)
    return question.release(WHOLE, None, [{"sums": sums}], SystemNoise()).arrays["sums"].astype(np.float64)


def sites_scores(takes_part: Taking, epsilon: float, delta: float) -> Floats:
    """Return `(m,)` scores of three sites' masked sum, in which each canary has its own number at one of the sites."""
    moved = math.floor(math.sqrt(caps_of(epsilon, delta)) * SPREAD / _ROUNDING)
    return seen_by_colluders(moved * takes_part.astype(np.int64))


STEPS, RATE = 1_000, 0.02


def sampled_scores(takes_part: Taking, epsilon: float, delta: float) -> Floats:
    """Return `(m,)` scores of 1,000 steps, each on a sample of one in fifty. Each canary has its own coordinate."""
    from learning.mechanisms.sampled_steps.contributions import Gradients  # both import PyTorch
    from learning.mechanisms.sampled_steps.networks import network_create

    count, slack = len(takes_part), slack_of(delta)
    mine = int(takes_part.sum())
    network = network_create("linear", (count,), 2, 1)
    plan = plan_sampled(
        "sample",
        np.array([float(caps_of(epsilon, delta - slack))]),
        np.array([float(mine)]),
        share=1.0,
        slack=slack,
        steps=STEPS,
        rate=RATE,
        clip_norm=0.01,
        weights=2 * count + 2,
    )
    mechanism, people = plan.mechanism, np.arange(mine)
    records = owned_records((127 * np.eye(count, dtype=np.int8))[takes_part], np.zeros(mine, int), people, people)
    gradients, state, noise = Gradients(network, (count,)), training.SampledSteps.start(network), SystemNoise()
    # nearly all of a gradient is in the two weights of its coordinate: 127 against 1 for the intercept
    each, spread = mechanism.clip_norm / math.sqrt(2), mechanism.noise_multiplier * mechanism.clip_norm
    scores = np.zeros(count)
    for _ in range(STEPS):
        after = training.run_chunk(
            state,
            records,
            np.zeros(mine, int),
            gradients=gradients,
            mechanism=mechanism,
            steps=1,
            step_size=1.0,
            momentum=0.0,
            noise=noise,
            sampling=training.SystemSampling(),
        )
        sums = (after.weights - state.weights)[: 2 * count].reshape(2, count) * mechanism.expected
        drawn = ((sums[0] - sums[1]) * each - each**2) / spread**2
        scores += np.log1p(RATE * np.expm1(drawn))
        state = after
    return scores


def rows_scores(takes_part: Taking, epsilon: float, delta: float) -> Floats:
    """Return `(m,)` scores of the rounds behind synthetic rows. All tables count each canary's own class."""
    count, cap = len(takes_part), float(caps_of(epsilon, delta))
    schema = TabularSchema((NumericColumn("length", 0, 1), NumericColumn("width", 0, 1)), tuple(map(str, range(count))))
    classes = np.flatnonzero(takes_part)
    holders, caps = np.arange(len(classes)), np.full(len(classes), cap)
    plan = plan_synthesis([PlannedLevel("ALL", cap, float(len(classes)))], columns=2, share=1.0, rows=100, bins=2)
    marginals, spent, scores = Marginals(schema, plan, (cap,)), np.zeros(len(classes)), np.zeros(count)
    x = np.full((count, 2), 0.9, np.float32)
    for index in range(ROUNDS):
        question = marginals.question(index)
        records = Records(x[classes], classes, holders)
        sums, charges = question.contributions(People(holders, caps, caps, spent), records)
        released = question.release(WHOLE, None, [{"sums": sums}], SystemNoise()).arrays["sums"]
        one = Records(x, np.arange(count), np.arange(count))
        everybody = People(np.arange(count), np.full(count, cap), np.full(count, cap), np.zeros(count))
        for person in range(count):
            alone = Records(one.x[[person]], one.classes[[person]], np.zeros(1, np.int64))
            moved, _ = question.contributions(everybody.of(np.arange(count) == 0), alone)
            scores[person] += (released * moved).sum() / (question.sigma * PERSON) ** 2
        marginals, spent = marginals.after(released), spent + charges
    return scores


MECHANISMS: dict[str, Callable[[Taking, float, float], Floats]] = {
    "neighbours, one round": votes_scores,
    "sgd, individual": steps_scores,
    "counts": counts_scores,
    "sites, together": sites_scores,
    "sgd, sample, 1,000 steps": sampled_scores,
    "synthesis": rows_scores,
}


def guesses_right(takes_part: Taking, scores: Floats, guesses: int) -> int:
    """Return the number of right guesses: "took part" for the highest scores, "did not" for as many of the lowest."""
    order = np.argsort(scores, kind="stable")
    each = guesses // 2
    return int((~takes_part[order[:each]]).sum() + takes_part[order[-each:]].sum())
