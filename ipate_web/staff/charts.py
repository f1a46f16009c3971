"""Charts on the staff pages, drawn by ``static/js/charts.js``, each with its numbers as a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _

from ipate_web.run_words import cell_words, group_label
from learning.mechanisms.counts.tables import CountTable
from training.comparison import fairness_of
from training.methods.neighbours import LEADS
from training.methods.pate_plan import TeachersPlan
from training.methods.planning import MethodPlan
from training.models import StudentModel
from training.selectors import CostHistory, GroupSpending

MOST_SERIES = 8
"""Largest number of values in a second column that a chart of a table can distinguish."""
MOST_BARS = 60


@dataclass(frozen=True)
class Series:
    """Line or set of bars, with a value or None (a gap) for each x of the chart. A limit is drawn as a dashed line."""

    name: str
    values: Sequence[float | None]
    limit: float | None = None


@dataclass(frozen=True)
class Chart:
    """Plot of one or more series over the same x.

    The components ``chart`` and ``chart_table`` (``templates/components/charts.html``) draw it and list its numbers.

    Attributes:
        x: numbers, or names with ``scale="category"``.
        series: series, each with as many values as ``x``.
        x_label: axis title; empty for none.
        y_label: axis title; empty for none.
        kind: lines or bars.
        scale: scale of x. ``"logarithmic"`` applies to both axes and omits values that are not positive; ``"time"`` is
            in milliseconds since 1970, with lines that keep a value until the next.
        y_max: end of the y axis; by default it depends on the values.
        connected: whether lines continue across gaps, for series that have different x.
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
        """Return the chart as JSON for ``static/js/charts.js``. Non-finite values, which JSON lacks, become null."""
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
        """Return the rows of the table: each x with the value of every series."""
        values = zip(*(series.values for series in self.series), strict=True)
        return [(x, list(row)) for x, row in zip(self.x, values, strict=True)]


def cost_chart(history: CostHistory, groups: list[GroupSpending]) -> Chart | None:
    """Return a chart of the used share of every member's cap by labels or steps, with the run's share as the limit."""
    if not history.positions:
        return None
    series = [
        Series(group_label(group.name), [0.0, *history.shares[group.name]], group.allowed_share) for group in groups
    ]
    x, x_label = (history.labels, _("labels released")) if history.labelled else (history.positions, _("steps taken"))
    return Chart([0, *x], series, x_label=x_label, y_label=_("share of the cap"))


def plan_charts(plan: MethodPlan) -> list[tuple[str, Chart]]:
    """Return charts with captions that compare numbers of teachers: points labelled correctly, cost of a query."""
    if not isinstance(plan, TeachersPlan):
        return []
    numbers = sorted({each.teachers for each in plan.compared})
    if len(numbers) < 2:
        return []
    taken = plan.plan.teachers, plan.plan.aggregator.releases_counts
    charts = []
    right, cost = (
        _("Points for which the student is expected to learn the correct answer"),
        _("Cost of an answered query as a share of the run's maximum charge"),
    )
    for caption, y_label, y_max, value in (
        (right, _("correct (%)"), 100.0, lambda each: each.right),
        (cost, _("share (%)"), None, lambda each: each.charge),
    ):
        series = []
        for name, releases in ((_("noisy counts"), "counts"), (_("labels"), "labels")):
            found = {each.teachers: 100 * value(each) for each in plan.compared if each.releases == releases}
            series.append(Series(name, [found.get(number) for number in numbers]))
        for each in plan.compared:
            is_taken = (each.teachers, each.releases == "counts") == taken
            if is_taken or each.is_suggested:
                names = {(True, True): _("this plan, as suggested"), (True, False): _("this plan")}
                name = names.get((is_taken, each.is_suggested), _("suggested"))
                series.append(Series(name, [100 * value(each) if each.teachers == at else None for at in numbers]))
        series = [each for each in series if any(y is not None for y in each.values)]
        charts.append((caption, Chart(numbers, series, x_label=_("teachers"), y_label=y_label, y_max=y_max)))
    return charts


def table_chart(table: CountTable) -> Chart | None:
    """Return the chart of a table: numbers of people by the first column, with bars for each value of the second.

    Return None if the chart would be too large to read.
    """
    first, *second = table.values
    names = second[0] if second else ("",)
    if len(names) > MOST_SERIES or len(table) > MOST_BARS:
        return None
    counts = [cell.count for cell in table]
    series = [
        Series(cell_words(name) if name else _("people"), counts[place :: len(names)])
        for place, name in enumerate(names)
    ]
    return Chart([cell_words(name) for name in first], series, kind="bar", scale="category", y_label=_("people"))


