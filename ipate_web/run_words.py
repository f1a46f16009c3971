"""Template filters for names of shares, methods, learners, aggregators and their parameters."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django import template
from django.template import Context
from django.utils.formats import get_format, number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from common.sentences import Sentence
from common.templatetags.components import COMPONENTS, component_render
from consent.models import Level
from learning.learners import parameter_fields
from learning.mechanisms.choices import Choice
from learning.mechanisms.counts.table_plan import EITHER, NOT_KNOWN
from learning.mechanisms.pate import AGGREGATORS
from learning.mechanisms.sampled_steps.run_plan import NETWORK_CHOICES
from learning.published import published_label
from learning.representations import REPRESENTATIONS
from learning.students import STUDENTS
from training.engine.records import encoder_of
from training.measures import FEWEST_STEPS, is_nearly_one_class, rounding_steps
from training.methods import MethodOutcome, method_of
from training.models import Run
from training.models.datasets import DRAWN
from training.selectors import without_model

DECIMALS = 3


@dataclass(frozen=True)
class MeasureWords:
    """A measure with its interval and the value for comparison, in words; "" for missing values."""

    name: str
    value: str
    interval: str
    compared: str


def decimal(value: float | None, decimals: int = DECIMALS) -> str:
    """Return a measure with three digits, or a dash for an unknown value."""
    return "–" if value is None else number_format(value, decimal_pos=decimals)


def ends_words(ends: Sequence[float] | None) -> str:
    """Return the ends of a measure's interval, or nothing if it has none."""
    if not ends:
        return ""
    return _("%(low)s to %(high)s") % {"low": decimal(ends[0]), "high": decimal(ends[1])}


def measures(evaluation: Mapping[str, Any]) -> list[MeasureWords]:
    """Return all measures of an evaluation except its accuracy by class."""
    if "measures" in evaluation:
        return [target_measure(each) for each in evaluation["measures"]]
    majority = evaluation.get("majority") or {}
    gain = {"gain": decimal(majority.get("gain")), "interval": ends_words(majority.get("gain_interval")) or "–"}
    # Shares of few points are rounded to whole per cent, so they are not shown more exactly here.
    digits = DECIMALS if rounding_steps(evaluation.get("points") or 0) > FEWEST_STEPS else 2
    share = {"name": majority.get("class"), "share": decimal(majority.get("share"), digits)}
    message = _("always predicting “%(name)s”, the most frequent class: %(share)s") % share
    above = _("difference %(gain)s (%(interval)s)") % gain
    base = _("predicting the same class shares for every point: %(loss)s") % {
        "loss": decimal(evaluation.get("base_log_loss"))
    }
    prevalence = _prevalence(evaluation)
    chance = "" if prevalence is None else _("chance: %(share)s, best: 1") % {"share": decimal(prevalence)}
    rows = (
        ("accuracy", "interval", _("Accuracy"), f"{message}; {above}"),
        *(
            [("balanced_accuracy", "balanced_accuracy_interval", _("Balanced accuracy"), _balanced_words(evaluation))]
            if "balanced_accuracy" in evaluation  # earlier versions did not measure it
            else []
        ),
        ("area", "area_interval", _("Area under the ROC curve"), _("chance: 0.5, best: 1")),
        ("average_precision", "average_precision_interval", _("Area under the precision–recall curve"), chance),
        ("log_loss", "log_loss_interval", _("Log loss"), base),
        ("brier", "brier_interval", _("Brier score"), _("best: 0")),
        ("calibration_error", "calibration_error_interval", _("Expected calibration error"), _("best: 0")),
    )
    entries = []
    for key, ends, name, compared in rows:
        value = decimal(evaluation.get(key), digits if key in ("accuracy", "balanced_accuracy") else DECIMALS)
        if key == "log_loss" and evaluation.get("impossible"):
            value = "∞"
        entries.append(MeasureWords(name, value, ends_words(evaluation.get(ends)), compared))
    return entries


