"""Interactive-GNMax: pay for a label only where the teachers disagree with the student."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.noise import GRID, Noise
from common.sentences import gettext_noop
from learning.mechanisms.pate.aggregators.base import Release, parameter
from learning.mechanisms.pate.aggregators.confident import ConfidentGNMax
from learning.mechanisms.pate.validation import require_totals


@dataclass(frozen=True)
class InteractiveGNMax(ConfidentGNMax):
    """Confident-GNMax against what the student believes already: Papernot et al. 2018, Algorithm 2.

    Where max_j {n_j - k·p_j} + N(0, σ_T²) ≥ T, with k the weight of all votes and p the student's probabilities, GNMax
    answers. Elsewhere, where max_j p_j > `confidence`, the student's own prediction is reinforced, at the cost of the
    check alone. The rest is rejected.

    p may depend on labels released before and on public data, on nothing else that is private: so k·p is the same for
    neighbours, and the check costs what it costs without it, at other counts. Where there is no student yet, give
    probabilities of 0: then the vote is that of Confident-GNMax.

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> vote = InteractiveGNMax(sigma=2.0, sigma_threshold=2.0, threshold=50.0, confidence=0.9)
    >>> votes = [[90.0, 10.0], [90.0, 10.0], [90.0, 10.0]]
    >>> release = vote.release(votes, SimulationNoise(0), student_probabilities=[[0.1, 0.9], [0.95, 0.05], [0.8, 0.2]])
    >>> release.labels, release.answered, release.reinforced
    (array([ 0,  0, -1]), array([ True, False, False]), array([False,  True, False]))
    """

    confidence: float = parameter(
        "p",
        gettext_noop("confidence of the student"),
        gettext_noop("How sure the student must be for its own label to be taken, as a probability."),
        suggested=lambda teachers, classes=10: 0.9,
        below=1.0,
    )

    name: ClassVar[str] = "interactive_gnmax"
    label: ClassVar[str] = "Interactive-GNMax"
    help: ClassVar[str] = gettext_noop("Confident-GNMax for the queries on which the teachers contradict the student.")
    asks_student: ClassVar[bool] = True
    reinforces: ClassVar[bool] = True

    def release(self, votes: ArrayLike, noise: Noise, student_probabilities: ArrayLike | None = None) -> Release:
        """See `Aggregator.release`; `student_probabilities` is needed."""
        counts = require_totals(votes)
        probabilities = _require_probabilities(student_probabilities, counts)
        release = super().release(counts, noise, probabilities)
        reinforced = ~release.answered & (probabilities.max(axis=1) > self.confidence)
        labels = np.where(reinforced, probabilities.argmax(axis=1), release.labels)
        return Release(labels=labels, answered=release.answered)

    def _agreement(self, votes: NDArray[np.float64], student_probabilities: ArrayLike | None) -> NDArray[np.float64]:
        expected = votes.sum(axis=1, keepdims=True) * _require_probabilities(student_probabilities, votes)
        # On the grid of votes and noise the difference is exact, and a vote moves it by its weight and no rounding.
        return votes - np.rint(expected / GRID) * GRID


def _require_probabilities(probabilities: ArrayLike | None, votes: NDArray[np.float64]) -> NDArray[np.float64]:
    array = np.asarray(np.nan if probabilities is None else probabilities, dtype=np.float64)
    if array.shape != votes.shape or not ((array >= 0) & (array <= 1)).all():
        raise ValueError(
            f"student_probabilities must hold a probability for each entry of votes, shape {votes.shape}: pass what "
            "the student predicts for these queries, or zeros while there is no student."
        )
    return array
