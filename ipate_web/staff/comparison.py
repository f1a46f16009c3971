"""Page for comparing runs: parameters, measures and charts side by side."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils.formats import number_format
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.models import Level, Study
from ipate_web.run_words import (
    MeasureWords,
    choice_label,
    group_label,
    learner_label,
    measures,
    parameter_helps,
    value_words,
)
from ipate_web.staff.charts import Chart, Series
from ipate_web.staff.pages import render_page, study_page
from learning.learners import parameter_fields
from learning.mechanisms.choices import Choice
from learning.mechanisms.pate import AGGREGATORS, Aggregator
from learning.students import STUDENTS
from training.comparison import MOST, ComparedRun, Parameter, runs_compare
from training.methods import IMPLEMENTED, method_of
from training.methods.pate import ACCOUNTING
from training.models import ProposalChange, Run
from training.selectors import run_cost_history, run_curves, run_edits, runs_visible_to

_LABELS = {
    "private_dataset": gettext_lazy("Private dataset"),
    "public_dataset": gettext_lazy("Public dataset"),
    "test_dataset": gettext_lazy("Test dataset"),
    "labelled_dataset": gettext_lazy("Labelled public rows"),
    "student_learner": gettext_lazy("Student"),
    "batch_size": gettext_lazy("Queries or steps per batch"),
    "rehearsed.method": gettext_lazy("How costs are calculated"),
    "rehearsed.conversion": gettext_lazy("Conversion from RDP to ε"),
}
_CHOICES = ("method", "variant")
_DECIMALS = 6


def parameter_rows(parameters: Sequence[Parameter], runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return each parameter whose value differs between the runs, as words: its name, and its value in each run."""
    rows = [
        (
            parameter_label(parameter.name, runs),
            [parameter_value(parameter.name, value, runs) for value in parameter.values],
        )
        for parameter in parameters
    ]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def measure_rows(runs: Sequence[ComparedRun]) -> list[tuple[str, str, tuple[MeasureWords, ...]]]:
    """Return every measure except accuracy: its name, baseline, and value in each run.

    Models of different outcomes have different measures; missing measures are shown as a dash.
    """
    known = [{each.name: each for each in measures(run.evaluation)} if run.evaluation else {} for run in runs]
    names = dict.fromkeys(name for each in known for name in each)
    names.pop(_("Accuracy"), None)
    rows = []
    for name in names:
        row = tuple(each.get(name, MeasureWords(name, "–", "", "")) for each in known)
        compared = {each[name].compared for each in known if name in each}
        rows.append((name, compared.pop() if len(compared) == 1 else "", row))
    return rows


def change_rows(run: Run) -> list[tuple[ProposalChange, list[tuple[str, str, str]]]]:
    """Return each change of a draft, with the name of each changed parameter and both values, in words."""
    return [
        (
            edit,
            [
                (
                    parameter_label(each["name"], [run]),
                    parameter_value(each["name"], each["before"], [run]),
                    parameter_value(each["name"], each["after"], [run]),
                )
                for each in edit.content
            ],
        )
        for edit in run_edits(run)
    ]


def _field(name: str) -> Any:
    """Return a field of a run, as the model describes it."""
    return Run._meta.get_field(name)


def parameter_label(name: str, runs: Sequence[Run]) -> str:
    """Return the label of a parameter of a run; the choices of ``runs`` say to which learner or method it belongs."""
    if name in _LABELS:
        return str(_LABELS[name])
    role, _dot, of = name.partition(".")
    if role == "rehearsed" and of.startswith("levels."):
        level, measure = of.removeprefix("levels.").split(".")
        return ": ".join([group_label(level), _("share of people") if measure == "share" else "ε"])
    if not of:
        return capfirst(str(_field(name).verbose_name))
    choice = _choice(name, runs)
    if choice is not None:
        return _choice_label(choice, of.partition(".")[2], runs)
    if role == "student_learner":
        for run in runs:
            if of in (labels := _parameter_labels(STUDENTS.get(run.student_learner))):
                return ": ".join([_("Student"), labels[of]])
    return name


def _choice(name: str, runs: Sequence[Run]) -> Choice | None:
    """Return the choice of the runs with this dotted name or parameter, or None.

    The previous value in a draft may have been a choice of another method.
    """
    role, _dot, of = name.partition(".")
    methods = [*map(method_of, runs), *IMPLEMENTED] if role == "choices" else []
    described = [choice for method in methods for choice in method.choices.described()]
    start = of.partition(".")[0]
    return next((choice for choice in described if choice.parameters == start), None) or next(
        (choice for choice in described if choice.name == start), None
    )


