"""Individualized PATE (Boenisch et al. 2023) and the thesis before it: labels and students, on votes that are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from benchmarks.reproduce.cache import Json, kept_json
from benchmarks.reproduce.rehearsals import (
    AS_PRINTED,
    Counted,
    Tally,
    by_accounts,
    by_paper,
    groups_of,
    plan_of,
    tally,
)
from benchmarks.reproduce.results import Case, Promises, Row
from benchmarks.reproduce.teachers import points, splits_load
from benchmarks.reproduce.votes import published_votes
from benchmarks.students.teachers import LEARNERS

SEEDS = (0, 1, 2)

# N ± s of Table 1, as the preprint 2202.10517 prints it in its introduction.
TABLE1 = {
    (0.34, 0.43, 0.23): {"PATE": (365, 2), "upsampling": (1333, 1), "weighting": (1312, 8)},
    (0.54, 0.37, 0.09): {"PATE": (361, 3), "upsampling": (949, 18), "weighting": (1894, 10)},
}

# notebooks/adult/experiments/analyze_votings.ipynb of the authors' first repository: by factor of the larger ε's
# exponential and share of its group: upsampling, vanishing, weighting. Labels; votes right, %; students right, %.
ADULT = {
    (2, 0.25): ((140.24, 15.52, 139.36), (86.19, 86.15, 86.15), (81.02, 76.17, 80.87)),
    (2, 0.50): ((202.38, 57.16, 203.28), (86.17, 86.16, 86.19), (81.76, 78.62, 81.76)),
    (2, 0.75): ((272.40, 132.94, 272.52), (86.13, 86.17, 86.16), (82.16, 80.70, 82.26)),
    (4, 0.25): ((197.82, 9.54, 198.02), (86.17, 86.11, 86.15), (81.79, 75.73, 81.67)),
    (4, 0.50): ((345.68, 74.68, 348.74), (86.17, 86.15, 86.18), (82.52, 79.32, 82.60)),
    (4, 0.75): ((541.46, 236.18, 542.52), (86.17, 86.16, 86.17), (82.87, 82.09, 82.89)),
    (8, 0.25): ((263.64, 7.66, 259.16), (86.20, 86.15, 86.16), (82.30, 75.31, 82.25)),
    (8, 0.50): ((529.56, 95.40, 530.46), (86.18, 86.16, 86.18), (82.82, 79.97, 82.84)),
    (8, 0.75): ((868.10, 399.72, 871.62), (86.15, 86.17, 86.17), (83.07, 82.72, 83.04)),
}
ADULT_BASELINES = {1: (88.46, 79.85), 2: (354.04, 82.52), 4: (763.08, 83.02), 8: (1287.86, 83.23)}
ADULT_VOTES_RIGHT = 86.18
MNIST_BASELINE = 257  # votes at ln 2, printed in notebooks/mnist/experiments/analyze_votings.ipynb of the same
VARIANTS = ("upsampling", "vanishing", "weighting")
LN2 = math.log(2)
THESIS_BASELINES = {"mnist": 221, "adult": 195}


def table1(quick: bool) -> Iterator[Case]:
    """MNIST at ε = 1, 2, 3 with two divisions into groups."""
    for shares, published in TABLE1.items():
        promises = Promises("mnist", (1.0, 2.0, 3.0), shares)
        for variant in ("PATE", "upsampling", "weighting", AS_PRINTED):
            known, spread = published.get(variant, (None, None))
            setting = f"{_percent(shares)}, {variant}"
            yield _labels_case(setting, promises, variant, quick, published=known, spread=spread)


def table5(quick: bool) -> Iterator[Case]:
    """MNIST, ln 2 with ln 4, 8, 16: labels."""
    yield _labels_case("everybody at ln 2, PATE", Promises("mnist", (LN2,)), "PATE", quick, queries=MNIST_BASELINE)
    for factor, share in _cells(quick):
        for variant in ("upsampling", "weighting"):
            setting = f"{_named(factor, share)}, {variant}"
            yield _labels_case(setting, _two("mnist", factor, share), variant, quick)


def table7(quick: bool) -> Iterator[Case]:
    """Adult, ln 2 with ln 4, 8, 16: labels."""
    return _adult_cases(quick, 0)


def table8(quick: bool) -> Iterator[Case]:
    """Adult, ln 2 with ln 4, 8, 16: share of right labels."""
    return _adult_cases(quick, 1)


def table9(quick: bool) -> Iterator[Case]:
    """Adult, ln 2 with ln 4, 8, 16: students."""
    return _adult_cases(quick, 2)


def thesis(name: str, what: str, quick: bool) -> Iterator[Case]:
    """ε = 1 with 1.5, 2, 3, 5 for half of the holders each: `what` is labels or the share of right ones."""
    settings = [("everybody at 1, PATE", Promises(name, (1.0,)), "PATE")]
    for larger in (2.0,) if quick else (1.5, 2.0, 3.0, 5.0):
        promises = Promises(name, (1.0, larger), (0.5, 0.5))
        settings += [(f"1 and {larger:g}, 50 % each, {variant}", promises, variant) for variant in VARIANTS]
    for setting, promises, variant in settings:
        rows = partial(_thesis, promises, variant, what, _seeds(quick))
        yield Case(setting, _seeds(quick), rows, promises)


def _labels_case(setting: str, promises: Promises, variant: str, quick: bool, **published: float | None) -> Case:
    return Case(setting, _seeds(quick), partial(_labels, promises, variant, _seeds(quick), **published), promises)


def _labels(
    promises: Promises,
    variant: str,
    seeds: Sequence[int],
    *,
    published: float | None = None,
    spread: float | None = None,
    queries: float | None = None,
) -> Sequence[Row]:
    found = _voted(promises, variant, seeds)
    return [
        _labels_row(found, published, spread),
        Row("points put to the vote", queries, found.here.queries, accounts=found.accounts and found.accounts.queries),
        _right_row(found),
    ]


def _thesis(promises: Promises, variant: str, what: str, seeds: Sequence[int]) -> Sequence[Row]:
    found = _voted(promises, variant, seeds)
    if what == "right":
        return [_right_row(found)]
    return [_labels_row(found, THESIS_BASELINES[promises.data] if variant == "PATE" else None)]


def _adult_cases(quick: bool, what: int) -> Iterator[Case]:
    settings = []
    for factor in (1, 2) if quick else ADULT_BASELINES:
        known = (ADULT_BASELINES[factor][0], ADULT_VOTES_RIGHT, ADULT_BASELINES[factor][1])[what]
        promises = Promises("adult", (math.log(2 * factor),))
        settings.append((f"everybody at ln {2 * factor}, PATE", promises, "PATE", known))
    for factor, share in _cells(quick):
        for variant, known in zip(VARIANTS, ADULT[factor, share][what], strict=True):
            promises = _two("adult", factor, share)
            settings.append((f"{_named(factor, share)}, {variant}", promises, variant, known))
    for setting, promises, variant, known in settings:
        yield Case(setting, _seeds(quick), partial(_adult, promises, variant, what, known, _seeds(quick)), promises)


def _adult(promises: Promises, variant: str, what: int, published: float, seeds: Sequence[int]) -> Sequence[Row]:
    found = _voted(promises, variant, seeds)
    if what == 0:
        return [_labels_row(found, published)]
    if what == 1:
        return [_right_row(found, published)]
    spread, accounts = found.student_spread, found.student_accounts
    return [
        Row("student, %", published, found.student, here_spread=spread, accounts=accounts, holders="student"),
    ]


@dataclass(frozen=True)
class Voted:
    """Numbers of one vote, for several tables; students, of Adult, are forests as their teachers are."""

    here: Tally
    accounts: Tally | None
    student: float | None
    student_spread: float | None
    student_accounts: float | None


def _voted(promises: Promises, variant: str, seeds: Sequence[int]) -> Voted:
    """The vote by the paper's accounting, once for each seed, and by accounts where real runs offer the variant."""
    about = {"name": f"vote-{promises.data}", "of": promises.setting, "variant": variant, "seeds": len(seeds)}

    def measure() -> Json:
        votes, groups = published_votes(promises.data), groups_of(promises.epsilons, promises.shares)
        plan = plan_of(variant, groups)
        here = [by_paper(votes, plan, groups, seed) for seed in seeds]
        found: Json = {"here": asdict(tally(here)), "accounts": None}
        found |= {"student": None, "student_spread": None, "student_accounts": None}
        if promises.data == "adult":
            students = _forests(here, seeds)
            found |= {"student": float(np.mean(students)), "student_spread": float(np.std(students))}
        if variant in ("PATE", "upsampling", "weighting"):
            ours = [by_accounts(votes, variant, groups, seed) for seed in seeds]
            found["accounts"] = asdict(tally(ours))
            if promises.data == "adult":
                found["student_accounts"] = float(np.mean(_forests(ours, seeds)))
        return found

    kept = kept_json(about, measure)
    accounts = kept["accounts"] and Tally(**kept["accounts"])
    return Voted(**(kept | {"here": Tally(**kept["here"]), "accounts": accounts}))


