"""Columns and choices of a table of counts, and its plan, which consists of noise, weights and expected error.

Only the schema's declarations define the cells; the plan depends on caps, shares and head counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from common.declarations import NOT_IN_API, Stored
from common.sentences import Sentence, gettext_noop
from learning.forecasts import TABLE, Forecast
from learning.formats import Schema, TabularSchema
from learning.formats.columns import CategoricalColumn, CodeColumn, NumericColumn, TextColumn
from learning.mechanisms.choices import Choices, Fault, choice
from learning.mechanisms.protocol import PlannedLevel, Records

CLASSES = "class"
"""Name of the class column if the schema does not name it."""
NOT_KNOWN = gettext_noop("not known")
NOWHERE = -1
EITHER = (gettext_noop("recorded"), gettext_noop("not recorded"))
"""Names of the two cells for each group of codes, if a column has several codes per record."""

_SINGLE = 1e-4
"""Rounding tolerance, in bin widths: a number that lies less than this below an edge is treated as lying on the edge.
"""


@dataclass(frozen=True)
class CountedColumn:
    """Column whose values are counted.

    Attributes:
        cells: Values, or bins of numbers, in order.
        start, width: Position of the column's numbers in an encoded record; the classes have width 0.
        edges: Edges of the bins of a numeric column, otherwise empty.
        groups: Each cell's group if cells are counted in groups, otherwise empty.
    """

    name: str
    cells: tuple[str, ...]
    start: int = 0
    width: int = 0
    edges: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of cells, or of groups of cells."""
        return max(self.groups) + 1 if self.groups else len(self.cells)

    def places(self, records: Records) -> NDArray[np.int64]:
        """Return the cell or group of each record, (N,); `NOWHERE` if a record does not match the schema.

        The result for a record depends only on that record.
        """
        place = self._cells(records)
        return np.where(place < 0, NOWHERE, np.array(self.groups)[place]) if self.groups else place

    def _cells(self, records: Records) -> NDArray[np.int64]:
        if not self.width:
            known = (records.classes >= 0) & (records.classes < len(self.cells))
            return np.where(known, records.classes, NOWHERE)
        values = records.x[:, self.start : self.start + self.width].astype(np.float64)
        if not self.edges:
            # An unknown value sets no feature. It has a cell only if the schema declares unknown values.
            place = np.where(values.any(axis=1), values.argmax(axis=1), self.width)
            return np.where(np.isfinite(values).all(axis=1) & (place < len(self.cells)), place, NOWHERE)
        bins = len(self.edges) - 1
        with np.errstate(invalid="ignore"):
            place = np.floor(values[:, 0] * bins + _SINGLE)
        place = np.where(np.isfinite(place), np.clip(place, 0, bins - 1), NOWHERE)
        if self.width > 1:
            place = np.where(values[:, 1] > 0, bins, place)
        return place.astype(np.int64)


def column_names(schema: Schema) -> list[str]:
    """Return the names of the columns that can be counted.

    >>> from learning.formats import ImageSchema
    >>> column_names(ImageSchema(8, 8, 1, ("dark", "light")))
    ['class']
    """
    return [column.name for column in _columns(schema, 1)]


def feature_columns(schema: TabularSchema, bins: int) -> tuple[CountedColumn, ...]:
    """Return all feature columns; a column with several codes becomes one yes-or-no column per group."""
    return tuple(_columns(schema, bins)[1 if schema.target is None else 0 :])


def columns_of(schema: Schema, names: Sequence[str], bins: int) -> tuple[CountedColumn, ...]:
    """Return columns by name, with numeric columns in ``bins`` bins of equal width.

    Raises:
        ValueError: The schema has no such column.
    """
    known = {column.name: column for column in _columns(schema, bins)}
    for name in names:
        if name not in known:
            raise ValueError(f"There is no column {name!r}; choose one of {', '.join(known)}.")
    return tuple(known[name] for name in names)


class Places:
    """Cells of records. The positions in each column are computed only once."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._known: dict[CountedColumn, NDArray[np.int64]] = {}

    def cells(self, columns: Sequence[CountedColumn]) -> NDArray[np.int64]:
        """Return each record's cell in the table of these columns, (N,), in row-major order, or `NOWHERE`."""
        cells = np.zeros(len(self._records.owner), np.int64)
        for column in columns:
            if column not in self._known:
                self._known[column] = column.places(self._records)
            place = self._known[column]
            cells = np.where((cells < 0) | (place < 0), NOWHERE, cells * column.size + place)
        return cells


def number_of_cells(columns: Sequence[CountedColumn]) -> int:
    """Return the number of cells in a table of these columns."""
    return math.prod(column.size for column in columns)


def _class_column(schema: Schema) -> CountedColumn:
    label = schema.label if isinstance(schema, TabularSchema) else None
    return CountedColumn(label.name if label else CLASSES, schema.classes)


