"""Rows by plausible deniability: choices, plan and cost, seed records, the test that releases rows, and the question.

Rows are made by Mechanism 1 of the paper and tested by its Privacy Test 2. The answers contain the unchanged codes of
every record, so only rehearsals may ask this question. The paper's mechanism does not keep iPATE's promises, so no one
is charged for a release.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.privacy.papers.deniability import composed_epsilon, row_cost
from common.declarations import Stored
from common.noise import Noise
from common.sentences import Sentence, gettext_noop
from learning.formats import TabularSchema
from learning.mechanisms.choices import Choices, Fault, choice
from learning.mechanisms.counts.table_plan import CountedColumn, Places
from learning.mechanisms.deniability.network import Codes, RowNetwork, network_learn
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, PlanError, Records, content_digest
from learning.mechanisms.synthesis.rounds import SyntheticRows, cells_encode

COUNTS = (1, 10, 100, 1_000, 10_000)
"""Numbers of released rows for which a plan shows the joint cost."""


@dataclass(frozen=True)
class Deniability(Choices):
    """Choices for plausible deniability. The defaults are the paper's, except for the number of rows."""

    released: int = choice(
        1000,
        gettext_noop("Rows to release"),
        gettext_noop("Each row has its own cost. The plan shows the total."),
        minimum=1,
        maximum=100_000,
    )
    plausible: int = choice(
        50,
        gettext_noop("Plausible seeds (k)"),
        gettext_noop("A row is released only if about this many records could equally well have been its seed."),
        minimum=2,
        maximum=100_000,
    )
    gamma: float = choice(
        4.0,
        gettext_noop("How similar plausible seeds are (γ)"),
        gettext_noop(
            "Records are plausible seeds of a row if their probabilities of producing it lie between the "
            "same two powers of γ."
        ),
        minimum=1.01,
        maximum=1000.0,
    )
    epsilon0: float = choice(
        1.0,
        gettext_noop("ε₀ for the test"),
        gettext_noop("The number of plausible seeds is compared with k plus Laplace noise of scale 1/ε₀."),
        minimum=0.01,
        maximum=100.0,
    )
    fewest: int | None = choice(
        None,
        gettext_noop("Minimum number of redrawn columns (ω)"),
        gettext_noop("All other columns are copied from the seed. The classes count as one column."),
        minimum=0,
        maximum=1000,
        unset=gettext_noop("all but two"),
    )
    most: int | None = choice(
        None,
        gettext_noop("Maximum number of redrawn columns (ω)"),
        gettext_noop("For each row, the number is drawn at random between the minimum and this maximum."),
        minimum=0,
        maximum=1000,
        unset=gettext_noop("all of them"),
    )
    values: int = choice(
        20,
        gettext_noop("Number of values per numeric column"),
        gettext_noop("Bins of equal width across the range declared in the schema."),
        minimum=2,
        maximum=100,
    )
    network: float = choice(
        1.0,
        gettext_noop("ε for the network"),
        gettext_noop(
            "This ε applies separately to the quarter of the records that determines the network's structure and to "
            "the quarter that determines its parameters."
        ),
        minimum=0.01,
        maximum=100.0,
    )

    def faults(self) -> Iterator[Fault]:
        if self.fewest is not None and self.most is not None and self.fewest > self.most:
            yield "fewest", "The minimum number of columns exceeds the maximum: swap them."


@dataclass(frozen=True)
class RowsCost(Stored):
    """Joint cost of several released rows, at the study's δ."""

    rows: int
    epsilon: float


@dataclass(frozen=True)
class DeniabilityPlan(Stored):
    """Plan of a release of rows.

    Attributes:
        fewest, most: Limits on the number of columns that are drawn again.
        network: ε of the network's structure and also of its parameters, which are learned from separate records.
        epsilon, delta, t: Cost of a released row to the person whose record is a seed, by Theorem 1.
        costs: Joint costs for several numbers of rows, ending with the planned number.
    """

    rows: int
    k: int
    gamma: float
    epsilon0: float
    fewest: int
    most: int
    network: float
    epsilon: float
    delta: float
    t: int
    costs: tuple[RowsCost, ...]

    @property
    def omegas(self) -> range:
        """Possible numbers of redrawn columns; one is drawn for each row."""
        return range(self.fewest, self.most + 1)

    @property
    def spent(self) -> float:
        """Largest ε that the run costs any person, as a seed or as a record counted for the network."""
        return max(self.costs[-1].epsilon, self.network)


