"""Calibration of the linear model that gradient steps led to, by what its last steps released."""

from dataclasses import replace

import numpy as np

from common.artifacts import arrays_load
from learning.calibration import CalibratedModel
from learning.mechanisms.steps.calibration import RECORDS, descent_calibration
from learning.mechanisms.steps.descent import Descent
from learning.representations import LinearModel
from training.methods.steps.rounds import question_load
from training.models import Dataset, Round
from training.sites.documents import noise_factor


def model_calibrate(current: Round, model: LinearModel) -> CalibratedModel:
    """The model of a round with its calibration: a function of releases and public points.

    Raises FileNotFoundError where a file of what was released is missing.
    """
    steps, final = _steps(current)
    records = assumed_records(current.run.private_dataset)
    return CalibratedModel(model, descent_calibration(steps, final, final.points, records=records))


def assumed_records(private: Dataset) -> float:
    """Records of a holder on average, of which the dataset itself says at most how many it takes."""
    return 1.0 if private.most_records == 1 else RECORDS


def _steps(current: Round) -> tuple[list[tuple[Descent, np.ndarray]], Descent]:
    """State before each step with the noisy sums that it released, and the state after the last.

    Their plan has the noise of the sums, which over sites is more than what people are charged by.
    """
    factor = noise_factor(current.run)
    state, steps = question_load(current).begin, []
    for released in current.batches.exclude(released="").order_by("index").values_list("released", flat=True):
        for sums in arrays_load(released, "sums")["sums"]:
            steps.append((_noisy(state, factor), sums))
            state = state.after(sums)
    return steps, _noisy(state, factor)


def _noisy(state: Descent, factor: float) -> Descent:
    return replace(state, plan=replace(state.plan, sigma=state.plan.sigma * factor))
