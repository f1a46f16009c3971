"""GNMax: the class with the most votes under Gaussian noise."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.privacy import gnmax_rdp
from training.pate.aggregators.base import Aggregator
from training.pate.noise import Noise
from training.pate.validation import require_positive


@dataclass(frozen=True)
class GNMax(Aggregator):
    """argmax_j {n_j + N(0, σ²)}: Papernot et al. 2018, section 4.1. Every query is answered; there is no check.

    >>> from training.pate import SimulationNoise
    >>> GNMax(sigma=2.0).release([[90.0, 5.0, 5.0]], SimulationNoise(0)).labels
    array([0])
    >>> GNMax(sigma=2.0).costs([[9.0, 1.0]], sensitivity=0.5, orders=[2.0], method="data_independent").label  # αw²/σ²
    array([[0.125]])
    """

    sigma: float

    name: ClassVar[str] = "gnmax"

    def scaled(self, factor: float) -> "GNMax":
        """σ grows with the votes.

        >>> GNMax(sigma=40.0).scaled(1.5)
        GNMax(sigma=60.0)
        """
        return replace(self, sigma=self.sigma * require_positive("factor", factor))

    def _noisy_argmax(self, votes: NDArray[np.float64], noise: Noise) -> NDArray[np.int64]:
        return np.argmax(votes + noise.normal(self.sigma, votes.shape), axis=1)

    def _label_rdp(self, votes: NDArray[np.float64], **how: Any) -> NDArray[np.float64]:
        return gnmax_rdp(votes, self.sigma, **how)
