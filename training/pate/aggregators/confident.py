"""Confident-GNMax: ask first, under noise, whether the teachers agree at all."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from accounting.privacy import threshold_rdp
from training.pate.aggregators.gnmax import GNMax
from training.pate.noise import Noise
from training.pate.validation import require_positive, require_votes


@dataclass(frozen=True)
class ConfidentGNMax(GNMax):
    """GNMax where max_j n_j + N(0, σ_T²) ≥ T, and rejection otherwise: Papernot et al. 2018, Algorithm 1.

    The check is paid for on every query, the label on those that pass.

    >>> from training.pate import SimulationNoise
    >>> vote = ConfidentGNMax(sigma=2.0, sigma_threshold=2.0, threshold=70.0)
    >>> vote.release([[90.0, 5.0, 5.0], [34.0, 33.0, 33.0]], SimulationNoise(0)).labels
    array([ 0, -1])
    >>> cost = vote.costs([[90.0, 10.0]], sensitivity=1.0, orders=[2.0], method="data_independent")
    >>> cost.check, cost.label  # α / (2 σ_T²) and α / σ²
    (array([[0.25]]), array([[0.5]]))
    """

    sigma_threshold: float
    threshold: float

    name: ClassVar[str] = "confident_gnmax"

    def answer_probability(
        self, votes: ArrayLike, student_probabilities: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Φ((max_j n_j - T) / σ_T) for each query; see `Aggregator.answer_probability`.

        >>> ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0).answer_probability([[200.0, 50.0]])
        array([0.5])
        """
        counts = require_votes(votes)
        margin = self._agreement(counts, student_probabilities).max(axis=1) - self.threshold
        return np.where(counts.any(axis=1), ndtr(margin / self.sigma_threshold), 0.0)

    def scaled(self, factor: float) -> "ConfidentGNMax":
        """σ, σ_T and T grow with the votes.

        >>> ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0).scaled(0.5)
        ConfidentGNMax(sigma=20.0, sigma_threshold=75.0, threshold=100.0)
        """
        by = require_positive("factor", factor)
        return replace(
            self,
            sigma=self.sigma * by,
            sigma_threshold=self.sigma_threshold * by,
            threshold=self.threshold * by,
        )

    def _passes_check(
        self, votes: NDArray[np.float64], noise: Noise, student_probabilities: ArrayLike | None
    ) -> NDArray[np.bool_]:
        agreement = self._agreement(votes, student_probabilities).max(axis=1)
        return agreement + noise.normal(self.sigma_threshold, agreement.shape) >= self.threshold

    def _check_rdp(
        self, votes: NDArray[np.float64], student_probabilities: ArrayLike | None, **how: Any
    ) -> NDArray[np.float64]:
        return threshold_rdp(self._agreement(votes, student_probabilities), self.threshold, self.sigma_threshold, **how)

    def _agreement(self, votes: NDArray[np.float64], student_probabilities: ArrayLike | None) -> NDArray[np.float64]:
        """`(queries, classes)`: the numbers whose largest the check compares with T."""
        return votes
