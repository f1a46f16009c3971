"""The lesson of private gradient steps: a linear model, and its predictions on the public points."""

import numpy as np

from common.artifacts import arrays_load, model_fetch
from learning.class_shares import Share
from learning.learners import Model
from learning.mechanisms.steps.adjustment import descent_adjustment
from learning.mechanisms.steps.calibration import descent_shares
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.descent import Descent, nearly_same
from learning.published import LINEAR
from learning.representations import LinearModel
from learning.students import Releases, predicted
from training.engine.questions import state_before
from training.methods.lessons import Lesson
from training.methods.space import points_of
from training.methods.steps.calibration import model_calibrate
from training.methods.steps.rounds import question_load
from training.models import Round, Run, StudentModel


def linear_model(opened_round: Round) -> LinearModel:
    """The model after all steps of a round; a function of what was released.

    That of another outcome than classes is adjusted to the noise of its steps.
    """
    question = question_load(opened_round)
    state = state_before(question, opened_round, opened_round.run.batches.count())
    model = state.model(question.fitted, question.target)
    if question.target is not None:
        model.adjustment = descent_adjustment(state, question.target)
    return model


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

    Of another outcome than classes a student learns how likely the model calls each category.
    """
    last = run.rounds.select_related("run").latest("index")
    linear = linear_model(last)
    model = model_calibrate(last, linear) if linear.target is None else linear
    chosen = Steps.from_json(run.choices).publish
    shares = released_shares(run) if run.classes else None
    return Lesson(releases_of_points(run, model), model=model, publish=chosen, shares=shares)


def released_shares(run: Run) -> list[Share] | None:
    """Shares of the classes among the people, by what the first step of all released."""
    first = run.rounds.exclude(artifact="").select_related("run").earliest("index")
    batch = first.batches.exclude(released="").order_by("index").first()
    if batch is None:
        return None
    return descent_shares(question_load(first).begin, arrays_load(batch.released, "sums")["sums"][0])


def releases_of_points(run: Run, model: Model) -> Releases:
    """What a model says of every public point, as a student learns it; nothing where no student could."""
    if not run.learns.categories or run.public_dataset is None:
        return predicted([], np.empty((0, 1)))
    shares = run.learns.shares(model.predict_proba(points_of(run.public_points, run.encoder)))
    return predicted(np.arange(len(shares)), shares)
