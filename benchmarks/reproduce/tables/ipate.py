"""Individualized PATE (Boenisch et al. 2023) and the earlier thesis, with the printed set-ups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean

from benchmarks.reproduce.divided import SIZES, divided
from benchmarks.reproduce.folders import CLASSES, DIVISIONS, WEAKER, Json, kept_json, published
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
from learning.mechanisms.pate import PrivacyGroup

SEEDS = {"mnist": tuple(range(10)), "adult": (0, 1, 2)}
"""Seeds of order and noise, and of Adult's division."""
LN2 = math.log(2)
EVERYBODY = "everybody at {}, PATE"
STUDENT = {"epochs": 5}
"""Passes over the labelled images and their moved copies. The network is the teachers'."""
OFFERED = ("PATE", "upsampling", "weighting")
"""Variants available in real runs."""
SECOND = {"mnist": WEAKER}
"""The ensemble whose teachers are as often right as the paper's."""
Hold = Callable[[str, Promises, str, Sequence[int]], "list[Counted]"]
MORE = ">2000"
"""Printed if the votes did not end before 2,000 labels."""


def table1(quick: bool) -> Iterator[Case]:
    """Yield cases for MNIST at ε = 1, 2, 3 with two divisions into groups."""
    for named, variants in published("individualized-pate")["table1"]["MNIST"].items():
        shares = tuple(int(part) / 100 for part in named.removesuffix(" %").split("/"))
        promises = Promises("mnist", (1.0, 2.0, 3.0), shares)
        for variant in (*variants, AS_PRINTED):
            printed = variants.get(variant, {"labels": (None, None), "right": None})
            seeds = _seeds("mnist", "labels", quick)
            yield Case(f"{named}, {variant}", seeds, partial(_table1, promises, variant, seeds, printed), promises)


def table5(quick: bool) -> Iterator[Case]:
    """Yield cases for labels of MNIST if some people have ε = ln 2, and the others ln 4, ln 8 or ln 16."""
    return _cells("individualized-pate", "table5_mnist_labels", "mnist", "labels", quick)


def table7(quick: bool) -> Iterator[Case]:
    """Yield cases for labels of Adult if some people have ε = ln 2, and the others ln 4, ln 8 or ln 16."""
    return _cells("individualized-pate", "table7_adult_labels", "adult", "labels", quick)


def table8(quick: bool) -> Iterator[Case]:
    """Yield cases for students of MNIST if some people have ε = ln 2, and the others ln 4, ln 8 or ln 16."""
    return _cells("individualized-pate", "table8_mnist_student", "mnist", "student", quick)


def table9(quick: bool) -> Iterator[Case]:
    """Yield cases for students of Adult if some people have ε = ln 2, and the others ln 4, ln 8 or ln 16."""
    return _cells("individualized-pate", "table9_adult_student", "adult", "student", quick)


def thesis(table: str, name: str, what: str, quick: bool) -> Iterator[Case]:
    """Yield cases for labels or students (`what`) if 25, 50 or 75 % have ε = 1.5, 2, 3 or 5, and the others 1."""
    return _cells("personalizing-pate-thesis", table, name, what, quick)


def _cells(paper: str, table: str, name: str, what: str, quick: bool) -> Iterator[Case]:
    """Yield one case for each printed cell."""
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
    seeds = _seeds(promises.data, what, quick)
    rows = partial(_labels if what == "labels" else student, promises, variant, seeds, known)
    beside = promises if promises.shares in ((1.0,), (0.5, 0.5)) or promises.epsilons[0] == LN2 else None
    return Case(setting, seeds, rows, beside)


def _table1(promises: Promises, variant: str, seeds: Sequence[int], printed: Json) -> Sequence[Row]:
    found = _voted(promises, variant, seeds)
    known, spread = printed["labels"]
    return [
        found.row("queries", "points put to the vote, printed as labels", known, spread),
        found.row("labels", "labels", None),
        found.row("right", "labels right, %", printed["right"]),
    ]


def _labels(promises: Promises, variant: str, seeds: Sequence[int], known: float | str | None) -> Sequence[Row]:
    found = _voted(promises, variant, seeds)
    if known == MORE:
        return [found.row("labels", "labels, printed as more than 2,000", 2000)]
    return [
        found.row("labels", "labels", None if known is None else float(known)),
        found.row("queries", "points put to the vote", None),
        found.row("right", "labels right, %", None),
    ]


def student(promises: Promises, variant: str, seeds: Sequence[int], known: float | None) -> Sequence[Row]:
    """Return the accuracy of students trained on the released labels; see `_taught`."""
    found = _taught(promises.data, promises, variant, seeds)
    row = mean_row("student, %", known, found["here"], found["accounts"], "student")
    if second := SECOND.get(promises.data):
        row = replace(row, weaker=fmean(_taught(second, promises, variant, seeds)["here"]))
    return [row]


