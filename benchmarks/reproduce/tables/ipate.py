"""Individualized PATE (Boenisch et al. 2023) and the thesis before it, with the printed set-ups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.cache import Json, kept_json
from benchmarks.reproduce.divided import SIZES, divided
from benchmarks.reproduce.folders import CLASSES, DIVISIONS
from benchmarks.reproduce.published import published
from benchmarks.reproduce.rehearsals import (
    AGGREGATORS,
    AS_PRINTED,
    Counted,
    Tally,
    by_accounts,
    by_paper,
    groups_of,
    plan_of,
    tally,
)
from benchmarks.reproduce.results import Case, Promises, Row, mean_row
from benchmarks.reproduce.votes import printed_votes
from benchmarks.students.teachers import LEARNERS
from learning.learners import learner_create

SEEDS = (0, 1, 2)
"""Of order and noise, and of Adult's division."""
LN2 = math.log(2)
EVERYBODY = "everybody at {}, PATE"
STUDENT, COPIES = {"epochs": 5}, 7
"""Passes over the labelled images and their moved copies. The network is the teachers'."""
MORE = ">2000"
"""Printed where the votes did not end before 2,000 labels."""


def table1(quick: bool) -> Iterator[Case]:
    """MNIST at ε = 1, 2, 3 with two divisions into groups."""
    for named, variants in published("individualized-pate")["table1"]["MNIST"].items():
        shares = tuple(int(part) / 100 for part in named.removesuffix(" %").split("/"))
        promises = Promises("mnist", (1.0, 2.0, 3.0), shares)
        for variant in (*variants, AS_PRINTED):
            printed = variants.get(variant, {"labels": (None, None), "right": None})
            rows = partial(_table1, promises, variant, _seeds(quick), printed)
            yield Case(f"{named}, {variant}", _seeds(quick), rows, promises)


def table5(quick: bool) -> Iterator[Case]:
    """MNIST, ln 2 with ln 4, 8, 16: labels."""
    return _cells("individualized-pate", "table5_mnist_labels", "mnist", "labels", quick)


def table7(quick: bool) -> Iterator[Case]:
    """Adult, ln 2 with ln 4, 8, 16: labels."""
    return _cells("individualized-pate", "table7_adult_labels", "adult", "labels", quick)


def table8(quick: bool) -> Iterator[Case]:
    """MNIST, ln 2 with ln 4, 8, 16: students."""
    return _cells("individualized-pate", "table8_mnist_student", "mnist", "student", quick)


def table9(quick: bool) -> Iterator[Case]:
    """Adult, ln 2 with ln 4, 8, 16: students."""
    return _cells("individualized-pate", "table9_adult_student", "adult", "student", quick)


def thesis(table: str, name: str, what: str, quick: bool) -> Iterator[Case]:
    """ε = 1 with 1.5, 2, 3, 5 for 25, 50, 75 % of the records: `what` is labels or student."""
    return _cells("personalizing-pate-thesis", table, name, what, quick)


def _cells(paper: str, table: str, name: str, what: str, quick: bool) -> Iterator[Case]:
    """One case for each printed cell."""
    printed = published(paper)[table]
    paper_low = "ln 2" if paper == "individualized-pate" else "1"
    everybody = Promises(name, (_budget(paper_low),))
    yield _case(EVERYBODY.format(paper_low), everybody, "PATE", what, printed["baseline"], quick)
    for larger, by_share in printed["cells"].items():
        for share, by_variant in by_share.items():
            promises = _two(name, paper_low, larger, share)
            for variant, known in by_variant.items():
                if not quick or (share == "50 %" and larger in ("ln 8", "2")):
                    yield _case(f"{paper_low} and {larger}, {share}, {variant}", promises, variant, what, known, quick)


def _case(setting: str, promises: Promises, variant: str, what: str, known: float | str | None, quick: bool) -> Case:
    rows = partial(_labels if what == "labels" else _student, promises, variant, _seeds(quick), known)
    beside = promises if promises.shares in ((1.0,), (0.5, 0.5)) or promises.epsilons[0] == LN2 else None
    return Case(setting, _seeds(quick), rows, beside)


def _table1(promises: Promises, variant: str, seeds: Sequence[int], printed: Json) -> Sequence[Row]:
    found = _voted(promises, variant, seeds)
    known, spread = printed["labels"]
    points = replace(_queries_row(found), quantity="points put to the vote, printed as labels", published=known)
    return [
        replace(points, spread=spread),
        _labels_row(found, None),
        Row("labels right, %", printed["right"], found.here.right, holders="right"),
    ]


def _labels(promises: Promises, variant: str, seeds: Sequence[int], known: float | str | None) -> Sequence[Row]:
    found = _voted(promises, variant, seeds)
    if known == MORE:
        return [replace(_labels_row(found, 2000), quantity="labels, printed as more than 2,000")]
    return [_labels_row(found, None if known is None else float(known)), _queries_row(found), _right_row(found)]


