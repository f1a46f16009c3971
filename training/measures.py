"""Measures of a model in the form in which they are published: rounded, with intervals. Does not import Django."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from common.sentences import Sentence, gettext_noop
from learning.measures import (
    GRID,
    Bin,
    Estimate,
    area,
    average_precision,
    balanced_accuracy,
    base_loss,
    brier,
    calibration,
    commonest_answer,
    curves,
    gain,
    losses,
    mean_estimate,
    wilson,
)
from learning.outcomes import Target

if TYPE_CHECKING:
    from learning.calibration import Balance  # loads SciPy, which pages need not wait for

CURVES = ("calibration", "roc", "precision_recall", "confusion", "classes", "dataset")
"""Parts of an evaluation that are lists or descriptions. All other parts are measures and their intervals."""


def measures_of(card: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the measures of a card without its curves; None if the model was not evaluated.

    Cards of early versions contain only the accuracy.
    """
    evaluation = card.get("evaluation")
    return {name: value for name, value in evaluation.items() if name not in CURVES} if evaluation else None


def evaluated(
    probabilities: np.ndarray, truth: np.ndarray, classes: list[str], balance: "Balance | None" = None
) -> dict[str, Any]:
    """Return measures of classification: accuracies and their baseline, areas, losses, calibration, results by class.

    `learning.measures` defines each measure, and `answers` the most frequent answer. ``log_loss`` is null if it is
    infinite, and ``impossible`` counts the points whose true class had probability 0. ``confidence`` is the mean
    probability of the likeliest class, which is close to the accuracy if probabilities are calibrated. Intervals have
    95 % coverage.

    With a ``balance``, predictions are balanced; ``likeliest`` then has the accuracies of the most likely classes.
    """
    likeliest, points = probabilities.argmax(axis=1), len(truth)
    predicted = likeliest if balance is None else balance.labels(probabilities)
    accuracy = published_accuracy(int((predicted == truth).sum()), points)
    loss = losses(probabilities, truth)
    impossible = int(np.isinf(loss).sum())
    error, bins = calibration(probabilities, truth)
    counts = np.bincount(truth, minlength=len(classes))
    base = base_loss(truth, len(classes))
    return {
        "points": points,
        "accuracy": accuracy,
        "interval": accuracy_interval(accuracy, points),
        "majority": {
            "class": classes[int(counts.argmax())],
            "share": published_accuracy(int(counts.max()), points),
            **_measure("gain", gain(predicted, truth), points),
        },
        **_measure("balanced_accuracy", balanced_accuracy(predicted, truth), points),
        **({} if balance is None else {"likeliest": _likeliest(likeliest, truth)}),
        "answers": answers(predicted, np.eye(len(classes))[truth], classes),
        **_measure("area", area(probabilities, truth), points),
        **_measure("average_precision", average_precision(probabilities, truth), points),
        **_measure("brier", brier(probabilities, truth), points),
        **_measure("log_loss", Estimate() if impossible else mean_estimate(loss), points),
        "impossible": impossible,
        "base_log_loss": None if base is None else published_mean(base * points, points),
        "confidence": published_mean(float(probabilities.max(axis=1).sum()), points),
        **_measure("calibration_error", error, points),
        "calibration": [_bin(each) for each in bins],
        **_curves(probabilities, truth),
        "confusion": [
            [published_accuracy(count, int(counts[true])) for count in row]
            for true, row in enumerate(_crossed(truth, predicted, len(classes)).tolist())
        ],
        "classes": [_class(number, name, predicted, truth) for number, name in enumerate(classes)],
    }


ONE_CLASS = gettext_noop(
    "The model answers “%(name)s” for %(share)d %% of the test points, including %(missed)d %% of those that belong "
    "to other classes. Judge the model by its balanced accuracy, the mean over the classes, which is %(balanced)d %% "
    "(always giving the same answer: %(chance)d %%), and not by its accuracy. Use its probabilities, or choose a "
    "threshold."
)
ONE_CLASS_PUBLIC = gettext_noop(
    "The model answers “%(name)s” for %(share)d %% of the public points, including %(missed)d %% of those that "
    "belong to other classes. Use its probabilities, or choose a threshold."
)
ONE_CLASS_EXPECTED = gettext_noop(
    "The model answers “%(name)s” for %(share)d %% of the public points. According to its own probabilities, these "
    "include %(missed)d %% of the points that belong to other classes. Use its probabilities, or choose a threshold."
)
TOO_SURE = gettext_noop(
    "The model's probabilities are too high: on average it is %(confidence)d %% sure of its answers, but only "
    "%(accuracy)d %% are right. Do not rely on these probabilities."
)