def _prevalence(evaluation: Mapping[str, Any]) -> float | None:
    """Return the mean share of the classes whose precision-recall curves are averaged; the area expected by chance."""
    points: list[int] = [each["points"] for each in evaluation.get("classes", [])]
    judged = [number for number in (points[1:] if len(points) == 2 else points) if 0 < number < sum(points)]
    return sum(judged) / len(judged) / sum(points) if judged else None


def _balanced_words(evaluation: Mapping[str, Any]) -> str:
    present = sum(each["points"] > 0 for each in evaluation["classes"])
    return _("mean over the classes; always giving the same answer: %(share)s") % {
        "share": decimal(1 / max(1, present))
    }


def target_measure(evaluation: Mapping[str, Any]) -> MeasureWords:
    """Return the measure of an evaluation whose outcome is not classes."""
    unit = evaluation["unit"]

    def words(value: float | None) -> str:
        return f"{number_format(value)} {unit}" if unit and value is not None else decimal(value)

    ends, nothing = evaluation["interval"], evaluation["nothing"]
    return MeasureWords(
        f"{_(evaluation['label'])}: {evaluation['of']}" if evaluation["of"] else _(evaluation["label"]),
        words(evaluation["value"]),
        _("%(low)s to %(high)s") % {"low": words(ends[0]), "high": words(ends[1])} if ends else "",
        ""
        if nothing is None
        else _("without knowing anything about the record: %(value)s") % {"value": words(nothing)},
    )


register = template.Library()
#: A placeholder in a sentence, as in "δ = %(delta)g", or the per cent sign.
_VALUE = re.compile(r"%\((?P<name>\w+)\)[.\d]*[a-z]|%%")


register.filter(encoder_of)
#: Style of the badge of a status; all other statuses are in progress.
_LOOKS = {Run.Status.FINISHED: "good", Run.Status.FAILED: "bad"} | dict.fromkeys(
    (Run.Status.DRAFT, Run.Status.CANCELLED, Run.Status.WITHDRAWN), ""
)


@register.filter
def percent(share: float | None) -> str:
    """Return 0.9338 as "93.4 %", or a dash for an unknown value."""
    return "–" if share is None else _percent(round(100 * share, 1), get_language())


@register.simple_tag
def right_ones(share: float | None, evaluation: Mapping[str, Any] | None, points: int | None = None) -> str:
    """Return a share of an evaluation's points with suitable precision: "76 %" of 300 points, "76.5 %" of 3,000.

    ``points`` is the number that the share is based on, if not the evaluation's.
    """
    if share is None:
        return "–"
    points = points or (evaluation or {}).get("points")
    decimals = 0 if points and rounding_steps(points) == FEWEST_STEPS else 1
    return _percent(round(100 * share, decimals), get_language(), decimals)


@register.simple_tag
def majority_words(evaluation: Mapping[str, Any] | None) -> str:
    """Return the accuracy of always predicting the most frequent class: "always “no”: 76 %"; "" if unknown.

    The words also say if the model nearly always gives the same answer.
    """
    majority = (evaluation or {}).get("majority")
    if not evaluation or not majority:
        return ""
    share = right_ones(majority["share"], evaluation)
    words = _("always “%(name)s”: %(share)s") % {"name": majority["class"], "share": share}
    answers = evaluation.get("answers")
    if answers is None or not is_nearly_one_class(answers):
        return words
    balanced = {"name": answers["class"], "share": right_ones(evaluation["balanced_accuracy"], evaluation)}
    caution = _("this model nearly always answers “%(name)s”, balanced accuracy: %(share)s") % balanced
    return f"{words}; {caution}"


@lru_cache(maxsize=8192)  # a run's page has hundreds of these, and requests them again every two seconds
def _percent(number: float, _language: str, decimals: int = 1) -> str:
    return _("%(number)s %%") % {"number": number_format(number, decimal_pos=decimals)}


@register.filter
def interval(ends: Sequence[float] | None) -> str:
    """Return the ends of a confidence interval: "90.1 to 95.2 %"; empty if there is none."""
    if not ends:
        return ""
    low, high = (number_format(round(100 * end, 1), decimal_pos=1) for end in ends)
    return _("%(low)s to %(high)s %%") % {"low": low, "high": high}


