"""LNMax: the class with the most votes under Laplace noise."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.privacy import lnmax_charge, lnmax_rdp
from common.noise import Noise
from common.sentences import gettext_noop
from common.validation import require_positive
from learning.mechanisms.pate.aggregators.base import Aggregator, VoteCharge, parameter


@dataclass(frozen=True)
class LNMax(Aggregator):
    """argmax_j {n_j + Lap(1/γ)}: Papernot et al. 2017, section 2.1. Every query is answered; there is no check.

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> LNMax(gamma=0.5).release([[90.0, 5.0, 5.0]], SimulationNoise(0)).labels
    array([0])
    >>> LNMax(gamma=0.1).costs([[9.0, 1.0]], sensitivity=0.5, orders=[2.0], method="data_independent").label  # 2(γw)²α
    array([[0.01]])
    """

    gamma: float = parameter(
        "γ",
        gettext_noop("inverse scale of the noise"),
        gettext_noop(
            "The Laplace noise on the count of each class has the scale 1/γ, in votes. About 10 / the number of "
            "teachers; a smaller γ is more noise."
        ),
        suggested=lambda teachers, classes=10: 10 / teachers,
    )

    name: ClassVar[str] = "lnmax"
    label: ClassVar[str] = "LNMax"
    help: ClassVar[str] = gettext_noop("The class with the most votes under Laplace noise.")

    def scaled(self, factor: float) -> "LNMax":
        """The scale 1/γ of the noise grows with the votes.

        >>> LNMax(gamma=0.1).scaled(2.0)
        LNMax(gamma=0.05)
        """
        return replace(self, gamma=self.gamma / require_positive("factor", factor))

    @property
    def deviation(self) -> float:
        return math.sqrt(2) / self.gamma

    def charge(self, sensitivity: float) -> VoteCharge:
        """The μ² of a pure DP label with ε₀ = 2γw."""
        return VoteCharge(0.0, lnmax_charge(sensitivity, self.gamma))

    def _noisy_argmax(self, votes: NDArray[np.float64], noise: Noise) -> NDArray[np.int64]:
        return np.argmax(votes + noise.laplace(1.0 / self.gamma, votes.shape), axis=1)

    def _label_rdp(self, votes: NDArray[np.float64], **how: Any) -> NDArray[np.float64]:
        return lnmax_rdp(votes, self.gamma, **how)
