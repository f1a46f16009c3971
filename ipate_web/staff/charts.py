"""Charts of the staff pages: drawn by ``static/js/charts.js``, with the same numbers as a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Series:
    """Line or set of bars: a value, or None for a gap, for each x of the chart; a limit is drawn as a dashed line."""

    name: str
    values: Sequence[float | None]
    limit: float | None = None


@dataclass(frozen=True)
class Chart:
    """Plot of one or several series over the same x.

    ``templates/components/chart.html`` draws it, ``templates/components/chart_table.html`` lists its numbers.

    Attributes:
        x: numbers, or names with ``scale="category"``.
        series: each with as many values as ``x``.
        x_label: axis title; empty for none.
        y_label: axis title; empty for none.
        kind: lines or bars.
        scale: scale of x; ``"logarithmic"`` is that of both axes, on which values that are not positive are left out;
            ``"time"`` is of milliseconds since 1970, with lines that keep a value until the next.
        y_max: end of the y axis; by default it follows the values.
        connected: whether lines go on over gaps, as where every series has x of its own.
    """

    x: Sequence[Any]
    series: Sequence[Series]
    x_label: str = ""
    y_label: str = ""
    kind: Literal["line", "bar"] = "line"
    scale: Literal["linear", "logarithmic", "category", "time"] = "linear"
    y_max: float | None = None
    connected: bool = False

    @property
    def document(self) -> dict[str, Any]:
        """The chart as JSON for ``static/js/charts.js``; non-finite values, which JSON cannot hold, as null."""
        return {
            "kind": self.kind,
            "scale": self.scale,
            "x": list(self.x),
            "xLabel": self.x_label,
            "yLabel": self.y_label,
            "yMax": self.y_max,
            "connected": self.connected,
            "series": [
                {
                    "name": series.name,
                    "values": [
                        value if value is not None and math.isfinite(value) else None for value in series.values
                    ],
                    "limit": series.limit,
                }
                for series in self.series
            ],
        }

    @property
    def rows(self) -> list[tuple[Any, list[float | None]]]:
        """Rows of the table: each x with the value of every series."""
        values = zip(*(series.values for series in self.series), strict=True)
        return [(x, list(row)) for x, row in zip(self.x, values, strict=True)]