@register.filter
def forecast_interval(forecast: Any) -> str:
    """Return the interval of a new or stored forecast: "70.1 to 85.2 %", or "at most 85.2 %" for a bound."""
    if forecast is None:
        return ""
    fields = forecast if isinstance(forecast, Mapping) else vars(forecast)
    ends = [fields["low"], fields["high"]]
    if fields.get("measure"):
        return ends_words(ends)
    if fields["value"] is None:
        return _("at most %(share)s") % {"share": percent(fields["high"])}
    return interval(ends)


@register.filter
def forecast_number(forecast: Any, name: str) -> str:
    """Return a forecast's number with this name: "74.1 %" for a share, or "0.741" for another measure."""
    fields = forecast if isinstance(forecast, Mapping) else vars(forecast)
    value = fields.get(name)
    return decimal(value) if fields.get("measure") else percent(value)


@register.filter
def measure_rows(evaluation: Mapping[str, Any]) -> list[MeasureWords]:
    """Return the measures of an evaluation in words, for a table."""
    return measures(evaluation)


@register.filter
def measure_words(evaluation: Mapping[str, Any]) -> str:
    """Return a measure of an evaluation for a cell: "R² 0.741"."""
    measure = target_measure(evaluation)
    return f"{measure.name} {measure.value}"


@register.filter
def target_words(target: Mapping[str, Any]) -> str:
    """Return a description of the predictions of a model with this target."""
    unit = target.get("unit", "")
    match target["kind"]:
        case "numbers":
            values = {"low": number_format(target["minimum"]), "high": number_format(target["maximum"]), "unit": unit}
            return _("a number from %(low)s to %(high)s %(unit)s, with an interval") % values
        case "times":
            values = {"last": number_format(target["ends"][-1]), "unit": unit}
            return _("probability that the event has not happened yet, for times up to %(last)s %(unit)s") % values
    return _("probability of each of these: %(names)s") % {"names": ", ".join(target["names"])}


@register.filter(name="decimal")
def decimal_words(value: float | None) -> str:
    """Return a measure that is not a share, such as "0.417", or a dash if it is unknown."""
    return decimal(value)


@register.filter
def decimal_interval(ends: Sequence[float] | None) -> str:
    """Return the ends of the confidence interval of a measure that is not a share: "0.412 to 0.455"."""
    return ends_words(ends)


@register.filter
def confusion_rows(evaluation: Mapping[str, Any]) -> list[tuple[str, list[float | None]]]:
    """Return the rows of an evaluation's confusion matrix, each with the name of its true class."""
    return [(each["class"], row) for each, row in zip(evaluation["classes"], evaluation["confusion"], strict=True)]


@register.filter
def shade(share: float | None) -> int:
    """Return the shade of a cell with a share, from 0 to 4."""
    return min(4, 1 + int(4 * share)) if share else 0


@register.filter
def at_most(number: float, most: float) -> float:
    """Return the smaller of two numbers, for bounds when no account can be charged more than ``most``."""
    return min(number, most)


@register.filter
def small_percent(share: float) -> str:
    """Return 0.0025 as "0.25 %", with three digits even for small numbers."""
    return _("%(number)s %%") % {"number": localised(f"{100 * share:.3g}")}


@register.filter
def trimmed(number: float) -> str:
    """Return a number with up to three decimals, without trailing zeros: 0.5, not 0.500."""
    return str(number_format(Decimal(f"{number:.3f}".rstrip("0").rstrip("."))))


@register.filter
def scientific(number: float) -> str:
    """Return a small number with two digits: 1e-8, with the reader's decimal separator."""
    return localised(f"{number:.2g}").replace("e-0", "e-")


@register.filter
def localised(number: str) -> str:
    """Return a number as Python writes it, with the reader's decimal separator."""
    return number.replace(".", get_format("DECIMAL_SEPARATOR"))


@register.simple_tag(takes_context=True)
def part_of_method(context: Context, run: Run, name: str, **values: Any) -> SafeString:
    """Return the part ``name`` of a page, rendered by the method's component ``<method>_<name>``."""
    component = COMPONENTS[f"{method_of(run).parts}_{name}"]
    known = {"run": run, **values}
    return component.render(context, {key: known[key] for key in component.parameters if key in known})


