"""The lesson of steps over samples: the network, and where there are public points what it says of them."""

import numpy as np

from common.artifacts import arrays_load, model_fetch
from learning.calibration import CalibratedModel, Calibration
from learning.learners import Model
from learning.mechanisms.sampled_steps.choices import Samples
from learning.mechanisms.sampled_steps.question import SampledQuestion
from learning.mechanisms.sampled_steps.training import SampledSteps
from learning.published import network_learner, published_load
from learning.students import predicted
from training.engine.questions import state_before
from training.methods.lessons import Lesson
from training.methods.sampled_steps.rounds import question_load
from training.methods.space import points_of
from training.methods.steps.calibration import assumed_records
from training.methods.steps.lessons import releases_of_points
from training.models import Round, Run, StudentModel


def network_lesson(run: Run) -> Lesson:
    """The network after the last step, and what it makes of every public point: that costs nobody anything.

    Where there are public points a model of classes is calibrated by them and by what was released.
    """
    opened_round = run.rounds.select_related("run").get()
    question = question_load(opened_round)
    model: Model = _model(question, state_before(question, opened_round, run.batches.count()))
    learner = network_learner(question.network)
    if run.public_dataset is None:
        return Lesson(predicted([], np.empty((0, 1))), model=model, learner=learner, publish="model")
    if question.target is None:
        points = points_of(run.public_dataset, run.encoder)
        model = CalibratedModel(model, _calibration(opened_round, question, points))
    publish = Samples.from_json(run.choices).publish
    return Lesson(releases_of_points(run, model), model=model, learner=learner, publish=publish)


def published_follows(run: Run, question: SampledQuestion, state: SampledSteps) -> bool:
    """Whether the network that a run has published is that of ``state``, if it is no student."""
    learner = network_learner(question.network)
    published = StudentModel.objects.filter(run=run, learner=learner).first()
    if published is None:
        return True
    try:
        content = published_load(learner, model_fetch(published.artifact)).to_bytes()
    except (OSError, ValueError):
        return False
    return content == _model(question, state).to_bytes()


def _calibration(opened_round: Round, question: SampledQuestion, points: np.ndarray) -> Calibration:
    """Calibration of the last state. Raises FileNotFoundError where a file of what was released is missing."""
    from learning.mechanisms.sampled_steps.released_gradients import network_calibration  # imports PyTorch

    names = opened_round.batches.exclude(released="").order_by("index").values_list("released", flat=True)
    states = [question.begin, *(question.state(arrays_load(name)) for name in names)]
    records = assumed_records(opened_round.run.private_dataset)
    return network_calibration(question, states, points, records=records)


def _model(question: SampledQuestion, state: SampledSteps) -> Model:
    from learning.mechanisms.sampled_steps.network_states import network_model  # PyTorch takes a second to import

    return network_model(question, state)
