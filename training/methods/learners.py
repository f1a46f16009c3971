"""Checks of the learners that a proposal names: of teachers, and of the student."""

from collections.abc import Callable

from django.utils.translation import gettext as _

from common.sentences import Sentence
from learning.formats import schema_from_json
from learning.learners.base import Parametrised
from learning.students import STUDENTS, student_create
from training.engine.vectors import encoder_of
from training.models import Encoder, Run


def student_check(run: Run, wrong: Callable[[str, object], None]) -> None:
    """Note what is wrong with the student of a proposal, so that nothing is spent before it cannot learn."""
    try:
        student = student_create(run.student_learner, run.student_parameters)
    except (ValueError, TypeError) as error:
        return wrong("student_parameters" if run.student_learner in STUDENTS else "student_learner", error)
    shape_check(run, "student_learner", student, wrong, encoder_of(run))


def shape_check(
    run: Run,
    role: str,
    learner: Parametrised,
    wrong: Callable[[str, object], None],
    encoder: Encoder | None = None,
) -> None:
    """Note that a learner cannot learn from records like the proposal's public points, or their vectors."""
    if run.public_dataset_id:
        try:
            schema = schema_from_json(run.public_points.schema)
            learner.shape_check(schema.shape if encoder is None else (encoder.width,))
        except ValueError as error:
            wrong(role, _message(error))


def _message(error: ValueError) -> str:
    """What a learner says is wrong, in the reader's language if it is a sentence."""
    reason = error.args[0]
    return _(reason.template) % reason.values if isinstance(reason, Sentence) else str(error)