@register.filter
def charged_words(run: Run) -> str:
    """Return a description of the run's charges."""
    return _(method_of(run).charged)


@register.filter
def counted_words(run: Run) -> str:
    """Return a description of the accounting of a rehearsal's costs."""
    return translated(method_of(run).counted(run))


@register.filter
def curves_words(run: Run) -> str:
    """Return the caption of the chart of the run's curves."""
    return _(method_of(run).curves_help)


@register.filter
def tiles(run: Run) -> list[tuple[str, int, str]]:
    """Return numbers about the run's releases so far, each with its label and a note."""
    return [(_(label), value, translated(note) if note else "") for label, value, note in method_of(run).tiles(run)]


@register.filter
def releases_labels(run: Run) -> bool:
    """Return whether the run's method releases labels of public points, one label for each query."""
    return method_of(run).releases_labels


@register.filter
def releases_counts(run: Run) -> bool:
    """Return whether the run releases the noisy counts behind its labels."""
    return method_of(run).releases_counts(run)


@register.filter
def leads_to_table(run: Run) -> bool:
    """Return whether the run produces a table instead of a model."""
    return method_of(run).outcome == MethodOutcome.TABLE


@register.filter
def cell_words(value: str) -> str:
    """Return a table cell's value: "recorded", "not recorded" and "not known" are translated, data remain unchanged."""
    return _(value) if value in (*EITHER, NOT_KNOWN) else value


@register.filter
def provenance_words(stated: str) -> str:
    """Return a dataset's origin as stated by people, or the words for synthetic rows."""
    return _(stated) if stated == DRAWN else stated


@register.filter
def paid_ahead(run: Run) -> bool:
    """Return whether holders have been charged for more than has been released so far."""
    return method_of(run).charges_ahead and run.batches.exists()


@register.filter
def duration(left: timedelta) -> str:
    """Return a rough time: "about 3 minutes"."""
    minutes = round(left.total_seconds() / 60)
    if minutes < 1:
        return _("less than a minute")
    if minutes < 120:
        return ngettext("about %(number)d minute", "about %(number)d minutes", minutes) % {"number": minutes}
    return _("about %(number)d hours") % {"number": round(minutes / 60)}


@register.filter
def network_label(name: str) -> str:
    """Return the name of a network that is trained with sampled steps: "small network"."""
    return _(NETWORK_CHOICES.get(name, name))


@register.filter
def by_promise(plan: Any) -> list[dict[str, Any]]:
    """Return each promise of a plan with sampled steps, with its cap and its charge (None if unknown)."""
    document = plan if isinstance(plan, Mapping) else plan.to_json()
    (current,) = document["rounds"]
    pairs = zip(document["promises"], document["budgets"], current["plan"]["charges"], strict=True)
    return [
        promise | {"charge": charge, "share": None if charge is None else charge / budget["cap"]}
        for promise, budget, charge in pairs
    ]


@register.filter
def by_phase(how: Mapping[str, Any], levels: Iterable[Any]) -> list[dict[str, Any]]:
    """Return each phase of sampled steps, with the rate and the norm of each level that is drawn in that phase."""
    names = [_name(level) for level in levels]
    return [
        phase
        | {
            "levels": [
                {"name": name, "rate": rate, "norm": norm}
                for name, rate, norm in zip(names, phase["rates"], phase["norms"], strict=True)
                if rate
            ]
        }
        for phase in how["phases"]
    ]


def _name(level: Any) -> str:
    """Return the name of a promise in a new or stored plan, or in a card."""
    if isinstance(level, str):
        return level
    return level["name"] if isinstance(level, Mapping) else level.name


@register.filter
def badges(run: Run) -> SafeString:
    """Return badges: the run's status, whether it finished without a published model, and whether it is a rehearsal."""
    words = [(str(run.get_status_display()), _LOOKS.get(Run.Status(run.status), "live"))]
    if without_model(run):
        words.append((_("no model"), "warn"))
    if run.rehearsal:
        words.append((_("rehearsal"), "warn"))
    parts = [component_render("badge", text=text, kind=kind) for text, kind in words]
    return mark_safe("".join(parts))  # noqa: S308, two rendered templates