def _choice_label(choice: Choice, of: str, runs: Sequence[Run]) -> str:
    """Return the label of a choice or, if ``of`` is given, of this parameter of the chosen value."""
    label = choice_label(choice)
    if of in ("", "name"):
        return label
    if choice.name == "representation_parameters":
        helps = parameter_helps(runs[0].choices.get("representation", "") if len(runs) == 1 else "")
        return ": ".join([_("Representation"), helps.get(of, of)])
    for run in runs:
        chosen = run.choices.get(choice.name)
        labels = _parameter_labels((choice.kinds or {}).get(chosen["name"] if isinstance(chosen, dict) else chosen))
        if of in labels:
            return f"{label}: {labels[of]}" if choice.parameters else labels[of]
    return f"{label}: {of}"


def _parameter_labels(kind: Any) -> dict[str, str]:
    """Return the labels of the parameters of a learner, a student or an aggregator; empty if it has none."""
    if kind is None:
        return {}
    if issubclass(kind, Aggregator):
        return {spec.name: f"{spec.symbol}, {_(spec.label)}" for spec in kind.fields()}
    return {spec.name: _(spec.help) for spec in parameter_fields(kind)}


def parameter_value(name: str, value: Any, runs: Sequence[Run]) -> str:
    """Return a value of a parameter in words; a dash for a missing value."""
    if value in (None, "") and not name.startswith("choices."):
        return "–"
    choice = _choice(name, runs)
    if choice is not None and name.endswith(f".{choice.name}"):
        return value_words(choice, value) or "–"
    if value in (None, ""):
        return "–"
    if name == "student_learner":
        return learner_label(value)
    if name in ("rehearsed.method", "rehearsed.conversion"):
        return _(ACCOUNTING.get(value, value))
    if name in _CHOICES:
        return str(dict(_field(name).flatchoices).get(value, value))
    if name == "choices.aggregator.name":
        return _(AGGREGATORS[value].label) if value in AGGREGATORS else value
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, float):
        return str(number_format(float(f"{value:.{_DECIMALS}g}")))
    return str(value)


# --- Charts -----------------------------------------------------------------------------------------------------------


def cost_charts(runs: Sequence[ComparedRun]) -> list[tuple[str, Chart]]:
    """Return charts of the largest share of its cap that any group has used: one over labels, one over steps."""
    titles = run_titles(runs)
    lines: dict[bool, list[tuple[str, dict[float, float]]]] = {True: [], False: []}
    for title, each in zip(titles, runs, strict=True):
        history = run_cost_history(each.run)
        if history.positions:
            x = history.labels if history.labelled else history.positions
            most = map(max, zip(*history.shares.values(), strict=True))
            lines[history.labelled].append((title, {0: 0.0, **dict(zip(x, most, strict=True))}))
    words = {
        True: (_("Share of the cap used, by number of labels released"), _("labels released")),
        False: (_("Share of the cap used, by number of steps taken"), _("steps taken")),
    }
    return [
        (words[labelled][0], _over_each_other(line, words[labelled][1], _("share of the cap")))
        for labelled, line in lines.items()
        if line
    ]


def step_charts(runs: Sequence[ComparedRun]) -> list[tuple[str, Chart]]:
    """Return charts of the quantities that methods report for every step, each with all runs that have it."""
    quantities: dict[str, list[tuple[str, dict[float, float]]]] = {}
    for title, each in zip(run_titles(runs), runs, strict=True):
        for name, values in run_curves(each.run).items():
            if values:
                quantities.setdefault(name, []).append((title, dict(enumerate(values, start=1))))
    return [(capfirst(_(name)), _over_each_other(line, _("step"), _(name))) for name, line in quantities.items()]


def result_charts(runs: Sequence[ComparedRun]) -> list[tuple[str, Chart]]:
    """Return ROC and precision-recall curves of the evaluated students, one chart for each kind."""
    kinds = (
        ("roc", "false_positive", "true_positive", _("false positive rate"), _("true positive rate"), _("ROC curve")),
        ("precision_recall", "recall", "precision", _("recall"), _("precision"), _("Precision and recall")),
    )
    charts = []
    for kind, x, y, x_label, y_label, caption in kinds:
        lines = [
            (title, {point[x]: point[y] for point in each.evaluation[kind]})
            for title, each in zip(run_titles(runs), runs, strict=True)
            if each.evaluation and each.evaluation.get(kind)
        ]
        if lines:
            charts.append((caption, replace(_over_each_other(lines, x_label, y_label), y_max=1)))
    return charts


