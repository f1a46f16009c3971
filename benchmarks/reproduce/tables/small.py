"""A group too small for its own teacher: every variant with the group merged, left out or hybrid; every holder's vote.

Teachers of one group need enough holders to learn from. The planner merges a group that has too few into the next
stricter one, or leaves it out; upsampling mixes all groups, and every holder's vote has no groups. A hybrid (thesis,
section 7.2) weights the teachers of the large groups, and copies the few holders into several of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.reproduce.rehearsals import HYBRID, LEFT_OUT, by_accounts, by_paper, groups_of, plan_of, tally
from benchmarks.reproduce.results import Case, Promises, Row
from benchmarks.reproduce.votes import published_votes

SEEDS = (0, 1, 2)
SHARES = (0.001, 0.005)  # 60 and 300 of 60,000 holders: a quarter of an average teacher's number, and a little more
STRICT, GENEROUS, THREE = (0.5, 2.0), (1.0, 3.0), (1.0, 2.0, 3.0)
COMPARED = ("PATE", "upsampling", "weighting", LEFT_OUT, HYBRID)


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases with the strictest group small, then the most generous one, next to one or two others."""
    seeds = SEEDS[:1] if quick else SEEDS
    for share in SHARES[:1] if quick else SHARES:
        for epsilons, shares in ((STRICT, (share, 1 - share)), (GENEROUS, (1 - share, share))):
            small, large = sorted(zip(shares, epsilons, strict=True))
            for variant in COMPARED:
                setting = f"{100 * small[0]:g} % at ε {small[1]:g}, all others at {large[1]:g}, {variant}"
                promises = Promises("mnist", epsilons, shares)
                yield Case(setting, seeds, partial(_rows, promises, variant, seeds), promises)
        promises = Promises("mnist", THREE, ((1 - share) / 2, (1 - share) / 2, share))
        for variant in COMPARED:
            setting = f"{100 * share:g} % at ε 3, half of the others each at 1 and 2, {variant}"
            yield Case(setting, seeds, partial(_rows, promises, variant, seeds))


def _rows(promises: Promises, variant: str, seeds: Sequence[int]) -> Sequence[Row]:
    votes, groups = published_votes("mnist"), groups_of(promises.epsilons, promises.shares)
    here = tally([by_paper(votes, plan_of(variant, groups), groups, seed) for seed in seeds])
    ours = tally([by_accounts(votes, variant, groups, seed) for seed in seeds])
    return [
        Row("labels", None, here.labels, here_spread=here.labels_spread, accounts=ours.labels, holders="labels"),
        Row("labels right, %", None, here.right, here_spread=here.right_spread, accounts=ours.right, holders="right"),
    ]
