"""Choices and plan for synthetic rows, the tables of each of three rounds, and the rows drawn from released counts.

The plan depends on caps and head counts; the tables depend on the schema and earlier releases; the rows depend on
releases.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.sentences import Sentence, gettext_noop
from common.spreadsheets import CsvWriter
from learning.forecasts import TABLE, Forecast
from learning.formats import TabularSchema
from learning.formats.columns import SEVERAL, CodeColumn, NumericColumn
from learning.mechanisms.choices import Choices, choice
from learning.mechanisms.counts.table_plan import (
    LARGEST_SIGMA,
    MOST_BINS,
    CountedColumn,
    CountsPlan,
    column_names,
    columns_of,
    feature_columns,
    noise_distance,
    plan_of,
)
from learning.mechanisms.counts.tables import PERSON, CountsQuestion, at_least_zero
from learning.mechanisms.protocol import PlannedLevel, content_digest
from learning.mechanisms.synthesis.model import (
    NOBODY,
    Edge,
    TreeModel,
    grouped,
    model_of,
    pairs_of,
    strength,
    strongest_tree,
)

MOST_ROWS = 200_000

SHARES = (0.10, 0.15, 0.75)
"""Parts of the run's share spent on tables of each column with the classes, of each pair of columns, and of the tree.
"""
MOST_COLUMNS = 100

MOST_COARSE, MOST_FINE = 8, 96
"""When pairs are counted, each group contains at least one in `MOST_COARSE` people; for the tree, one in `MOST_FINE`.
"""
PAIRS_DISTANCE = gettext_noop("distance caused by noise, over all pairs of columns, from 0 to 1")

_SPARE = 2  # extra groups: one for unknown values, one for rare values
_BY_NOISE = gettext_noop(
    "This estimate includes the noise, the head counts, and how many groups of values each column can have. It does "
    "not include dependencies between columns that a tree cannot represent."
)
_ROUNDING = 1 + 1e-9
_FEW = 8.0

Numbers = NDArray[np.float64]
ROUNDS = 3

# A group contains at least one in this many people (first number), and at least this many standard deviations of the
# tables' noise (second number).
_COARSE = (MOST_COARSE, 2.0)
_FINE = (MOST_FINE, 10.0)


@dataclass(frozen=True)
class Synthesis(Choices):
    """Choices for a run that releases synthetic rows; see :class:`learning.mechanisms.choices.Choices`."""

    rows: int | None = choice(
        None,
        gettext_noop("Synthetic rows"),
        gettext_noop("The number of rows does not change what people are charged."),
        minimum=100,
        maximum=MOST_ROWS,
        unset=gettext_noop("one row per person, according to the head counts"),
    )
    bins: int = choice(
        100,
        gettext_noop("Number of bins for a numeric column"),
        gettext_noop(
            "Bins have equal width across the range declared in the schema. Numbers in synthetic rows are only as "
            "precise as these bins."
        ),
        minimum=2,
        maximum=100,
    )


@dataclass(frozen=True)
class SynthesisPlan:
    """Plan of the three rounds.

    Attributes:
        rounds: Plan of each round. Its ``cells`` is the number of tables, because the number of cells depends on the
            previous round.
    """

    rounds: tuple[CountsPlan, ...]
    rows: int
    bins: int

    def describe(self) -> dict[str, Any]:
        """Return a public description of the mechanism, for cards."""
        return {
            "name": "synthesis",
            "rows": self.rows,
            "tables": [each.cells for each in self.rounds],
            "sigmas": [each.sigma for each in self.rounds],
            "reference": self.rounds[0].reference,
        }

    def to_json(self, part: float = 1.0) -> list[dict[str, Any]]:
        """Return JSON of each round for a run; `synthesis_plan_from_json` is the inverse.

        Args:
            part: Part of the run's share that all three rounds may use.
        """
        until = (part * np.cumsum(SHARES)).round(12).tolist()
        about = {"rows": self.rows, "bins": self.bins}
        return [
            {"marginals": each.to_json() | about, "until": end}
            for each, end in zip(self.rounds, [*until[:-1], part], strict=True)
        ]


def synthesis_plan_from_json(rounds: Sequence[Mapping[str, Any]]) -> SynthesisPlan:
    """Return the plan stored in a run's rounds."""
    marginals = [dict(each["marginals"]) for each in rounds if is_counted(each)]
    rows, bins = ([each.pop(name) for each in marginals] for name in ("rows", "bins"))
    return SynthesisPlan(tuple(CountsPlan(**each) for each in marginals), rows[0], bins[0])