def plan_deniability(chosen: Deniability, *, columns: int, records: int, delta: float) -> DeniabilityPlan:
    """Plan the cost of rows, with half of the records as seeds.

    Args:
        columns: Number of columns, including the classes.
        delta: δ of the study; a tenth of it is reserved for the δ of all rows.

    Raises:
        ValueError: ω exceeds the number of columns, k exceeds the number of seeds, or k or ε₀ is too small for δ.

    >>> plan = plan_deniability(Deniability(), columns=11, records=30_000, delta=1e-5)
    >>> list(plan.omegas), plan.t, round(plan.epsilon, 2), round(plan.costs[-1].epsilon)
    ([9, 10, 11], 29, 1.13, 704)
    """
    most = columns if chosen.most is None else chosen.most
    fewest = min(max(columns - 2, 0), most) if chosen.fewest is None else chosen.fewest
    if not fewest <= most <= columns:
        raise ValueError(f"Between {fewest} and {most} columns should be redrawn, but there are only {columns}.")
    if chosen.plausible > records // 2:
        raise ValueError(
            f"Half of the {records} records are seeds, fewer than k = {chosen.plausible}, so no row could be "
            "released. Use a smaller k or more records."
        )
    of_row = delta / (10 * chosen.released)
    epsilon, t = row_cost(chosen.plausible, chosen.gamma, chosen.epsilon0, of_row)
    counts = [*(number for number in COUNTS if number < chosen.released), chosen.released]
    costs = tuple(RowsCost(number, composed_epsilon(epsilon, of_row, number, delta)) for number in counts)
    return DeniabilityPlan(
        chosen.released,
        chosen.plausible,
        chosen.gamma,
        chosen.epsilon0,
        fewest,
        most,
        chosen.network,
        epsilon,
        of_row,
        t,
        costs,
    )


def plan_notes(plan: DeniabilityPlan, promised: float) -> tuple[Sentence, ...]:
    """Return notes for planners of rows with plausible deniability; ``promised`` is the largest ε of the rehearsal."""
    if plan.spent <= promised:
        return ()
    return (
        Sentence(
            gettext_noop(
                "Together, the %(rows)d rows cost ε = %(spent).1f, but the largest promise in this rehearsal is "
                "%(promised)g. No one could be promised such a cost. Rows from noisy counts cost the same no matter "
                "how many are drawn."
            ),
            rows=plan.rows,
            spent=plan.spent,
            promised=promised,
        ),
    )


_MOST_KEYS = 2**62

LEAST, ALIKE = (10, 50, 100, 500), (2.0, 4.0, 10.0)
"""k and γ for which a run reports the number of rows that pass."""
_TRIED = 1_000  # number of rows for each γ and ω
_ATTEMPTS = 50
_COARSE = 10  # number of groups into which a numeric column's bins are combined if the column is a parent


