"""Choices and plan of synthetic rows: the tables of each of three rounds, and their noise.

The plan follows from caps and head counts, the tables from the schema and from earlier rounds' releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.sentences import Sentence, gettext_noop
from learning.forecasts import TABLE, Forecast
from learning.formats import TabularSchema
from learning.mechanisms.choices import Choices, choice
from learning.mechanisms.counts.table_plan import (
    LARGEST_SIGMA,
    CountedColumn,
    CountsPlan,
    column_names,
    columns_of,
    feature_columns,
    noise_distance,
    plan_of,
)
from learning.mechanisms.counts.tables import PERSON, CountsQuestion, at_least_zero
from learning.mechanisms.protocol import PlannedLevel
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
"""Parts of the run's share: for every column against the classes, for every pair of columns, for the tree."""
MOST_COLUMNS = 100

MOST_COARSE, MOST_FINE = 8, 96
"""Least part of all people in a group, for counting pairs and the tree."""
PAIRS_DISTANCE = gettext_noop("distance over all pairs of columns that comes from noise, 0 to 1")

_SPARE = 2  # groups: of unknown or rare values
_BY_NOISE = gettext_noop(
    "This includes the noise, the head counts, and how many groups of values each column can have. It does not "
    "include dependencies between columns that go beyond a tree."
)
_ROUNDING = 1 + 1e-9
_FEW = 8.0

Numbers = NDArray[np.float64]
ROUNDS = 3

# Least content of groups as a part of all, and in standard deviations of the noise of the tables that count them.
_COARSE = (MOST_COARSE, 2.0)
_FINE = (MOST_FINE, 10.0)


@dataclass(frozen=True)
class Synthesis(Choices):
    """See :class:`learning.mechanisms.choices.Choices`."""

    rows: int | None = choice(
        int,
        None,
        gettext_noop("Synthetic rows"),
        gettext_noop("The number of rows does not change what people are charged."),
        minimum=100,
        maximum=MOST_ROWS,
        unset=gettext_noop("as many as there are people according to the head counts"),
    )
    bins: int = choice(
        int,
        100,
        gettext_noop("Bins of a column of numbers"),
        gettext_noop(
            "Bins have equal width over the range declared in the schema. Numbers in synthetic rows are only as "
            "precise as these bins."
        ),
        minimum=2,
        maximum=100,
    )