def _columns(schema: Schema, bins: int) -> list[CountedColumn]:
    columns, start = [_class_column(schema)] if schema.target is None else [], 0
    for column in schema.features if isinstance(schema, TabularSchema) else ():
        if isinstance(column, TextColumn):
            break
        width = len(column.features)
        missing = (NOT_KNOWN,) if column.missing else ()
        if isinstance(column, NumericColumn):
            edges = tuple(np.linspace(column.minimum, column.maximum, bins + 1).tolist())
            cells = tuple(f"{low:g} – {high:g}" for low, high in pairwise(edges))
            columns.append(CountedColumn(column.name, (*cells, *missing), start, width, edges))
        else:
            prefix = f"{column.name} = "
            cells = tuple(name.removeprefix(prefix) for name in column.features)
            assert isinstance(column, CategoricalColumn | CodeColumn), "there are no other columns"
            if isinstance(column, CodeColumn) and column.several:
                columns += [CountedColumn(name, EITHER, start + place, 1) for place, name in enumerate(column.features)]
            else:
                columns.append(CountedColumn(column.name, (*cells, *missing), start, width))
        start += width
    return columns


MOST_BINS = 100

LARGEST_SIGMA = 4096.0
"""Largest standard deviation of the noise, in people.

The noise must stay below 2³⁰ units of the sums, in which a person counts as `tables.PERSON`, because sites divide these
units further.
"""
WITHIN_95 = 1.959964
"""Number of standard deviations on each side of the mean that contain 95 % of a normal distribution."""
MOST_CELLS = 10_000

_ROUNDING = 1 + 1e-9

NOISE_DISTANCE = gettext_noop("distance from the same table without noise, from 0 to 1")
_BY_NOISE = gettext_noop(
    "Calculated only from the noise, the cells and the head counts: half the sum of the changes that noise makes to "
    "the cells' shares."
)


@dataclass(frozen=True)
class Counts(Choices):
    """Choices for a run that releases a table of counts; see :class:`learning.mechanisms.choices.Choices`."""

    column: str = choice(
        None,
        gettext_noop("Column"),
        gettext_noop(
            "A column of the private dataset, or the dataset's classes. The schema lists the values of each column."
        ),
        optional=False,
        is_column=True,
    )
    across: str = choice(
        "", gettext_noop("Second column"), gettext_noop("People are counted for each pair of values."), is_column=True
    )
    bins: int = choice(
        10,
        gettext_noop("Number of bins for a numeric column"),
        gettext_noop("Bins have equal width across the range declared in the schema."),
        minimum=2,
        maximum=MOST_BINS,
    )
    weighing: str = choice(
        "promise",
        gettext_noop("How people are counted"),
        gettext_noop(
            "“Weighted by promise” adds the least noise, but the counts are estimates. “All equally” counts everyone "
            "as one and adds as much noise as the smallest ε needs."
        ),
        values={"promise": gettext_noop("weighted by promise"), "alike": gettext_noop("all equally")},
    )

    def faults(self) -> Iterator[Fault]:
        if self.across == self.column:
            yield "across", "Both columns are the same: choose another second column, or none."


def noise_distance(sigma: float, cells: float, weight: float) -> float:
    """Return the mean total variation distance caused by noise in each cell of a table: half of Σ|N(0, σ²)|/weight.

    Args:
        sigma: Standard deviation of the noise.

    >>> round(noise_distance(10.0, 20, 1000.0), 4)  # 20 · 10 · √(2/π) / 2 / 1000
    0.0798
    """
    return min(sigma * math.sqrt(2 / math.pi) * cells / 2 / max(weight, 1.0), 1.0)


def forecast_table(plan: CountsPlan) -> Forecast:
    """Forecast the effect of noise on a table, before anyone is charged."""
    distance, spread = plan.distance, plan.sigma * math.sqrt((1 - 2 / math.pi) * plan.cells) / 2 / max(plan.weight, 1.0)
    low, high = max(distance - WITHIN_95 * spread, 0.0), min(distance + WITHIN_95 * spread, 1.0)
    return Forecast(TABLE, distance, low, high, 0.0, 0, Sentence(_BY_NOISE), NOISE_DISTANCE)


def half_interval(
    count: float, *, sigma: float, people: float, scale: float, weight_variance: float, scale_error: float
) -> float:
    """Return half the width of the 95 % interval for a number of people, if levels are distributed randomly over cells.

    For n among N people whose weights have variance v, the estimate n̂ = scale · (sum of weights + noise) has variance
    scale²·(σ² + n·(1 − n/N)·v) around n, because n weights are drawn from N without replacement.

    Args:
        count: Estimate n̂; a negative estimate is treated as 0.
        sigma: Standard deviation σ of the noise in a sum of weights.
        people: Number N of all people.
        scale: Number of people per unit of the sum of weights.
        weight_variance: Variance v of the weights.
        scale_error: See `CountsPlan`.

    >>> half_interval(0.0, sigma=10.0, people=900.0, scale=1.5, weight_variance=0.1, scale_error=0.02) / WITHIN_95
    15.0
    """
    known = min(max(count, 0.0), people)
    mixed = known * (1 - known / people) * weight_variance if people > 0 else 0.0
    return WITHIN_95 * math.hypot(scale * math.sqrt(sigma**2 + mixed), known * scale_error)