@dataclass(frozen=True)
class DeniabilityTest:
    """Test that releases a row if at least k + Lap(1/ε₀) records are as plausible as its actual seed.

    Attributes:
        k: Smallest number of plausible seeds.
        gamma: Seeds are equally plausible if their probabilities of producing the row lie between γ^-(i+1) and γ^-i for
            the same i.
        epsilon0: ε₀ of the threshold's noise; None for the test without noise, which is not differentially private.
    """

    k: int
    gamma: float
    epsilon0: float | None

    def passes(self, plausible: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return whether each row (N,) is released, given its number of plausible seeds."""
        noise = 0.0 if self.epsilon0 is None else rng.laplace(0, 1 / self.epsilon0, len(plausible))
        return plausible >= self.k + noise


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows (N, m) of codes. Their numbers of ``plausible`` seeds (N,), which include the actual seed, are secret."""

    codes: Codes
    plausible: NDArray[np.int64]


def synthesise(
    network: RowNetwork, seeds: Codes, omegas: Sequence[int], number: int, gamma: float, rng: np.random.Generator
) -> Candidates:
    """Return copies of random seeds, in which the last ω columns in the network's order are drawn again.

    ω is drawn from ``omegas`` for each row. The probability that a record produces a row y is Σ_ω 1[the record agrees
    with y on the first m - ω columns]·Π p(y_j | parents) / |omegas|, with the product over the other columns. The
    probability is computed from the length of the prefix on which the record and y agree.

    Args:
        seeds: Codes (S, m) of the seeds.
        omegas: Possible numbers of redrawn columns, each between 0 and m.
        gamma: γ of the test.
    """
    prefixes = np.array(sorted({network.columns - omega for omega in omegas}))
    if prefixes[0] < 0 or prefixes[-1] > network.columns:
        raise ValueError(f"omegas must lie between 0 and the {network.columns} columns")
    seed = rng.integers(0, len(seeds), number)
    length = rng.choice(prefixes, number)
    rows = seeds[seed]
    for place, column in enumerate(network.order):
        anew = np.flatnonzero(length <= place)
        if len(anew):
            part = rows[anew]
            network.resample(part, column, rng)
            rows[anew] = part
    return Candidates(rows, _plausible(network, seeds, rows, seed, prefixes, gamma))


@dataclass(frozen=True)
class DeniabilityQuestion:
    """Question for rows with plausible deniability; see :class:`learning.mechanisms.protocol.Question`.

    Attributes:
        columns: Columns of the records, ending with the classes.
    """

    plan: DeniabilityPlan
    columns: tuple[CountedColumn, ...]

    fitted = None
    size = 1
    grain = 1.0
    sigma = 0.0
    spread = None

    def digest(self) -> str:
        return content_digest({}, json.dumps([self.plan.to_json(), list(map(asdict, self.columns))]))

    def describe(self) -> dict[str, Any]:
        return {"name": "deniability", "columns": len(self.columns), **self.plan.to_json()}

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> None:
        """Return None: the question does not depend on earlier releases."""

    def bounds(self, part: slice) -> None:
        """Return None, because no one is charged."""

    def answer(
        self, part: slice, state: None, people: People, records: Callable[[], Records], *, alone: bool, draws: Draws
    ) -> Arrays:
        places = Places(records())
        codes = np.stack([places.cells((column,)) for column in self.columns], axis=1)
        return {"codes": codes[(codes >= 0).all(axis=1)], "charge": np.zeros(len(people.holders))}

    def release(self, part: slice, state: None, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        rng = np.random.default_rng(np.abs(noise.rounded_normal(2.0**30, (4,))).tolist())
        codes = np.concatenate([answer["codes"] for answer in answers])
        codes = codes[np.lexsort(codes.T)]  # sorted to hide the order of answers
        sizes = [column.size for column in self.columns]
        model = network_learn(codes, sizes, list(map(_groups, self.columns)), self.plan.network, self.plan.delta, rng)
        test = DeniabilityTest(self.plan.k, self.plan.gamma, self.plan.epsilon0)
        rows: list[Codes] = []
        tried = accepted = 0
        while accepted < self.plan.rows and tried < _ATTEMPTS * self.plan.rows:
            made = synthesise(model.network, model.seeds, self.plan.omegas, self.plan.rows, self.plan.gamma, rng)
            rows.append(made.codes[test.passes(made.plausible, rng)])
            tried, accepted = tried + self.plan.rows, accepted + len(rows[-1])
        if not accepted:
            raise PlanError(
                gettext_noop(
                    "No row passed the test, because for every row too few records could have been its seed. Use a "
                    "smaller k, redraw more columns, or use more records."
                )
            )
        passing = [
            DeniabilityTest(k, gamma, self.plan.epsilon0).passes(plausible, rng).mean()
            for omegas in self.tried
            for gamma in ALIKE
            for plausible in [synthesise(model.network, model.seeds, omegas, _TRIED, gamma, rng).plausible]
            for k in LEAST
        ]
        arrays = {
            "rows": np.concatenate(rows)[: self.plan.rows],
            "tried": np.array([tried, accepted]),
            "passing": np.array(passing).reshape(-1, len(ALIKE), len(LEAST)),
            "parents": _matrix(model.network.parents),
        }
        return PartRelease(size=self.size, content={"digest": content_digest(arrays)}, arrays=arrays)

    @property
    def tried(self) -> list[list[int]]:
        """Lists of ω for which passing rows are reported.

        The lists are: the planned values; all columns, all but one, and all but two; and all numbers from half of the
        columns.
        """
        whole = len(self.columns)
        others = [[omega] for omega in (whole, whole - 1, whole - 2) if omega >= 0]
        return [list(self.plan.omegas), *others, list(range(whole // 2, whole + 1))]


@dataclass(frozen=True)
class Passing:
    """Share of rows that pass for each k, given γ and the possible numbers of redrawn columns."""

    omegas: str
    gamma: float
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Parents:
    """A column of the network, with the columns that it depends on."""

    column: str
    parents: tuple[str, ...]


@dataclass(frozen=True)
class DeniableDescription:
    """Description of released rows for a page and a card. The rows are not covered by any promise.

    Attributes:
        columns: Names, ending with the classes.
        tried: Number of rows made; ``passed`` is the number of rows that passed the test.
        least: Values of k for which ``passing`` has shares.
    """

    columns: tuple[str, ...]
    rows: int
    tried: int
    passed: int
    least: tuple[int, ...]
    passing: tuple[Passing, ...]
    network: tuple[Parents, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON with lists instead of tuples, so that it equals the value read from a database."""
        entry = asdict(self)
        return json.loads(json.dumps({name: entry.pop(name) for name in ("columns", "rows")} | {"deniability": entry}))


def deniable_rows(
    question: DeniabilityQuestion, schema: TabularSchema, released: Arrays
) -> SyntheticRows[DeniableDescription]:
    """Return the released rows. A number's random position within its bin is derived from the release."""
    codes, columns = released["rows"], question.columns
    rng = np.random.default_rng(int(content_digest(released), 16))
    x = np.zeros((len(codes), *schema.shape), np.float32)
    for place, column in enumerate(columns[:-1]):
        cells_encode(x, column, codes[:, place], rng)
    tried, passed = released["tried"].tolist()
    description = DeniableDescription(
        tuple(column.name for column in columns),
        len(codes),
        tried,
        passed,
        LEAST,
        tuple(
            Passing(_numbers(omegas), gamma, tuple(shares))
            for omegas, tables in zip(question.tried, released["passing"].round(3).tolist(), strict=True)
            for gamma, shares in zip(ALIKE, tables, strict=True)
        ),
        tuple(_parents(columns, released)),
    )
    return SyntheticRows(schema, x, codes[:, -1], description)


def _plausible(
    network: RowNetwork, seeds: Codes, rows: Codes, seed: NDArray[np.int64], prefixes: NDArray[np.int64], gamma: float
) -> NDArray[np.int64]:
    # For each prefix of columns: how many seeds agree on it, whether the actual seed does, and log Σ of the
    # probabilities so far.
    logs = np.zeros((network.columns + 1, len(rows)))
    for place in reversed(range(network.columns)):
        logs[place] = logs[place + 1] + np.log(network.probability(rows, network.order[place]))
    agree = np.stack([_agreeing(network.order[:prefix], seeds, rows) for prefix in prefixes])
    mine = np.stack([(rows == seeds[seed])[:, network.order[:prefix]].all(axis=1) for prefix in prefixes])
    total = np.logaddexp.accumulate(logs[prefixes], axis=0) - math.log(len(prefixes))
    bucket = np.floor(-total / math.log(gamma) + 1e-9)
    level = mine.sum(axis=0) - 1
    exactly = agree - np.vstack([agree[1:], np.zeros((1, len(rows)), dtype=np.int64)])
    own = np.take_along_axis(bucket, level[None], axis=0)
    return np.where(bucket == own, exactly, 0).sum(axis=0)


def _agreeing(columns: list[int], seeds: Codes, rows: Codes) -> NDArray[np.int64]:
    """Return the number (N,) of seeds that agree with each row on these columns."""
    if not columns:
        return np.full(len(rows), len(seeds), dtype=np.int64)
    sizes = [int(max(seeds[:, column].max(), rows[:, column].max())) + 1 for column in columns]
    if math.prod(sizes) >= _MOST_KEYS:
        raise ValueError("The columns have too many combinations of values: use fewer or coarser columns.")
    weights = np.array([math.prod(sizes[place + 1 :]) for place in range(len(columns))], dtype=np.int64)
    keys, of_rows = np.sort(seeds[:, columns] @ weights), rows[:, columns] @ weights
    return np.searchsorted(keys, of_rows, side="right") - np.searchsorted(keys, of_rows, side="left")


def _groups(column: CountedColumn) -> NDArray[np.int64]:
    """Return the coarser value of each cell: groups of adjacent bins for numbers, unchanged for other values."""
    bins, cells = len(column.edges) - 1, np.arange(column.size)
    if bins <= _COARSE:
        return cells
    return np.where(cells < bins, cells * _COARSE // bins, _COARSE + cells - bins)


def _matrix(parents: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Return a mask (columns, columns) that is True where the second column is a parent of the first."""
    matrix = np.zeros((len(parents), len(parents)), bool)
    for column, those in enumerate(parents):
        matrix[column, list(those)] = True
    return matrix


def _numbers(omegas: Sequence[int]) -> str:
    return str(omegas[0]) if len(omegas) == 1 else f"{omegas[0]} – {omegas[-1]}"


def _parents(columns: Sequence[CountedColumn], released: Arrays) -> list[Parents]:
    names = np.array([column.name for column in columns])
    return [Parents(name, tuple(names[those].tolist())) for name, those in zip(names, released["parents"], strict=True)]