@dataclass(frozen=True)
class SynthesisPlan:
    """Plan of the three rounds.

    Attributes:
        rounds: plan of each; its ``cells`` are its tables, because their cells follow from the round before.
        rows: number of drawn rows.
        bins: of a column of numbers.
    """

    rounds: tuple[CountsPlan, ...]
    rows: int
    bins: int

    def describe(self) -> dict[str, Any]:
        """Describe the mechanism in public terms, for cards."""
        return {
            "name": "synthesis",
            "rows": self.rows,
            "tables": [each.cells for each in self.rounds],
            "sigmas": [each.sigma for each in self.rounds],
            "reference": self.rounds[0].reference,
        }

    def to_json(self, part: float = 1.0) -> list[dict[str, Any]]:
        """Return JSON of each round for a run; `synthesis_plan_from_json` reads it.

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
    """Return whether a stored round of a run is one of these.

    >>> is_counted({"marginals": {}, "until": 0.1}), is_counted({"plan": {}, "until": 1.0})
    (True, False)
    """
    return "marginals" in planned


def plan_synthesis(
    levels: Sequence[PlannedLevel], *, columns: int, share: float, rows: int | None, bins: int
) -> SynthesisPlan:
    """Plan noise that uses the whole share of people with the largest cap.

    In a round of T tables everybody adds a vector of norm at most √T, times their weight √(cap / largest).

    Args:
        levels: Promises with their caps and head counts; at least one head count is above 0.
        columns: Their number, without the classes.
        share: Of every cap.
        rows: Number of drawn rows; None for the number of people.
        bins: Of a column of numbers.

    Raises:
        ValueError: Too few or too many columns, or more noise than can be drawn.

    >>> plan = plan_synthesis([PlannedLevel("ALL", 0.0625, 1000.0)], columns=4, share=1.0, rows=None, bins=9)
    >>> [round(each.sigma, 1) for each in plan.rounds], [each.cells for each in plan.rounds], plan.rows
    ([25.3, 25.3, 9.2], [4, 6, 4], 1000)
    """
    if not 2 <= columns <= MOST_COLUMNS:
        raise ValueError(
            f"Rows are drawn of 2 to {MOST_COLUMNS} columns beside the classes, and the schema declares {columns}: "
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
                f"These promises need noise of {sigma:.0f} people, and at most {LARGEST_SIGMA:.0f} can be drawn: plan "
                "a larger share, or ignore columns."
            )
        plans.append(plan_of(levels, sigma, reference, tables))
    drawn = rows or min(max(round(float(people.sum())), 100), MOST_ROWS)
    return SynthesisPlan(tuple(plans), drawn, bins)


def forecast_rows(plan: SynthesisPlan, sizes: Sequence[int], classes: int) -> Forecast:
    """Forecast the largest effect of noise on all pairs of columns, before anybody is charged.

    Args:
        plan: Of the rounds.
        sizes: Cells of each column.
        classes: Their number.
    """
    pairs = plan.rounds[1]
    groups = [min(size, MOST_COARSE + _SPARE) for size in sizes]
    most = np.mean([noise_distance(pairs.sigma, classes * a * b, pairs.weight) for a, b in combinations(groups, 2)])
    return Forecast(TABLE, None, 0.0, float(most), 0.0, 0, Sentence(_BY_NOISE), PAIRS_DISTANCE)


def plan_notes(plan: SynthesisPlan) -> tuple[Sentence, ...]:
    """Return notes about synthetic rows for the people who approve them."""
    last = plan.rounds[-1]
    notes = [
        Sentence(
            gettext_noop(
                "%(rows)d rows are drawn from counts of the classes with every column and along a tree of "
                "%(columns)d columns. The rows do not show how more than two columns depend on each other beyond "
                "their classes."
            ),
            rows=plan.rows,
            columns=last.cells,
        )
    ]
    if last.weight < _FEW * last.sigma * math.sqrt(last.cells):
        notes.append(
            Sentence(
                gettext_noop(
                    "According to the head counts, the noise drowns out most of the counts: each is right to within "
                    "%(error)d of %(people)d people. Use a larger share, or ignore columns."
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
        schema: of the records; it declares classes.
        plan: of the rounds.
        caps: of the promises of the run's plan, in μ².
        released: sums of each round so far, in `PERSON`.
    """

    schema: TabularSchema
    plan: SynthesisPlan
    caps: tuple[float, ...]
    released: tuple[NDArray[np.int64], ...] = ()

    def after(self, sums: NDArray[np.int64]) -> Marginals:
        """Return the counts after the release of another round."""
        return Marginals(self.schema, self.plan, self.caps, (*self.released, sums))

    def question(self, index: int) -> CountsQuestion:
        """Return the question of a round; earlier rounds were released."""
        tables = (self._histogram_tables, self._pair_tables, self._tree_tables)[index]()
        return CountsQuestion(self.plan.rounds[index], tuple(tables), self.caps, name="synthesis")

    @cached_property
    def label(self) -> CountedColumn:
        """Column of the classes."""
        return columns_of(self.schema, column_names(self.schema)[:1], self.plan.bins)[0]

    @cached_property
    def columns(self) -> tuple[CountedColumn, ...]:
        """All other columns, with all their cells."""
        return feature_columns(self.schema, self.plan.bins)

    @cached_property
    def histograms(self) -> list[Numbers]:
        """Counts (classes, cells) of each column."""
        return self._counts(0)

    @cached_property
    def coarse(self) -> tuple[CountedColumn, ...]:
        """Columns in the groups used for counting pairs."""
        return self._grouped(*_COARSE, self.plan.rounds[1].sigma)

    @cached_property
    def fine(self) -> tuple[CountedColumn, ...]:
        """Columns in the groups used for counting the tree."""
        return self._grouped(*_FINE, self.plan.rounds[2].sigma)

    @cached_property
    def edges(self) -> list[Edge]:
        """Edges of the tree."""
        sigma = self.plan.rounds[1].sigma
        return strongest_tree(len(self.columns), [strength(table, sigma) for table in self.pairs])

    @cached_property
    def model(self) -> TreeModel:
        """Model from all rounds together."""
        sigmas = (self.plan.rounds[0].sigma, self.plan.rounds[2].sigma)
        return model_of(self.fine, self.edges, self.histograms, self.tables, sigmas)

    @cached_property
    def pairs(self) -> list[Numbers]:
        """Counts (classes, groups, groups) of each pair of columns, in the groups of `coarse`."""
        return self._counts(1)

    @cached_property
    def tables(self) -> list[Numbers]:
        """Counts of each edge of the tree."""
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