#: Scale of log probabilities below which the uncalibrated model counts as overconfident.
_TOO_SURE_SCALE = 0.8
#: Share of the points of other classes from which a model counts as giving nearly always the same answer.
_NEARLY_ALL = 0.9
CORRECTED = gettext_noop(
    "After learning, the model was too sure of itself. This was corrected using labelled public points: log "
    "probabilities are multiplied by %(scale).2f. If people's records are distributed differently from these points, "
    "probabilities may still be too high."
)


def answers(predicted: np.ndarray, chances: np.ndarray, classes: list[str]) -> dict[str, Any] | None:
    """Return a model's most frequent answer: the ``class``, its ``share`` of all points, and ``missed``.

    ``missed`` is the share of other classes' points that get this answer, null if there are none. ``chances`` are as
    in `commonest_answer`. The result is None without points.
    """
    points = len(predicted)
    if not points:
        return None
    found = commonest_answer(predicted, chances)
    others = max(1, round(found.others))
    return {
        "class": classes[found.number],
        "points": points,
        "share": published_mean(found.share * points, points),
        "missed": published_mean(found.missed / found.others * others, others) if found.others > 0 else None,
    }


def is_nearly_one_class(answers: Mapping[str, Any] | None) -> bool:
    """Return whether a model gives its most frequent answer to at least nine tenths of the points of other classes."""
    missed = (answers or {}).get("missed")
    return missed is not None and missed >= _NEARLY_ALL


def cautions(
    evaluation: Mapping[str, Any] | None, scale: float, untested: Mapping[str, Any] | None = None
) -> list[Sentence]:
    """Return cautions for users of a classification model.

    Args:
        evaluation: Evaluation of the model; None without test data.
        scale: Scale of log probabilities from the model's calibration.
        untested: `answers` for public points, and whether these are ``labelled``, if the model was not evaluated.
    """
    if evaluation is None:
        if untested is None or not is_nearly_one_class(untested):
            return []
        return [_one_class(ONE_CLASS_PUBLIC if untested["labelled"] else ONE_CLASS_EXPECTED, untested)]
    if "classes" not in evaluation:
        return []
    found = []
    if is_nearly_one_class(evaluation["answers"]):
        balanced, chance = (
            evaluation["balanced_accuracy"],
            1 / sum(each["points"] > 0 for each in evaluation["classes"]),
        )
        shares = {"balanced": round(100 * balanced), "chance": round(100 * chance)}
        found.append(_one_class(ONE_CLASS, evaluation["answers"], **shares))
    # probabilities refer to the most likely class, which is often not the balanced answer
    likeliest = evaluation.get("likeliest", evaluation)
    confidence, accuracy = evaluation["confidence"], likeliest["accuracy"]
    if accuracy is not None and confidence > likeliest["interval"][1]:
        found.append(Sentence(TOO_SURE, confidence=round(100 * confidence), accuracy=round(100 * accuracy)))
    if scale < _TOO_SURE_SCALE:
        found.append(Sentence(CORRECTED, scale=scale))
    return found


