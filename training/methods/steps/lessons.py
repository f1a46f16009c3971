"""The lesson of private gradient steps: a linear model, and its predictions on the public points."""

import numpy as np

from common.artifacts import model_fetch
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.descent import Descent, nearly_same
from learning.published import LINEAR
from learning.representations import LinearModel
from learning.students import predicted
from training.engine.questions import state_before
from training.methods.lessons import Lesson
from training.methods.space import points_of
from training.methods.steps.calibration import model_calibrated
from training.methods.steps.rounds import question_load
from training.models import Round, Run, StudentModel


def linear_model(opened_round: Round) -> LinearModel:
    """The model after all steps of a round; a function of what was released."""
    question = question_load(opened_round)
    state = state_before(question, opened_round, opened_round.run.batches.count())
    return state.model(question.fitted, question.target)


def published_follows(run: Run, state: Descent) -> bool:
    """Whether the model that a run has published has the weights of ``state``, if it is no student's."""
    published = StudentModel.objects.filter(run=run, learner=LINEAR).first()
    if published is None:
        return True
    try:
        model = LinearModel.from_bytes(model_fetch(published.artifact))
    except (OSError, ValueError):
        return False
    return nearly_same(model.weights, state.learned)


def descent_lesson(run: Run) -> Lesson:
    """The last round's model, calibrated, and what it makes of every public point: that costs nobody anything.

    Of another outcome than classes it is the model as it is: no student learns that.
    """
    last = run.rounds.select_related("run").latest("index")
    found = linear_model(last)
    if found.target is not None:
        return Lesson(predicted([], np.empty((0, found.classes))), model=found, publish="model")
    model = model_calibrated(last, found)
    probabilities = model.predict_proba(points_of(run.public_points))
    releases = predicted(np.arange(len(probabilities)), probabilities)
    return Lesson(releases, model=model, publish=Steps.from_json(run.choices).publish or published_usually(run))


def published_usually(run: Run) -> str:
    """Choice of what is published where a run does not say; it follows from the kind of its data alone.

    A student of images knows more of them than the model that taught it; of tables it only repeats what it was told.
    """
    return "student" if run.schema["kind"] == "image" else "model"