@dataclass(frozen=True)
class CountsPlan(Stored):
    """Plan of a table.

    Attributes:
        weight_variance: Variance of all people's weights, according to the head counts.
        scale_error: Relative standard deviation of `scale` due to the noise of the head counts.
    """

    sigma: Annotated[float, Field(description="Standard deviation of the noise in each cell, in people of weight 1.")]
    reference: Annotated[
        float,
        Field(
            description="Cap, in μ², of people with weight 1. Other people have the weight √(cap / reference), at "
            "most 1."
        ),
    ]
    people: Annotated[float, Field(description="Number of people, according to the head counts.")]
    weight: Annotated[float, Field(description="Sum of the weights of all people.")]
    cells: Annotated[int, NOT_IN_API]
    weight_variance: Annotated[float, NOT_IN_API] = 0.0
    scale_error: Annotated[float, NOT_IN_API] = 0.0

    def weights(self, caps: ArrayLike) -> NDArray[np.float64]:
        """Return the weights, above 0 and at most 1, of people with these caps in μ²: √(cap / reference)."""
        return np.minimum(np.sqrt(np.asarray(caps, np.float64) / self.reference), 1.0)

    @property
    def scale(self) -> float:
        """Number of people per unit of the sum of weights, on average over all people."""
        return self.people / self.weight

    @property
    def error(self) -> float:
        """Half the width of the interval for a cell with an average number of people."""
        return self.error_of(self.people / self.cells)

    def error_of(self, count: float) -> float:
        """Return half the width of a count's interval; see `half_interval`."""
        return half_interval(
            count,
            sigma=self.sigma,
            people=self.people,
            scale=self.scale,
            weight_variance=self.weight_variance,
            scale_error=self.scale_error,
        )

    @property
    def distance(self) -> float:
        """Expected total variation distance between the table with noise and without noise."""
        return noise_distance(self.sigma, self.cells, self.weight)


def plan_counts(
    levels: Sequence[PlannedLevel], *, cells: int, share: float, counts: Counts, head_count_sigma: float = 0.0
) -> CountsPlan:
    """Plan a table with the noise at which a person of weight 1 uses the whole share.

    Args:
        levels: Promises with their caps and head counts; at least one head count is above 0.
        head_count_sigma: Standard deviation of the noise of each level's head count.

    Raises:
        ValueError: There are too many cells, or the noise is larger than can be drawn.

    >>> plan = plan_counts([PlannedLevel("ALL", 0.0625, 1000.0)], cells=10, share=0.25, counts=Counts(column="class"))
    >>> round(plan.sigma, 3), plan.scale
    (8.0, 1.0)
    """
    if cells > MOST_CELLS:
        raise ValueError(
            f"The table would have {cells} cells, but at most {MOST_CELLS} are allowed: use fewer bins or one column."
        )
    caps = np.array([level.cap for level in levels])
    reference = float(caps.min() if counts.weighing == "alike" else caps.max())
    sigma = math.sqrt(1 / (share * reference)) * _ROUNDING
    if sigma > LARGEST_SIGMA:
        raise ValueError(
            f"These promises need noise of {sigma:.0f} people, but at most {LARGEST_SIGMA:.0f} can be drawn: plan a "
            "larger share."
        )
    return plan_of(levels, sigma, reference, cells, head_count_sigma)


def plan_of(
    levels: Sequence[PlannedLevel], sigma: float, reference: float, cells: int, head_count_sigma: float = 0.0
) -> CountsPlan:
    """Return the plan of a table with this noise and with weights that follow from the levels."""
    people = np.array([max(level.holders, 0.0) for level in levels])
    plan = CountsPlan(sigma, reference, float(people.sum()), 1.0, cells)
    weights = plan.weights([level.cap for level in levels])
    plan = replace(plan, weight=float(people @ weights))
    shares = people / plan.people
    variance = float(shares @ (weights - shares @ weights) ** 2)
    moves = (1 - plan.scale * weights) / plan.people  # derivatives of the scale's logarithm
    error = head_count_sigma * float(np.sqrt((moves**2).sum()))
    return replace(plan, weight_variance=variance, scale_error=error)


def plan_notes(plan: CountsPlan) -> tuple[Sentence, ...]:
    """Return notes about a table's noise for the person who approves it."""
    notes = [
        Sentence(
            gettext_noop(
                "Each of the %(cells)d cells is released with noise. In a cell of average size, the released number "
                "is within %(error)d of the true number in 95 of 100 cases."
            ),
            cells=plan.cells,
            error=math.ceil(plan.error),
        )
    ]
    if plan.error * plan.cells > plan.people:
        notes.append(
            Sentence(
                gettext_noop(
                    "This error is larger than the average number of people in a cell (%(mean).1f), so most cells "
                    "will look empty. Choose fewer bins, one column, or a larger share."
                ),
                mean=plan.people / plan.cells,
            )
        )
    if plan.scale > 1:
        notes.append(
            Sentence(
                gettext_noop(
                    "People are weighted by their promise, so those with a small ε count less. Counts are estimated "
                    "as if levels were spread across the cells at random. If they are not, choose to count everyone "
                    "equally."
                )
            )
        )
    return tuple(notes)
