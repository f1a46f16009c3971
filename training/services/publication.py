"""The rule by which a run publishes its model by itself; beneath it a person may, with a reason.

A run that released too few labels has no model at all.
"""

from typing import Any

from django.conf import settings
from django.utils.translation import gettext_noop

from common.sentences import Sentence
from training.methods import Outcome, method_of
from training.models import Run

LEAST_LABELS = 2
"""A student needs at least so many releases."""

_NO_LABEL = gettext_noop(
    "This run has no model: no label was released. Propose a run with more noise (a larger σ makes labels cheaper) or "
    "a lower threshold, or approve one with a larger share."
)
_ONE_LABEL = gettext_noop(
    "This run has no model: 1 label was released, and a student needs 2 at least. Propose a run with more noise (a "
    "larger σ makes labels cheaper) or a lower threshold, or approve one with a larger share."
)
_UNPUBLISHED = gettext_noop("This run has a model and did not publish it.")


def too_few_labels(labels: int) -> Sentence | None:
    """Return why no student can learn from so many released labels; None if one can."""
    return None if labels >= LEAST_LABELS else Sentence(_ONE_LABEL if labels else _NO_LABEL)


def without_model(run: Run) -> str:
    """Return why a finished run has no published model, as a sentence; empty for runs that have one or lead to none."""
    if run.status != Run.Status.FINISHED or run.student_id or method_of(run).outcome != Outcome.MODEL:
        return ""
    return run.message or (Sentence(_UNPUBLISHED) if run.students.exists() else "")


def publication_doubts(evaluation: dict[str, Any] | None) -> list[Sentence]:
    """Reasons not to publish a model without a person's decision; none where it is good enough.

    A model is judged by at least `LEAST_TEST_POINTS` points, and the 95 % interval of its area lies above 0.5, which is
    that of whoever says the most frequent class, or any one class, of every point; and it is right more often than the
    most frequent class. A model of a rare outcome hardly ever says it and yet can tell who is at risk: whether such a
    model is published is for a person to decide. Of another outcome the first measure decides: R² above 0, concordance
    or mean area above 0.5.
    """
    least = settings.LEAST_TEST_POINTS
    if least is None:
        return []
    points = evaluation["points"] if evaluation else 0
    if evaluation is None or points < least:
        text = gettext_noop("It was judged by %(points)d points, and at least %(least)d are needed.")
        return [Sentence(text, points=points, least=least)]
    if "measures" in evaluation:
        return _target_doubts(evaluation["measures"][0])
    if not evaluation["area_interval"] or evaluation["area_interval"][0] <= 0.5:
        return [
            Sentence(
                gettext_noop(
                    "On the test data it tells classes apart no better than whoever always says the most frequent one: "
                    "the interval of the area under its ROC curve does not lie above 0.5."
                )
            )
        ]
    gain = evaluation["majority"]["gain_interval"]
    if not gain or gain[0] <= 0:
        return [
            Sentence(
                gettext_noop(
                    "On the test data it may be right no more often than the most frequent class, named for every "
                    "point: the interval of the difference does not lie above 0."
                )
            )
        ]
    return []


def _target_doubts(measure: dict[str, Any]) -> list[Sentence]:
    if measure["interval"] and measure["interval"][0] > measure["nothing"]:
        return []
    text = gettext_noop(
        "On the test data it is no better than whoever knows nothing of a record: the interval of its %(measure)s does "
        "not lie above %(nothing)s."
    )
    return [Sentence(text, measure=measure["label"], nothing=f"{measure['nothing']:g}")]
