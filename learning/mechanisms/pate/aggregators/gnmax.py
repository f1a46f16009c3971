"""GNMax: the class with the most votes under Gaussian noise."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.privacy import gnmax_rdp, label_charge
from common.noise import Noise
from common.sentences import Sentence, gettext_noop
from common.validation import require_positive
from learning.mechanisms.pate.aggregators.base import Aggregator, VoteCharge, parameter


@dataclass(frozen=True)
class GNMax(Aggregator):
    """argmax_j {n_j + N(0, σ²)}: Papernot et al. 2018, section 4.1. Every query is answered; there is no check.

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> GNMax(sigma=2.0).release([[90.0, 5.0, 5.0]], SimulationNoise(0)).labels
    array([0])
    >>> GNMax(sigma=2.0).costs([[9.0, 1.0]], sensitivity=0.5, orders=[2.0], method="data_independent").label  # αw²/σ²
    array([[0.125]])
    """

    sigma: float = parameter(
        "σ",
        gettext_noop("noise of the vote"),
        gettext_noop(
            "Standard deviation of the Gaussian noise on the count of each class, in votes. About 0.2 × the number of "
            "teachers; more noise makes labels cheaper."
        ),
        suggested=lambda teachers, classes=10: 0.2 * teachers,
    )

    name: ClassVar[str] = "gnmax"
    label: ClassVar[str] = "GNMax"
    help: ClassVar[str] = gettext_noop("The class with the most votes under Gaussian noise.")
    adds_noise_once: ClassVar[bool] = True

    def warnings(self, votes: int, classes: int | None) -> list[Sentence]:
        """See `Aggregator.warnings`; two noisy counts differ by noise of standard deviation √2·σ."""
        if self.sigma * math.sqrt(2) <= votes:
            return []
        lost = gettext_noop(
            "σ = %(sigma)g is large for %(votes)d votes: even a unanimous vote is often lost to the noise."
        )
        return [Sentence(lost, sigma=self.sigma, votes=votes)]

    def scaled(self, factor: float) -> "GNMax":
        """σ grows with the votes.

        >>> GNMax(sigma=40.0).scaled(1.5)
        GNMax(sigma=60.0)
        """
        return replace(self, sigma=self.sigma * require_positive("factor", factor))

    @property
    def deviation(self) -> float:
        return self.sigma

    def charge(self, sensitivity: float) -> VoteCharge:
        """2w²/σ² for the label.

        >>> GNMax(sigma=2.0).charge(1.0)
        VoteCharge(check=0.0, label=0.5, first=None, rest=0.0)
        """
        return VoteCharge(0.0, label_charge(sensitivity, self.sigma))

    def _noisy_argmax(self, votes: NDArray[np.float64], noise: Noise) -> NDArray[np.int64]:
        return np.argmax(votes + noise.normal(self.sigma, votes.shape), axis=1)

    def _label_rdp(self, votes: NDArray[np.float64], **how: Any) -> NDArray[np.float64]:
        return gnmax_rdp(votes, self.sigma, **how)
