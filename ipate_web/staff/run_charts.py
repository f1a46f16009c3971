"""Charts of a run: what it has charged, and how its student does."""

from itertools import pairwise

from django.utils.translation import gettext as _

from ipate_web.staff.charts import Chart, Series
from ipate_web.staff.templatetags.run_words import group_label
from training.methods.neighbours.leads import LEADS
from training.models import StudentModel
from training.selectors import CostHistory, GroupSpending


def cost_chart(history: CostHistory, groups: list[GroupSpending]) -> Chart | None:
    """Share of every member's cap used over labels released or steps taken so far, with the run's share as limit."""
    if not history.positions:
        return None
    series = [
        Series(group_label(group.name), [0.0, *history.shares[group.name]], group.allowed_share) for group in groups
    ]
    x, x_label = (history.labels, _("labels released")) if history.labelled else (history.positions, _("steps taken"))
    return Chart([0, *x], series, x_label=x_label, y_label=_("share of the cap"))


def curve_chart(curves: dict[str, list[float]]) -> Chart | None:
    """Chart of what a run's method tells of every step so far."""
    series = [Series(_(name), values) for name, values in curves.items() if values]
    if not series:
        return None
    return Chart(list(range(1, len(series[0].values) + 1)), series, x_label=_("step"))


def lead_chart(leads: list[list[float]]) -> Chart | None:
    """Chart of how clearly labels of each round lead: share of its points by the lead of the largest count, in σ."""
    if not leads:
        return None
    names = [f"{low}–{high} σ" for low, high in pairwise(LEADS)]
    series = [
        Series(_("round %(number)d") % {"number": number}, shares) for number, shares in enumerate(leads, start=1)
    ]
    return Chart([*names, f"≥ {LEADS[-1]} σ"], series, kind="bar", scale="category", y_label=_("share of the points"))


def class_chart(student: StudentModel) -> Chart | None:
    """Recall and precision of the student by class, and the recall of the same student on true labels, once known."""
    evaluation = student.card.get("evaluation")
    if not evaluation:
        return None
    classes = evaluation["classes"]
    series = [
        Series(name, [row[key] for row in classes])
        for key, name in (("recall", _("recall")), ("precision", _("precision")))
    ]
    if student.reference:
        series.append(
            Series(_("recall, learned from true labels"), [row["recall"] for row in student.reference["classes"]])
        )
    return Chart([row["class"] for row in classes], series, kind="bar", scale="category", y_max=1)