@dataclass(frozen=True)
class Voted:
    """Labels of one vote, for several tables.

    here: by the paper's accounting.  accounts: by this project's accounts, if real runs offer the variant.  weaker: as
    here, by the second ensemble of the data, if there is one.
    """

    here: Tally
    accounts: Tally | None
    weaker: Tally | None

    def row(self, what: str, quantity: str, known: float | None, spread: float | None = None) -> Row:
        """Return a row with `what`: "queries", "labels" or "right"."""
        return Row(
            quantity,
            known,
            getattr(self.here, what),
            spread=spread,
            here_spread=getattr(self.here, f"{what}_spread"),
            accounts=self.accounts and getattr(self.accounts, what),
            holders=None if what == "queries" else what,
            weaker=self.weaker and getattr(self.weaker, what),
            weaker_spread=self.weaker and getattr(self.weaker, f"{what}_spread"),
        )


def _voted(promises: Promises, variant: str, seeds: Sequence[int]) -> Voted:
    """Return the vote by the paper's accounting, once for each seed, and by the accounts if real runs offer it."""
    second = SECOND.get(promises.data)
    return Voted(
        _tally(promises.data, promises, variant, seeds, _by_paper),
        _tally(promises.data, promises, variant, seeds, _by_accounts) if variant in OFFERED else None,
        _tally(second, promises, variant, seeds, _by_paper) if second else None,
    )


def _tally(ensemble: str, promises: Promises, variant: str, seeds: Sequence[int], hold: Hold) -> Tally:
    about = _about(f"labels{hold.__name__.replace('_', '-')}", ensemble, promises, variant, seeds)
    return Tally(**kept_json(about, lambda: asdict(tally(hold(ensemble, promises, variant, seeds)))))


def _taught(ensemble: str, promises: Promises, variant: str, seeds: Sequence[int]) -> Json:
    """Return the test accuracy in per cent of students of the teachers' kind, trained on the released labels.

    For MNIST there are no students of the accounts' labels.
    """

    def right(hold: Hold) -> list[float]:
        held = zip(hold(ensemble, promises, variant, seeds), seeds, strict=True)
        return [_right(promises.data, one, seed) for one, seed in held]

    def measure() -> Json:
        accounts = variant in OFFERED and promises.data != "mnist"
        return {"here": right(_by_paper), "accounts": fmean(right(_by_accounts)) if accounts else None}

    return kept_json(_about("student", ensemble, promises, variant, seeds), measure)


def _about(what: str, ensemble: str, promises: Promises, variant: str, seeds: Sequence[int]) -> Json:
    about = {"of": promises.setting, "variant": variant, "seeds": len(seeds), "divisions": DIVISIONS[ensemble]}
    return about | {"name": f"{what}-{ensemble}"}


def _by_paper(ensemble: str, promises: Promises, variant: str, seeds: Sequence[int]) -> list[Counted]:
    """Return one vote for each seed, by the paper's accounting."""
    groups = _groups(promises)
    plan = plan_of(variant, groups, AGGREGATORS[promises.data])
    return [by_paper(printed_votes(ensemble, seed % DIVISIONS[ensemble]), plan, groups, seed) for seed in seeds]


def _by_accounts(ensemble: str, promises: Promises, variant: str, seeds: Sequence[int]) -> list[Counted]:
    """Return one vote for each seed, by this project's accounts."""
    groups, aggregator = _groups(promises), AGGREGATORS[promises.data]
    return [
        by_accounts(printed_votes(ensemble, seed % DIVISIONS[ensemble]), variant, groups, seed, aggregator)
        for seed in seeds
    ]


def _groups(promises: Promises) -> list[PrivacyGroup]:
    return groups_of(promises.epsilons, promises.shares, SIZES[promises.data][0])


def _right(name: str, counted: Counted, seed: int) -> float:
    data = divided(name, seed % DIVISIONS[name])
    x, labels = data.public.x[counted.rows], counted.labels
    if name == "mnist":
        from benchmarks.reproduce.ensembles import with_copies  # imports PyTorch, which is slow

        x, labels = with_copies(x, labels, seed=seed)
        model = learner_create("cnn", STUDENT).fit(x, labels, classes=CLASSES, seed=seed)
    else:
        model = LEARNERS[name].fit(x, labels, classes=2, seed=seed)
    return 100 * float((model.predict(data.test.x) == data.test.y).mean())


def _seeds(name: str, what: str, quick: bool) -> tuple[int, ...]:
    """Return the seeds. MNIST's students have only the first one, because they take long."""
    return SEEDS[name][:1] if quick or (name, what) == ("mnist", "student") else SEEDS[name]


def _budget(named: str) -> float:
    """Return the ε written as “ln 8” or “1.5”."""
    return math.log(float(named.removeprefix("ln "))) if named.startswith("ln ") else float(named)


def _two(name: str, low: str, larger: str, share: str) -> Promises:
    part = float(share.removesuffix(" %")) / 100
    return Promises(name, (_budget(low), _budget(larger)), (1 - part, part))