def _student(promises: Promises, variant: str, seeds: Sequence[int], known: float | None) -> Sequence[Row]:
    found = _taught(promises, variant, seeds)
    return [mean_row("student, %", known, found["here"], found["accounts"], "student")]


@dataclass(frozen=True)
class Voted:
    """Labels of one vote, for several tables."""

    here: Tally
    accounts: Tally | None


def _voted(promises: Promises, variant: str, seeds: Sequence[int]) -> Voted:
    """The vote by the paper's accounting, once for each seed, and by accounts where real runs offer the variant."""

    def measure() -> Json:
        here, ours = _votes(promises, variant, seeds)
        return {"here": asdict(tally(here)), "accounts": asdict(tally(ours)) if ours else None}

    kept = kept_json(_about("voted", promises, variant, seeds), measure)
    return Voted(Tally(**kept["here"]), kept["accounts"] and Tally(**kept["accounts"]))


def _taught(promises: Promises, variant: str, seeds: Sequence[int]) -> Json:
    """Test records that students of the released labels have right, in per cent; networks or forests as teachers are.

    Of MNIST only the first draw's student, and none of the accounts' labels.
    """

    def measure() -> Json:
        here, ours = _votes(promises, variant, seeds)
        if promises.data == "mnist":
            return {"here": [_right(promises.data, here[0], seeds[0])], "accounts": None}
        right, accounts = (
            [_right(promises.data, one, seed) for one, seed in zip(votes, seeds, strict=False)]
            for votes in (here, ours)
        )
        mean = float(np.mean(accounts)) if accounts else None
        return {"here": right, "accounts": mean}

    return kept_json(_about("taught", promises, variant, seeds), measure)


def _about(what: str, promises: Promises, variant: str, seeds: Sequence[int]) -> Json:
    about = {"of": promises.setting, "variant": variant, "seeds": len(seeds), "divisions": DIVISIONS[promises.data]}
    return about | {"name": f"{what}-{promises.data}"}


def _votes(promises: Promises, variant: str, seeds: Sequence[int]) -> tuple[list[Counted], list[Counted]]:
    """One vote for each seed, by the paper's accounting and by accounts; none by accounts for other variants."""
    name, aggregator = promises.data, AGGREGATORS[promises.data]
    drawn = [(printed_votes(name, seed % DIVISIONS[name]), seed) for seed in seeds]
    groups = groups_of(promises.epsilons, promises.shares, SIZES[name][0])
    plan = plan_of(variant, groups, aggregator)
    here = [by_paper(votes, plan, groups, seed) for votes, seed in drawn]
    if variant not in ("PATE", "upsampling", "weighting"):
        return here, []
    return here, [by_accounts(votes, variant, groups, seed, aggregator) for votes, seed in drawn]


def _right(name: str, counted: Counted, seed: int) -> float:
    data = divided(name, seed % DIVISIONS[name])
    x, labels = data.public.x[counted.rows], counted.labels
    if name == "mnist":
        x, labels = _with_copies(x, labels, seed=seed)
        model = learner_create("cnn", STUDENT).fit(x, labels, classes=CLASSES, seed=seed)
    else:
        model = LEARNERS[name].fit(x, labels, classes=2, seed=seed)
    return 100 * float((model.predict(data.test.x) == data.test.y).mean())


def _with_copies(
    images: NDArray[np.float32], labels: NDArray[np.integer], *, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """The images and their turned and shifted copies, each by itself, and the classes of all."""
    import torch  # slow to import, and most tables need none of it

    from benchmarks.reproduce.ensembles import MOVES

    copies = torch.from_numpy(images)[:, None].repeat(COPIES, 1, 1, 1)
    moved = MOVES(copies, torch.Generator().manual_seed(seed)).numpy()[:, 0]
    return np.concatenate([images, moved]), np.tile(labels, 1 + COPIES)


def _labels_row(found: Voted, known: float | None, spread: float | None = None) -> Row:
    here, accounts = found.here, found.accounts and found.accounts.labels
    return Row(
        "labels", known, here.labels, spread=spread, here_spread=here.spread, accounts=accounts, holders="labels"
    )


def _queries_row(found: Voted) -> Row:
    return Row("points put to the vote", None, found.here.queries, accounts=found.accounts and found.accounts.queries)


def _right_row(found: Voted) -> Row:
    accounts = found.accounts and found.accounts.right
    return Row("labels right, %", None, found.here.right, accounts=accounts, holders="right")


def _seeds(quick: bool) -> tuple[int, ...]:
    return SEEDS[:1] if quick else SEEDS


def _budget(named: str) -> float:
    """ε of “ln 8” or “1.5”."""
    return math.log(float(named.removeprefix("ln "))) if named.startswith("ln ") else float(named)


def _two(name: str, low: str, larger: str, share: str) -> Promises:
    part = float(share.removesuffix(" %")) / 100
    return Promises(name, (_budget(low), _budget(larger)), (1 - part, part))