@register.filter
def method_words(run: Run) -> str:
    """Return the run's method and its variant: "teachers vote, weighting"."""
    words = [Run.Method(run.method).label, *([Run.Variant(run.variant).label] if run.variant else [])]
    return ", ".join(map(str, words))


@register.filter
def status_label(status: str) -> str:
    """Return a run's status in words: "Training the student"."""
    return capfirst(str(Run.Status(status).label))


@register.filter
def by_level(plan: Any) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return each promise of a plan in which every holder votes, with its forecast (None without holders)."""
    document = plan if isinstance(plan, Mapping) else plan.to_json()
    forecasts = {level["name"]: level for level in document["turnout"]["levels"]}
    return [(promise, forecasts.get(promise["name"])) for promise in document["promises"]]


@register.filter
def learner_label(name: str) -> str:
    return _(published_label(name))


@register.filter
def parameter_words(parameters: Mapping[str, Any], learner: str) -> str:
    """Return the parameters of a learner, student or representation, with descriptions instead of names."""
    helps = parameter_helps(learner)
    return ", ".join(f"{helps.get(name, name)}: {_value(value)}" for name, value in parameters.items())


def parameter_helps(kind: str) -> dict[str, str]:
    """Return descriptions of the parameters of a learner, student or representation by name, or of all representations.

    A run that names no representation uses one that depends on its data.
    """
    if kind in STUDENTS:
        return {spec.name: _(spec.help) for spec in parameter_fields(STUDENTS[kind])}
    kinds = [REPRESENTATIONS[kind]] if kind in REPRESENTATIONS else REPRESENTATIONS.values()
    return {
        field.name: _(field.metadata["help"]) for each in kinds for field in fields(each) if "help" in field.metadata
    }


@register.filter
def chosen_words(chosen: Mapping[str, float]) -> str:
    """Return a student's choice based on held-out releases: "ridge penalty: 0.001"."""
    names = {"penalty": _("ridge penalty")}
    return ", ".join(f"{names.get(name, name)}: {localised(f'{value:.2g}')}" for name, value in chosen.items())


def _value(value: bool | float) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return trimmed(value) if isinstance(value, float) else str(value)


@register.filter
def aggregator_words(parameters: Mapping[str, Any]) -> str:
    """Return an aggregator with its parameters in the papers' notation: "GNMax, σ = 40"."""
    name = parameters["name"]
    aggregator = AGGREGATORS.get(name)
    symbols = {field.name: field.symbol for field in aggregator.fields()} if aggregator else {}
    values = (f"{symbols.get(key, key)} = {trimmed(value)}" for key, value in parameters.items() if key != "name")
    return ", ".join([_(aggregator.label) if aggregator else name, *values])


@register.filter
def choice_facts(run: Run) -> list[tuple[str, str]]:
    """Return the choices that apply to a run, with labels, and the method's other facts about the run."""
    method = method_of(run)
    facts = [
        (choice_label(choice), _chosen_words(run, choice))
        for choice in method.choices.described()
        if choice.name in run.choices and _is_fact(choice, run)
    ]
    details = [
        (_(label), format_html_join("; ", "{}", ((translated(sentence),) for sentence in sentences)))
        for label, sentences in method.facts(run)
    ]
    batch = [(_(method.batch_label), str(run.batch_size))] if method.batch_label else []
    return [*facts, *batch, *details]


def _chosen_words(run: Run, choice: Choice) -> str:
    if choice.is_encoder:
        encoder = encoder_of(run)
        return encoder.name if encoder is not None else run.encoder
    return run.choices[choice.name] if choice.is_column else capfirst(choice_words(choice, run.choices))


def _is_fact(choice: Choice, run: Run) -> bool:
    """Return whether a choice is worth stating, that is, it applies and something was chosen."""
    is_missing = choice.needs_public_points and run.public_dataset_id is None and not run.choices[choice.name]
    is_empty = (choice.type in (bool, dict) or choice.is_column or choice.is_encoder) and not run.choices[choice.name]
    is_beside = choice.name in {each.parameters for each in method_of(run).choices.described()}
    return not (is_missing or is_empty or is_beside) and choice.applies(run.choices)


