"""Votes of Individualized PATE, with costs computed as in the papers and by this project's accounts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.privacy import PAPER_ORDERS
from benchmarks.reproduce.votes import Votes
from benchmarks.students.teachers import vote
from learning.mechanisms.pate import ConfidentGNMax, GroupPlan, Plan, PrivacyGroup, make_plan, simulate_vote

DELTA, TEACHERS, HOLDERS = 1e-5, 250, 60_000
FIRST_QUERIES = 500
AGGREGATOR = ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0)
"""Parameters of every plan of the authors' repository (fraboeni/individualized-pate, experiment_plans)."""
AGGREGATORS = {"mnist": AGGREGATOR, "adult": ConfidentGNMax(sigma=40.0, sigma_threshold=200.0, threshold=300.0)}
"""Printed parameters, by data set."""

LEFT_OUT = "weighting, groups too small for a teacher left out"
HYBRID = "hybrid"
VARIANTS = {
    "PATE": {"variant": "standard"},
    "upsampling": {"variant": "upsampling"},
    "vanishing": {"variant": "vanishing"},
    "weighting": {"variant": "weighting"},
    LEFT_OUT: {"variant": "weighting", "small_groups": "leave_out"},
    HYBRID: {"variant": "weighting", "small_groups": "copy"},
}
"""As in the authors' code: duplicates and weights in proportion to ε."""

AS_PRINTED = "weighting by n·ε"
"""Algorithm 2 as printed, and the authors' code: a group's weight also grows with the number of its teachers."""


@dataclass(frozen=True, eq=False)
class Counted:
    """One vote: the queries until the first budget was used up, and the rows and labels of the answered queries."""

    queries: int
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    right: float


@dataclass(frozen=True)
class Tally:
    """Means over the draws, and their standard deviations. ``right`` is in per cent."""

    queries: float
    labels: float
    right: float
    queries_spread: float
    labels_spread: float
    right_spread: float


def groups_of(epsilons: Sequence[float], shares: Sequence[float], holders: int = HOLDERS) -> list[PrivacyGroup]:
    """Return groups of holders in these proportions."""
    return [PrivacyGroup(f"{one:g}", one, round(holders * share)) for one, share in zip(epsilons, shares, strict=True)]


def plan_of(variant: str, groups: Sequence[PrivacyGroup], aggregator: ConfidentGNMax = AGGREGATOR) -> Plan:
    """Return the plan of a variant of `VARIANTS`, or of `AS_PRINTED`."""
    options: dict[str, Any] = VARIANTS["weighting" if variant == AS_PRINTED else variant]
    plan = make_plan(groups, teachers=TEACHERS, aggregator=aggregator, delta=DELTA, conversion="classic", **options)
    if variant == "vanishing":
        return _with_absences(plan, aggregator)
    if variant != AS_PRINTED:
        return plan
    sizes = np.array([group.teachers for group in plan.groups])
    raw = sizes * np.array([group.epsilon for group in plan.groups])
    weights = raw * plan.teachers / (raw @ sizes)
    weighed = (replace(group, weight=float(one)) for group, one in zip(plan.groups, weights, strict=True))
    return replace(plan, groups=tuple(weighed))


def _with_absences(plan: Plan, aggregator: ConfidentGNMax) -> Plan:
    """Let teachers take part as in the thesis, section 6.2.2, and scale the noise by the share that takes part.

    In a group whose ε is 1/c of the largest, 1 in 2c² teachers takes part in a vote; in the group with the largest ε,
    all of them do.
    """
    largest = max(group.epsilon for group in plan.groups)

    def participants(group: GroupPlan) -> int:
        share = 1.0 if group.epsilon == largest else (group.epsilon / largest) ** 2 / 2
        return max(1, round(group.teachers * share))

    groups = tuple(replace(group, participants=participants(group)) for group in plan.groups)
    share = sum(group.participants for group in groups) / plan.teachers
    return replace(plan, groups=groups, aggregator=aggregator.scaled(share))


def by_paper(votes: Votes, plan: Plan, groups: Sequence[PrivacyGroup], seed: int) -> Counted:
    """Put the points to the vote in random order, and account for the votes as the papers do.

    This uses Rényi costs at the orders 2 to 50, Theorem 6 of 2018 for labels and checks, and the classic conversion;
    the vote ends when the next query could exceed the ε of a group.
    """

    def hold(drawn: Votes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # orders of the paper, of which the last may be the best
            held = simulate_vote(
                plan,
                groups,
                drawn.predictions_for(plan, seed),
                votes.classes,
                delta=DELTA,
                seed=seed,
                method="data_dependent",
                orders=PAPER_ORDERS,
                conversion="classic",
            )
        return held.labels, held.answered

    return _until_used_up(votes, seed, hold)


def by_accounts(
    votes: Votes, variant: str, groups: Sequence[PrivacyGroup], seed: int, aggregator: ConfidentGNMax = AGGREGATOR
) -> Counted:
    """Put the points to the vote with weights or duplicates in proportion to μ, until the accounts are used up."""
    options: dict[str, Any] = VARIANTS[variant]
    plan = make_plan(
        groups, teachers=TEACHERS, aggregator=aggregator, delta=DELTA, **(options | {"weight_scheme": "gdp"})
    )

    def hold(drawn: Votes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        answers = vote(votes.name, plan, drawn.predictions_for(plan, seed), votes.classes, seed=seed)
        labels, answered = np.zeros(answers.points, np.int64), np.zeros(answers.points, bool)
        labels[answers.releases.rows] = answers.releases.labels
        answered[answers.releases.rows] = True
        return labels, answered

    return _until_used_up(votes, seed, hold)


def _until_used_up(
    votes: Votes, seed: int, hold: Callable[[Votes], tuple[NDArray[np.int64], NDArray[np.bool_]]]
) -> Counted:
    """Put more and more points to the vote, in one order, until the vote ends before they run out."""
    order = np.random.default_rng(seed).permutation(len(votes.truth))
    queries = FIRST_QUERIES
    while True:
        labels, answered = hold(votes.at(order[:queries]))
        if len(labels) < queries or queries >= len(order):
            break
        queries *= 3
    rows, said = order[: len(labels)][answered], labels[answered]
    right = float((said == votes.truth[rows]).mean()) if len(rows) else float("nan")
    return Counted(len(labels), rows, said, right)


def tally(counts: Sequence[Counted]) -> Tally:
    """Return means and standard deviations over draws; right is the share of right labels in per cent."""
    drawn = (
        [float(one.queries) for one in counts],
        [float(len(one.rows)) for one in counts],
        [100 * one.right for one in counts if len(one.rows)],
    )
    means = (fmean(values) if values else math.nan for values in drawn)
    return Tally(*means, *(stdev(values) if len(values) > 1 else 0.0 for values in drawn))