def _likeliest(predicted: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Return the accuracies of the most likely classes, for comparison with balanced answers."""
    points = len(truth)
    accuracy = published_accuracy(int((predicted == truth).sum()), points)
    return {
        "accuracy": accuracy,
        "interval": accuracy_interval(accuracy, points),
        "balanced_accuracy": _measure("value", balanced_accuracy(predicted, truth), points)["value"],
    }


def _one_class(template: str, answers: Mapping[str, Any], **shares: int) -> Sentence:
    share, missed = (round(100 * answers[name]) for name in ("share", "missed"))
    return Sentence(template, name=answers["class"], share=share, missed=missed, **shares)


def target_evaluated(target: Target, predictions: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Return measures and a curve for predictions of an outcome other than classes; see `learning.outcomes`.

    Shares and scores are rounded like accuracies, and values with a unit are rounded to three digits.
    """
    points, measures = len(truth), target.evaluated(predictions, truth)
    return {
        "points": points,
        "outcome": target.kind,
        "measures": [
            {
                "name": each.name,
                "label": each.label,
                "of": each.of,
                "unit": each.unit,
                "value": _rounded(each.estimate.value, each.unit, points),
                "interval": None
                if each.estimate.interval is None
                else [_rounded(end, each.unit, 2000) for end in each.estimate.interval],
                "nothing": _rounded(each.nothing, each.unit, points),
            }
            for each in measures.measures
        ],
        "curve": [
            {
                name: [_rounded(end, "", 2000) for end in value]
                if isinstance(value, list)
                else value
                if name == "time"
                else _rounded(value, "", points)
                for name, value in point.items()
            }
            for point in measures.curve
        ],
    }


def _rounded(value: float | None, unit: str, points: int) -> float | None:
    """Return a measure as published: rounded to three digits if it has a unit, otherwise like an accuracy."""
    if value is None or not np.isfinite(value):
        return None
    return float(f"{value:.3g}") if unit else published_mean(value * points, points)


def _crossed(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Return the numbers of points by true class and predicted class, (classes, classes)."""
    return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)


def _measure(name: str, estimate: Estimate, points: int) -> dict[str, Any]:
    """Return a measure, rounded like an accuracy of this many points, and its interval, rounded to three digits."""
    value, ends = estimate.value, estimate.interval
    return {
        name: None if value is None else published_mean(value * points, points),
        f"{name}_interval": None if ends is None else [round(end, 3) for end in ends],
    }


def _curves(probabilities: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Return the ROC and precision-recall curves; the smallest group of points behind them determines the rounding."""
    found, precise, points = curves(probabilities, truth)

    def published(values: np.ndarray) -> list[float | None]:
        return [published_mean(float(value) * points, points) for value in values]

    roc = zip(GRID, published(found), strict=False)
    precision_recall = zip(GRID[1:], published(precise), strict=False)
    return {
        "roc": [{"false_positive": x, "true_positive": y} for x, y in roc],
        "precision_recall": [{"recall": x, "precision": y} for x, y in precision_recall],
    }


def _bin(part: Bin) -> dict[str, Any]:
    observed = published_accuracy(part.observed, part.points)
    return {
        "points": part.points,
        "predicted": published_mean(part.predicted * part.points, part.points),
        "observed": observed,
        "interval": accuracy_interval(observed, part.points),
    }


def _class(number: int, name: str, predicted: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    hits = int(((predicted == number) & (truth == number)).sum())
    called, are = int((predicted == number).sum()), int((truth == number).sum())
    recall = published_accuracy(hits, are)
    return {
        "class": name,
        "points": are,
        "precision": published_accuracy(hits, called),
        "recall": recall,
        "interval": accuracy_interval(recall, are),
    }


# --- Accuracies -------------------------------------------------------------------------------------------------------


#: Number of equal steps from 0 to 1 to which shares are rounded, as pairs of a minimum number of points and the number
#: of steps. `FEWEST_STEPS` applies to fewer points.
STEPS = ((2000, 1000), (400, 200))
FEWEST_STEPS = 100


def published_accuracy(right: int, points: int) -> float | None:
    """Return the share of correctly predicted points as shown on cards, on pages and in the API.

    It is rounded to the nearest multiple of 0.001 for at least 2,000 points, 0.005 for at least 400, and 0.01
    otherwise. The step depends only on the number of points, never on the share.

    Args:
        right: number of points with a correct prediction.
        points: number of points.

    Returns:
        The rounded share, between 0 and 1; None if there are no points.
    """
    return published_mean(right, points)


def published_mean(total: float, points: int) -> float | None:
    """Return ``total`` divided by the number of points, rounded like an accuracy."""
    if points == 0:
        return None
    steps = rounding_steps(points)
    return round(total * steps / points) / steps


def rounding_steps(points: int) -> int:
    """Return the number of steps from 0 to 1 for a share of this many points."""
    return next((steps for enough, steps in STEPS if points >= enough), FEWEST_STEPS)


def accuracy_interval(share: float | None, points: int) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a published share of correct predictions (Wilson 1927), to three digits.

    The interval is computed from the rounded share, so it reveals no more than that share and is valid for every share
    that is rounded to it.

    Args:
        share: the share from `published_accuracy`.
        points: number of points on which it is based.

    Returns:
        Lower and upper end; None if there are no points.

    >>> accuracy_interval(0.9, 100)
    (0.826, 0.945)
    """
    if share is None or points == 0:
        return None
    steps = rounding_steps(points)
    rounding = 0.5 / steps if steps % points else 0.0
    (low, _), (_, high) = wilson(max(share - rounding, 0.0), points), wilson(min(share + rounding, 1.0), points)
    return round(low, 3), round(high, 3)
