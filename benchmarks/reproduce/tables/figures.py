"""Figures 1 and 3 of Individualized PATE, as numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from accounting.caps import epsilon_of
from accounting.privacy import PAPER_ORDERS, epsilon_from_rdp
from benchmarks.reproduce.rehearsals import AGGREGATOR, DELTA, groups_of, plan_of
from benchmarks.reproduce.results import Case, Row
from benchmarks.reproduce.votes import published_votes
from common.noise import SimulationNoise
from learning.mechanisms.pate import QueryCosts, count_votes

LABELS = (50, 100, 200, 300, 500)
RATIOS = (1.5, 2.0, 3.0, 4.0, 5.0, 8.0)
QUERIES = 2_000
SEED = 0


def figure1(quick: bool) -> Iterator[Case]:
    """Yield cases for MNIST: ε spent by each group after a number of labels; half of the holders at ln 2 or ln 8."""
    for variant in ("PATE", "upsampling", "weighting"):
        yield Case(f"{variant}, ε of a group after so many labels", (SEED,), partial(_spent, variant))


def figure3(quick: bool) -> Iterator[Case]:
    """Yield cases for MNIST: the factor by which a group with a larger weight spends more ε."""
    for ratio in RATIOS[::2] if quick else RATIOS:
        yield Case(f"sensitivity {ratio:g} times as large", (SEED,), partial(_ratio, ratio))


def _spent(variant: str) -> Sequence[Row]:
    epsilons = (math.log(2), math.log(8))
    plan = plan_of(variant, groups_of(epsilons, (0.5, 0.5)))
    votes = published_votes("mnist")
    votes = votes.at(np.random.default_rng(SEED).permutation(len(votes.truth))[:QUERIES])
    said = votes.predictions_for(plan, SEED)
    counts = count_votes(said, votes.classes, plan.teacher_weights())
    answered = plan.aggregator.release(counts, SimulationNoise(SEED)).answered
    rows = []
    for group in plan.groups:
        costs = plan.aggregator.costs(
            counts,
            sensitivity=group.sensitivity,
            orders=PAPER_ORDERS,
            method="data_dependent",
            group_votes=None,
            teachers_per_holder=group.factor,
        )
        charge = plan.aggregator.charge(group.sensitivity)
        of = f"ε {group.epsilon:.2f}" if len(plan.groups) > 1 else "all"
        for labels in LABELS:
            queries = int(np.searchsorted(np.cumsum(answered), labels)) + 1
            ours = epsilon_of(queries * charge.check + labels * charge.label, DELTA)
            rows.append(Row(f"{of}, {labels} labels", None, _epsilon(costs, answered, queries), accounts=ours))
    return rows


def _ratio(ratio: float) -> Sequence[Row]:
    votes = published_votes("mnist")
    counts = votes.counts[np.random.default_rng(SEED).permutation(len(votes.truth))[:QUERIES]]
    answered = AGGREGATOR.release(counts, SimulationNoise(SEED)).answered
    rows = []
    for labels in (10, 100, 500):
        queries = int(np.searchsorted(np.cumsum(answered), labels)) + 1
        paper, accounts = [], []
        for sensitivity in (1.0, ratio):
            costs = AGGREGATOR.costs(
                counts, sensitivity=sensitivity, orders=PAPER_ORDERS, method="data_dependent", group_votes=None
            )
            charge = AGGREGATOR.charge(sensitivity)
            paper.append(_epsilon(costs, answered, queries))
            accounts.append(epsilon_of(queries * charge.check + labels * charge.label, DELTA))
        rows.append(
            Row(f"times ε after {labels} labels", None, paper[1] / paper[0], accounts=accounts[1] / accounts[0])
        )
    return rows


def _epsilon(costs: QueryCosts, answered: np.ndarray, queries: int) -> float:
    spent = costs.check[:queries].sum(axis=0) + costs.label[:queries][answered[:queries]].sum(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # orders of the paper, of which the last may be the best
        return float(epsilon_from_rdp(spent, DELTA, PAPER_ORDERS, "classic")[0])
