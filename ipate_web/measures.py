"""Measures of a model on the test data in words, for pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from training.measures import FEWEST_STEPS, rounding_steps

DECIMALS = 3


@dataclass(frozen=True)
class MeasureWords:
    """A measure with its interval and the value that it is compared with, in words; "" for none."""

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
    # Shares of few points are rounded to whole per cent and shown no more exactly here.
    digits = DECIMALS if rounding_steps(evaluation.get("points") or 0) > FEWEST_STEPS else 2
    share = {"name": majority.get("class"), "share": decimal(majority.get("share"), digits)}
    message = _("always predicting “%(name)s”, the most frequent class: %(share)s") % share
    above = _("difference %(gain)s (%(interval)s)") % gain
    base = _("predicting the class shares for every point: %(loss)s") % {
        "loss": decimal(evaluation.get("base_log_loss"))
    }
    rows = (
        ("accuracy", "interval", _("Accuracy"), f"{message}; {above}"),
        ("area", "area_interval", _("Area under the ROC curve"), _("chance: 0.5, best: 1")),
        ("average_precision", "average_precision_interval", _("Area under the precision–recall curve"), ""),
        ("log_loss", "log_loss_interval", _("Log loss"), base),
        ("brier", "brier_interval", _("Brier score"), _("best: 0")),
        ("calibration_error", "calibration_error_interval", _("Expected calibration error"), _("best: 0")),
    )
    entries = []
    for key, ends, name, compared in rows:
        value = decimal(evaluation.get(key), digits if key == "accuracy" else DECIMALS)
        if key == "log_loss" and evaluation.get("impossible"):
            value = "∞"
        entries.append(MeasureWords(name, value, ends_words(evaluation.get(ends)), compared))
    return entries


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
        "" if nothing is None else _("without any knowledge of a record: %(value)s") % {"value": words(nothing)},
    )
