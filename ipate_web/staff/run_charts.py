"""Charts of a run: what it has charged, and how its student does."""

from itertools import pairwise

from django.utils.translation import gettext as _

from ipate_web.staff.charts import Chart, Series
from ipate_web.staff.templatetags.run_words import group_label
from training.models import StudentModel
from training.selectors import LEADS, CostHistory, GroupSpending


def cost_chart(history: CostHistory, groups: list[GroupSpending]) -> Chart | None:
    """Share of every member's cap used over the labels released so far, with the run's share as limit."""
    if not history.labels:
        return None
    series = [
        Series(group_label(group.name), [0.0, *history.shares[group.name]], group.allowed_share) for group in groups
    ]
    return Chart([0, *history.labels], series, x_label=_("labels released"), y_label=_("share of the cap"))


def lead_chart(leads: list[list[float]]) -> Chart | None:
    """How clearly the labels of each round lead: the share of its points by the lead of the largest count, in σ."""
    if not leads:
        return None
    names = [f"{low}–{high} σ" for low, high in pairwise(LEADS)]
    series = [
        Series(_("round %(number)d") % {"number": number}, shares) for number, shares in enumerate(leads, start=1)
    ]
    return Chart([*names, f"≥ {LEADS[-1]} σ"], series, kind="bar", scale="category", y_label=_("share of the points"))


def class_chart(student: StudentModel) -> Chart | None:
    """Recall and precision of the student by class."""
    evaluation = student.card.get("evaluation")
    if not evaluation:
        return None
    classes = evaluation["classes"]
    series = [
        Series(name, [row[key] for row in classes])
        for key, name in (("recall", _("recall")), ("precision", _("precision")))
    ]
    return Chart([row["class"] for row in classes], series, kind="bar", scale="category", y_max=1)