def choice_label(choice: Choice) -> str:
    """Return the label of a choice for the start of a line; symbols of quantities stay unchanged: σ, not Σ."""
    label = _(choice.label)
    return capfirst(label) if label[:2].isalpha() else label


def choice_words(choice: Choice, chosen: Mapping[str, Any]) -> str:
    """Return the value of a method's choice in words, with its parameters."""
    value = chosen[choice.name]
    if choice.name == "representation_parameters":
        return parameter_words(value, chosen["representation"])
    if choice.kinds is None:
        return value_words(choice, value)
    if choice.type is dict:
        return aggregator_words(value)
    parameters = parameter_words(chosen.get(choice.parameters, {}), value)
    return f"{learner_label(value)} ({parameters})" if parameters else learner_label(value)


def value_words(choice: Choice, value: Any) -> str:
    """Return the value of a method's choice in words."""
    if value is None:
        return _(choice.unset) if choice.unset else "–"
    if choice.values is not None:
        return _(choice.values[value]) if value in choice.values else str(value)
    if choice.kinds is not None and choice.type is str:
        return learner_label(value)
    if choice.percent:
        return small_percent(value)
    return parameter_words(value, "") if choice.type is dict else _value(value)


@register.filter
def group_label(name: str) -> str:
    """Return the name of a privacy group by level: "High protection 2" for "HIGH 2"."""
    level, _space, number = name.partition(" ")
    return capfirst(f"{Level(level).label} {number}".strip()) if level in Level.values else name


@register.filter
def group_labels(names: Iterable[str]) -> str:
    return ", ".join(map(group_label, names))


def _filled_in(place: re.Match[str], values: dict[str, Any]) -> str:
    """Return the text for the placeholder ``place``: another sentence, a name (such as a group's), or a number."""
    if place["name"] is None:
        return "%"
    value = values[place["name"]]
    if isinstance(value, Sentence):
        return translated(value)
    if isinstance(value, str):
        return group_label(value)
    text = place[0] % values
    return localised(text) if isinstance(value, float) else text


#: Maximum number of omitted items whose positions a page lists.
_PLACES = 5


@register.filter
def balance_rows(balance: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the parts of a balance for its table, grouping parts that were left out entirely for the same reason.

    ``whole`` contains these groups, each with its reason, its parts and their total number of items; ``parts`` contains
    all other parts.
    """
    whole: dict[str, dict[str, Any]] = {}
    for part in balance:
        if part["seen"] and part["seen"] == part["left"] and len(part["left_out"]) == 1:
            reason = translated(part["left_out"][0]["reason"])
            group = whole.setdefault(reason, {"reason": reason, "count": 0, "parts": []})
            group["count"] += part["left"]
            group["parts"].append(part)
    folded = [group for group in whole.values() if len(group["parts"]) > 1]
    names = {part["part"] for group in folded for part in group["parts"]}
    parts = [
        {**part, "left_out": [{**line, "places": line["places"][:_PLACES]} for line in part["left_out"]]}
        for part in balance
        if part["part"] not in names
    ]
    return {"parts": parts, "whole": folded}


@register.filter
def translated(sentence: str | dict[str, Any]) -> str:
    """Return a sentence, which may come from a stored plan, in the reader's language.

    If there is no translation, the sentence is marked as English.
    """
    if isinstance(sentence, dict):
        sentence = Sentence.from_json(sentence)
    template = sentence.template if isinstance(sentence, Sentence) else sentence
    text = _(template)
    is_foreign = text == template and get_language() != "en"
    if isinstance(sentence, Sentence):
        text = _VALUE.sub(lambda place: _filled_in(place, sentence.values), text)
    return format_html('<span lang="en">{}</span>', text) if is_foreign else text


@register.filter
def significant(number: float | None) -> str:
    """Return a number with four significant digits and the reader's decimal separator; a dash if it is missing."""
    return "–" if number is None else localised(f"{number:.4g}")