def curve_chart(curves: dict[str, list[float]]) -> Chart | None:
    """Return the chart of the values that a run's method reports for every step so far."""
    series = [Series(_(name), values) for name, values in curves.items() if values]
    if not series:
        return None
    return Chart(list(range(1, len(series[0].values) + 1)), series, x_label=_("step"))


def lead_chart(leads: list[list[float]]) -> Chart | None:
    """Return a chart of the most frequent class's lead, in σ: the share of points by lead, for each round."""
    if not leads:
        return None
    names = [f"{low}–{high} σ" for low, high in pairwise(LEADS)]
    series = [
        Series(_("round %(number)d") % {"number": number}, shares) for number, shares in enumerate(leads, start=1)
    ]
    return Chart([*names, f"≥ {LEADS[-1]} σ"], series, kind="bar", scale="category", y_label=_("share of points"))


def class_chart(student: StudentModel) -> Chart | None:
    """Return a chart of recall and precision by class and, once known, of the recall after training on true labels."""
    evaluation = student.card.get("evaluation")
    if not evaluation:
        return None
    classes = evaluation.get("classes", [])
    series = [
        Series(name, [row[key] for row in classes])
        for key, name in (("recall", _("recall")), ("precision", _("precision")))
    ]
    if student.reference:
        series.append(
            Series(_("recall, learned from true labels"), [row["recall"] for row in student.reference["classes"]])
        )
    return Chart([row["class"] for row in classes], series, kind="bar", scale="category", y_max=1)


def calibration_chart(student: StudentModel) -> Chart | None:
    """Return the calibration chart: observed against predicted frequency, with the diagonal of perfect calibration."""
    bins = (student.card.get("evaluation") or {}).get("calibration")
    if not bins:
        return None
    predicted = [each["predicted"] for each in bins]
    series = [Series(_("observed"), [each["observed"] for each in bins]), Series(_("perfect calibration"), predicted)]
    return Chart(predicted, series, x_label=_("mean probability"), y_label=_("share of points"), y_max=1)


def roc_chart(student: StudentModel) -> Chart | None:
    """Return the ROC curve with the diagonal of chance."""
    points = (student.card.get("evaluation") or {}).get("roc")
    if not points:
        return None
    rates = [each["false_positive"] for each in points]
    series = [Series(_("model"), [each["true_positive"] for each in points]), Series(_("by chance"), rates)]
    return Chart(rates, series, x_label=_("false positive rate"), y_label=_("true positive rate"), y_max=1)


def precision_chart(student: StudentModel) -> Chart | None:
    """Return the chart of the precision at each recall."""
    points = (student.card.get("evaluation") or {}).get("precision_recall")
    if not points:
        return None
    series = [Series(_("model"), [each["precision"] for each in points])]
    recalls = [each["recall"] for each in points]
    return Chart(recalls, series, x_label=_("recall"), y_label=_("precision"), y_max=1)


def survival_chart(student: StudentModel) -> Chart | None:
    """Return a chart of the predicted and observed shares of people without the event at each time, with intervals."""
    curve = (student.card.get("evaluation") or {}).get("curve")
    if not curve:
        return None
    known = [
        (0, 1.0, 1.0, [1.0, 1.0]),
        *((row["time"], row["predicted"], row["observed"], row["interval"]) for row in curve),
    ]
    times, predicted, observed, intervals = zip(*known, strict=True)
    series = [
        Series(_("predicted"), predicted),
        Series(_("observed"), observed),
        Series(_("observed, lower end"), [ends[0] if ends else None for ends in intervals]),
        Series(_("observed, upper end"), [ends[1] if ends else None for ends in intervals]),
    ]
    return Chart(times, series, x_label=_("time"), y_label=_("share of people"), y_max=1)


def evaluation_charts(student: StudentModel) -> dict[str, Any]:
    """Return the charts of a student's evaluation, by their names in ``staff/runs/student_results.html``."""
    charts = {
        "classes": class_chart,
        "calibration": calibration_chart,
        "roc": roc_chart,
        "precision": precision_chart,
        "survival": survival_chart,
    }
    lazy = {name: SimpleLazyObject(partial(chart, student)) for name, chart in charts.items()}
    return {"student": student, **lazy, "fairness": SimpleLazyObject(partial(fairness_of, student.run, student))}