def group_chart(runs: Sequence[ComparedRun]) -> tuple[str, Chart] | None:
    """Return a chart of each run's cost at each level: the largest used share of the cap or, for rehearsals, the ε."""
    costs: dict[str, dict[str, float | None]] = {}
    for title, each in zip(run_titles(runs), runs, strict=True):
        costs[title] = {level: group.spent_share for group in each.groups for level in group.levels}
        if not each.groups and each.run.outcome:
            costs[title] = {item["level"]: item["spent"] for item in each.run.outcome["epsilons"]}
    levels = [level for level in Level.values if any(level in cost for cost in costs.values())]
    if not levels:
        return None
    of_caps = any(each.groups for each in runs)
    series = [Series(title, [cost.get(level) for level in levels]) for title, cost in costs.items()]
    names, y_label = [group_label(level) for level in levels], _("share of the cap") if of_caps else "ε"
    return _("Cost for each group"), Chart(names, series, kind="bar", scale="category", y_label=y_label)


def recall_chart(runs: Sequence[ComparedRun]) -> tuple[str, Chart] | None:
    """Return a chart of the recall by class of each run's student, with its caption; None if no run has one."""
    points = []
    for title, each in zip(run_titles(runs), runs, strict=True):
        evaluation = (each.run.student.card.get("evaluation") if each.run.student else None) or {}
        if evaluation.get("classes"):
            points.append((title, {row["class"]: row["recall"] for row in evaluation["classes"]}))
    if not points:
        return None
    classes = list(dict.fromkeys(name for _title, recalls in points for name in recalls))
    series = [Series(title, [recalls.get(name) for name in classes]) for title, recalls in points]
    chart = Chart(classes, series, kind="bar", scale="category", y_label=_("recall"), y_max=1)
    return _("Share of each class's points that a student finds (recall)"), chart


def run_titles(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the titles of runs, numbered if several are the same."""
    titles = [each.run.title for each in runs]
    return [
        f"{title} ({titles[: place + 1].count(title)})" if titles.count(title) > 1 else title
        for place, title in enumerate(titles)
    ]


def _over_each_other(lines: list[tuple[str, dict[float, float]]], x_label: str, y_label: str) -> Chart:
    x = sorted({at for _title, line in lines for at in line})
    series = [Series(title, [line.get(at) for at in x]) for title, line in lines]
    return Chart(x, series, x_label=x_label, y_label=y_label, connected=True)


@require_safe
@study_page("training.view_run")
def run_compare(request: SignedInRequest, study: Study) -> HttpResponse:
    """Compare the runs listed in the URL, in that order. The URL can be saved and shared."""
    ids = list(dict.fromkeys(request.GET.getlist("run")))
    runs = _found(request, study, ids) if len(ids) <= MOST else []
    problem = _problem(len(ids), len(runs))
    context: dict[str, Any] = {"problem": problem, "most": MOST, "is_new": not ids}
    if not problem and len(runs) > 1:
        comparison = runs_compare(runs)
        compared = comparison.runs
        context |= {
            "compared": list(zip(run_titles(compared), compared, strict=True)),
            "tells_classes": any(each.run.classes for each in compared),
            "measures": measure_rows(compared),
            "parameters": parameter_rows(comparison.parameters, runs),
            "charts": [*result_charts(compared), *cost_charts(compared), *step_charts(compared)],
            "bars": [found for found in (group_chart(compared), recall_chart(compared)) if found],
        }
    return render_page(request, study, "staff/runs/compare.html", context, status=404 if problem else 200)


def _found(request: SignedInRequest, study: Study, texts: list[str]) -> list[Run]:
    """Return the runs of a study with these ids, in the same order, ignoring invalid and unknown ids."""
    ids = [key for text in texts if (key := _id(text)) is not None]
    visible = runs_visible_to(request.user).filter(study=study)
    datasets = ("private_dataset", "public_dataset", "test_dataset", "labelled_dataset")
    related = (*datasets, "created_by", "student")
    runs = visible.select_related(*related).in_bulk(ids)
    return [runs[pk] for pk in ids if pk in runs]


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _problem(count: int, present: int) -> str:
    """Return the error in a selection of runs, with the remedy (empty if there is none)."""
    if count > MOST:
        message = _("%(wanted)d runs are too many for one page. Select at most %(most)d.")
        return message % {"wanted": count, "most": MOST}
    if present < count:
        return _("One of these runs does not exist or does not belong to this study. Select the runs from the list.")
    return ""