def _forests(votes: Sequence[Counted], seeds: Sequence[int]) -> list[float]:
    """Test records that forests of the released labels have right, in per cent."""
    x, _ = points("adult")
    test, right = splits_load("adult").test, []
    for counted, seed in zip(votes, seeds, strict=True):
        model = LEARNERS["adult"].fit(x[counted.rows], counted.labels, classes=2, seed=seed)
        right.append(100 * float((model.predict(test.x) == test.y).mean()))
    return right


def _labels_row(found: Voted, published: float | None, spread: float | None = None) -> Row:
    here, accounts = found.here, found.accounts and found.accounts.labels
    return Row(
        "labels", published, here.labels, spread=spread, here_spread=here.spread, accounts=accounts, holders="labels"
    )


def _right_row(found: Voted, published: float | None = None) -> Row:
    accounts = found.accounts and found.accounts.right
    return Row("labels right, %", published, found.here.right, accounts=accounts, holders="right")


def _seeds(quick: bool) -> tuple[int, ...]:
    return SEEDS[:1] if quick else SEEDS


def _cells(quick: bool) -> Sequence[tuple[int, float]]:
    return [(4, 0.5)] if quick else list(ADULT)


def _two(name: str, factor: int, share: float) -> Promises:
    return Promises(name, (LN2, math.log(2 * factor)), (1 - share, share))


def _named(factor: int, share: float) -> str:
    return f"ln 2 and ln {2 * factor}, {100 * share:g} % at the larger"


def _percent(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:g}" for share in shares) + " %"