def is_counted(planned: Mapping[str, Any]) -> bool:
    """Return whether a stored round of a run is a round of this plan.

    >>> is_counted({"marginals": {}, "until": 0.1}), is_counted({"plan": {}, "until": 1.0})
    (True, False)
    """
    return "marginals" in planned


def plan_synthesis(
    levels: Sequence[PlannedLevel], *, columns: int, share: float, rows: int | None, bins: int
) -> SynthesisPlan:
    """Plan the noise at which people with the largest cap use their whole share.

    In a round of T tables, each person adds a vector of norm at most √T times their weight √(cap / largest).

    Args:
        levels: Promises with their caps and head counts; at least one head count is above 0.
        columns: Number of columns without the classes.
        rows: Number of rows to draw; None for the number of people.

    Raises:
        ValueError: There are too few or too many columns, or the noise is larger than can be drawn.

    >>> plan = plan_synthesis([PlannedLevel("ALL", 0.0625, 1000.0)], columns=4, share=1.0, rows=None, bins=9)
    >>> [round(each.sigma, 1) for each in plan.rounds], [each.cells for each in plan.rounds], plan.rows
    ([25.3, 25.3, 9.2], [4, 6, 4], 1000)
    """
    if not 2 <= columns <= MOST_COLUMNS:
        raise ValueError(
            f"Rows can have 2 to {MOST_COLUMNS} columns besides the class, but the schema declares {columns}: "
            "ignore some of them."
        )
    caps = np.array([level.cap for level in levels])
    people = np.array([max(level.holders, 0.0) for level in levels])
    reference = float(caps.max())
    plans = []
    for tables, part in zip((columns, columns * (columns - 1) // 2, columns), SHARES, strict=True):
        sigma = math.sqrt(tables / (share * part * reference)) * _ROUNDING
        if sigma > LARGEST_SIGMA:
            raise ValueError(
                f"These promises need noise of {sigma:.0f} people, but at most {LARGEST_SIGMA:.0f} can be drawn: plan "
                "a larger share, or ignore columns."
            )
        plans.append(plan_of(levels, sigma, reference, tables))
    drawn = rows or min(max(round(float(people.sum())), 100), MOST_ROWS)
    return SynthesisPlan(tuple(plans), drawn, bins)


def forecast_rows(plan: SynthesisPlan, sizes: Sequence[int], classes: int) -> Forecast:
    """Forecast the largest effect of noise over all pairs of columns, before anyone is charged.

    Args:
        sizes: Number of cells of each column.
    """
    pairs = plan.rounds[1]
    groups = [min(size, MOST_COARSE + _SPARE) for size in sizes]
    most = np.mean([noise_distance(pairs.sigma, classes * a * b, pairs.weight) for a, b in combinations(groups, 2)])
    return Forecast(TABLE, None, 0.0, float(most), 0.0, 0, Sentence(_BY_NOISE), PAIRS_DISTANCE)


def plan_notes(plan: SynthesisPlan) -> tuple[Sentence, ...]:
    """Return notes about synthetic rows for the person who approves them."""
    last = plan.rounds[-1]
    notes = [
        Sentence(
            gettext_noop(
                "%(rows)d rows are drawn from counts of the classes together with each column, and along a tree of "
                "%(columns)d columns. The rows do not show how three or more columns depend on each other, except "
                "through their classes."
            ),
            rows=plan.rows,
            columns=last.cells,
        )
    ]
    if last.weight < _FEW * last.sigma * math.sqrt(last.cells):
        notes.append(
            Sentence(
                gettext_noop(
                    "There are too few people for this much noise: most cell counts are accurate only to within "
                    "%(error)d of about %(people)d people. Use a larger share, or ignore columns."
                ),
                error=math.ceil(last.error_of(0.0)),
                people=round(last.people),
            )
        )
    return tuple(notes)


@dataclass(frozen=True)
class Marginals:
    """Counts released so far.

    Attributes:
        schema: Schema of the records, which declares classes.
        caps: Caps of the promises in the run's plan, in μ².
        released: Sums of each round so far, in units in which a person of weight 1 is `PERSON`.
    """

    schema: TabularSchema
    plan: SynthesisPlan
    caps: tuple[float, ...]
    released: tuple[NDArray[np.int64], ...] = ()

    def after(self, sums: NDArray[np.int64]) -> Marginals:
        """Return the counts including the release of another round."""
        return Marginals(self.schema, self.plan, self.caps, (*self.released, sums))

    def question(self, index: int) -> CountsQuestion:
        """Return the question of a round; all earlier rounds must have been released."""
        tables = (self._histogram_tables, self._pair_tables, self._tree_tables)[index]()
        return CountsQuestion(self.plan.rounds[index], tuple(tables), self.caps, name="synthesis")

    @cached_property
    def label(self) -> CountedColumn:
        return columns_of(self.schema, column_names(self.schema)[:1], self.plan.bins)[0]

    @cached_property
    def columns(self) -> tuple[CountedColumn, ...]:
        """Columns without the classes, with all their cells."""
        return feature_columns(self.schema, self.plan.bins)

    @cached_property
    def histograms(self) -> list[Numbers]:
        """Counts (classes, cells) of each column."""
        return self._counts(0)

    @cached_property
    def coarse(self) -> tuple[CountedColumn, ...]:
        """Columns with the groups used to count pairs."""
        return self._grouped(*_COARSE, self.plan.rounds[1].sigma)

    @cached_property
    def fine(self) -> tuple[CountedColumn, ...]:
        """Columns with the groups used to count the tree."""
        return self._grouped(*_FINE, self.plan.rounds[2].sigma)

    @cached_property
    def edges(self) -> list[Edge]:
        sigma = self.plan.rounds[1].sigma
        return strongest_tree(len(self.columns), [strength(table, sigma) for table in self.pairs])

    @cached_property
    def model(self) -> TreeModel:
        sigmas = (self.plan.rounds[0].sigma, self.plan.rounds[2].sigma)
        return model_of(self.fine, self.edges, self.histograms, self.tables, sigmas)

    @cached_property
    def pairs(self) -> list[Numbers]:
        """Counts (classes, groups, groups) of each pair of columns, in the groups of `coarse`."""
        return self._counts(1)

    @cached_property
    def tables(self) -> list[Numbers]:
        """Counts for each edge of the tree."""
        return self._counts(2)

    def _counts(self, index: int) -> list[Numbers]:
        return [table / PERSON for table in self.question(index).of_tables(self.released[index])]

    def _grouped(self, most: int, deviations: float, sigma: float) -> tuple[CountedColumn, ...]:
        clean = [np.sum([at_least_zero(row) for row in table], axis=0) for table in self.histograms]
        smallest = max(float(np.median([counts.sum() for counts in clean])) / most, deviations * sigma)
        return tuple(grouped(column, counts, smallest) for column, counts in zip(self.columns, clean, strict=True))

    def _histogram_tables(self) -> list[tuple[CountedColumn, ...]]:
        return [(self.label, column) for column in self.columns]

    def _pair_tables(self) -> list[tuple[CountedColumn, ...]]:
        return [(self.label, self.coarse[a], self.coarse[b]) for a, b in pairs_of(len(self.columns))]

    def _tree_tables(self) -> list[tuple[CountedColumn, ...]]:
        fine = self.fine
        return [
            (self.label, fine[child]) if parent == NOBODY else (self.label, fine[parent], fine[child])
            for parent, child in self.edges
        ]


_DIGITS = 4


@dataclass(frozen=True)
class Marginal:
    """Measured table: columns, number of cells, the error that 5 % of counts exceed, and the distance from the rows.

    ``distance`` is the total variation between the rows and the released table, including its noise.
    """

    columns: tuple[str, ...]
    cells: int
    error: float
    distance: float


@dataclass(frozen=True)
class Description:
    """Description of synthetic rows for a page and a card.

    Attributes:
        columns: Names, ending with the classes.
        marginals: Tables measured along the tree.
        pairs: Total variation between the rows and the released tables, averaged over all pairs of columns within
            classes.
        noise: Part of ``pairs`` due to noise in the released tables, computed from its standard deviation.
    """

    columns: tuple[str, ...]
    rows: int
    marginals: tuple[Marginal, ...]
    pairs: float
    noise: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON with lists instead of tuples, so that it equals the value read from a database."""
        return json.loads(json.dumps(asdict(self)))

    def __len__(self) -> int:
        return self.rows


class RowsDescription(Protocol):
    """Any description of rows that names their ``columns``, ending with the classes."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def to_json(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=RowsDescription)


@dataclass(frozen=True, eq=False)
class SyntheticRows(Generic[S]):
    """Drawn rows: encoded records ``x`` (n, …), their ``classes`` (n,), and a ``description``."""

    schema: TabularSchema
    x: NDArray[np.float32]
    classes: NDArray[np.int64]
    description: S

    def __len__(self) -> int:
        return len(self.x)

    def to_json(self) -> dict[str, Any]:
        return self.description.to_json()

    def values(self) -> Iterator[list[str]]:
        """Yield the values of each column in the form used in files."""
        start = 0
        for column in self.schema.features:
            yield _written(column, self.x[:, start : start + len(column.features)])
            start += len(column.features)

    def to_csv(self) -> str:
        """Return a header and a line per row in the schema's file format, safe from spreadsheet formulas."""
        text = io.StringIO()
        columns = [*self.values(), [self.schema.classes[number] for number in self.classes.tolist()]]
        lines = CsvWriter(text)
        lines.writerow([*(column.name for column in self.schema.features), self.description.columns[-1]])
        lines.writerows(zip(*columns, strict=True))
        return text.getvalue()


def _written(column: Any, encoded: NDArray[np.float32]) -> list[str]:
    """Return values of a column in the form used in files."""
    missing = column.missing[0] if column.missing else ""
    if isinstance(column, NumericColumn):
        unknown = encoded[:, 1] > 0 if column.missing else np.zeros(len(encoded), bool)
        numbers = column.minimum + encoded[:, 0].astype(np.float64) * (column.maximum - column.minimum)
        return [missing if skip else f"{value:.6g}" for value, skip in zip(numbers.tolist(), unknown, strict=True)]
    names = [name.removeprefix(f"{column.name} = ") for name in column.features]
    if isinstance(column, CodeColumn) and column.several:
        return [SEVERAL.join(np.array(names)[record > 0]) or missing for record in encoded]
    place = np.where(encoded.any(axis=1), encoded.argmax(axis=1), len(names))
    return [[*names, missing][each] for each in place.tolist()]


def rows_draw(marginals: Marginals, noisier: float = 1.0) -> SyntheticRows[Description]:
    """Draw rows from the model based on all rounds, with a seed derived from the releases.

    ``noisier`` is the ratio of the noise in the releases to that of the questions.
    """
    digest = content_digest({str(number): sums for number, sums in enumerate(marginals.released)})
    rng = np.random.default_rng(int(hashlib.sha256(digest.encode()).hexdigest(), 16))
    classes, cells = marginals.model.draw(marginals.plan.rows, rng)
    x = np.zeros((len(classes), *marginals.schema.shape), np.float32)
    for number, column in enumerate(marginals.columns):
        cells_encode(x, column, cells[:, number], rng)
    names = tuple(column.name for column in (*marginals.columns, marginals.label))
    return SyntheticRows(
        marginals.schema, x, classes, Description(names, len(x), *_distances(marginals, classes, cells, noisier))
    )


def uniform_rows(schema: TabularSchema, number: int) -> NDArray[np.float32]:
    """Return records (number, …) that depend only on the schema: in each column, all values are equally likely.

    These records stand in for people before the first release.
    """
    rng = np.random.default_rng(0)
    x = np.zeros((number, *schema.shape), np.float32)
    for column in feature_columns(schema, MOST_BINS):
        cells_encode(x, column, rng.integers(0, len(column.cells), number), rng)
    return x


def cells_encode(
    x: NDArray[np.float32], column: CountedColumn, cells: NDArray[np.int64], rng: np.random.Generator
) -> None:
    """Write values in these ``cells`` (n,) of a column into the encoded records ``x`` (n, …).

    A number is drawn uniformly within its bin; in the first bin, it is the smallest number, so that many zeros stay
    zero.
    """
    bins = len(column.edges) - 1
    known = np.flatnonzero(cells < (bins if bins > 0 else column.width))
    if bins > 0:
        x[known, column.start] = (cells[known] + rng.random(len(known)) * (cells[known] > 0)) / bins
        if column.width > 1:
            x[cells >= bins, column.start + 1] = 1.0
    else:
        x[known, column.start + cells[known]] = 1.0


def _distances(
    marginals: Marginals, classes: NDArray[np.int64], cells: NDArray[np.int64], noisier: float
) -> tuple[tuple[Marginal, ...], float, float]:
    """Return distances between the rows and the released tables, with negative counts removed."""
    last = marginals.plan.rounds[2]
    summaries = []
    for (parent, child), table in zip(marginals.edges, marginals.tables, strict=True):
        columns = [marginals.fine[each] for each in (parent, child) if each != NOBODY]
        rows = [cells[:, each] for each in (parent, child) if each != NOBODY]
        names = (marginals.label.name, *(column.name for column in columns))
        distance = _distance(table, _counted(classes, table.shape[0], columns, rows))
        error = noisier * last.error_of(last.people / table.size)
        summaries.append(Marginal(names, table.size, round(error, 1), round(distance, _DIGITS)))
    sigma, apart, noise = noisier * marginals.plan.rounds[1].sigma, [], []
    for (a, b), table in zip(pairs_of(len(marginals.columns)), marginals.pairs, strict=True):
        columns = [marginals.coarse[a], marginals.coarse[b]]
        counted = _counted(classes, table.shape[0], columns, [cells[:, a], cells[:, b]])
        apart.append(_distance(table, counted))
        noise.append(min(noise_distance(sigma, table.size, float(table.sum())), apart[-1]))
    return tuple(summaries), round(float(np.mean(apart)), _DIGITS), round(float(np.mean(noise)), _DIGITS)


def _counted(
    classes: NDArray[np.int64], number: int, columns: list[CountedColumn], rows: list[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return the table of these columns, counted from the rows."""
    place, size = classes, number
    for column, cells in zip(columns, rows, strict=True):
        place, size = place * column.size + np.array(column.groups)[cells], size * column.size
    return np.bincount(place, minlength=size).astype(np.float64)


def _distance(released: NDArray[np.float64], counted: NDArray[np.float64]) -> float:
    """Return the total variation distance between two tables as distributions."""
    counts = at_least_zero(released.ravel())
    if counts.sum() <= 0:
        return 1.0
    return float(np.abs(counts / counts.sum() - counted / counted.sum()).sum()) / 2
