"""Confident-GNMax: ask first, under noise, whether the teachers agree at all."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from accounting.privacy import check_charge, threshold_rdp
from common.noise import Noise
from common.sentences import Sentence, gettext_noop
from common.validation import require_positive
from learning.mechanisms.pate.aggregators.base import VoteCharge, parameter
from learning.mechanisms.pate.aggregators.gnmax import GNMax

#: A check that tells agreement from none by less than this is hardly one.
_DIFFERENCE = 1 / 3


@dataclass(frozen=True)
class ConfidentGNMax(GNMax):
    """GNMax where max_j n_j + N(0, σ_T²) ≥ T, and rejection otherwise: Papernot et al. 2018, Algorithm 1.

    The check is paid for on every query, the label on those that pass.

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> vote = ConfidentGNMax(sigma=2.0, sigma_threshold=2.0, threshold=70.0)
    >>> vote.release([[90.0, 5.0, 5.0], [34.0, 33.0, 33.0]], SimulationNoise(0)).labels
    array([ 0, -1])
    >>> cost = vote.costs([[90.0, 10.0]], sensitivity=1.0, orders=[2.0], method="data_independent")
    >>> cost.check, cost.label  # α / (2 σ_T²) and α / σ²
    (array([[0.25]]), array([[0.5]]))
    """

    sigma_threshold: float = parameter(
        "σ_T",
        gettext_noop("noise of the check"),
        gettext_noop("Standard deviation of the Gaussian noise of the check, in votes. Usually two to four times σ."),
        suggested=lambda teachers, classes=10: 0.4 * teachers,
    )
    threshold: float = parameter(
        "T",
        gettext_noop("threshold"),
        gettext_noop("How many votes the largest count must reach, under noise, for a query to be answered."),
        # Half way between agreement and votes that are as evenly spread as can be.
        suggested=lambda teachers, classes=10: teachers * (1 + 1 / classes) / 2,
    )

    name: ClassVar[str] = "confident_gnmax"
    label: ClassVar[str] = "Confident-GNMax"
    help: ClassVar[str] = gettext_noop("GNMax for the queries on which enough teachers agree; it rejects the others.")
    adds_noise_once: ClassVar[bool] = False

    def warnings(self, votes: int, classes: int | None) -> list[Sentence]:
        """See `Aggregator.warnings`."""
        values = {"threshold": self.threshold, "votes": votes}
        warnings = []
        if self.threshold > votes:
            too_high = gettext_noop(
                "T = %(threshold)g lies above the number of votes (%(votes)d): nearly every query will be rejected."
            )
            warnings.append(Sentence(too_high, **values))
        elif classes is not None and self.threshold * classes <= votes:
            too_low = gettext_noop(
                "T = %(threshold)g is what %(votes)d votes over %(classes)d classes reach without agreeing: the check "
                "costs, and hardly rejects a query."
            )
            warnings.append(Sentence(too_low, **values, classes=classes))
        if classes is not None and not self.asks_student and self._difference(votes, classes) < _DIFFERENCE:
            blind = gettext_noop(
                "σ_T = %(sigma)g is large for %(votes)d votes over %(classes)d classes: a unanimous vote passes the "
                "check hardly more often than one that agrees on nothing."
            )
            warnings.append(Sentence(blind, sigma=self.sigma_threshold, votes=votes, classes=classes))
        return warnings + super().warnings(votes, classes)

    def _difference(self, votes: int, classes: int) -> float:
        """Difference of the probabilities that a unanimous vote is answered and that one which is spread evenly is."""
        counts = np.array([votes, votes / classes])
        unanimous, spread = ndtr((counts - self.threshold) / self.sigma_threshold)
        return float(unanimous - spread)

    def unanimous_share(self, votes: float) -> float:
        """See `Aggregator.unanimous_share`.

        >>> round(ConfidentGNMax(sigma=40.0, sigma_threshold=50.0, threshold=200.0).unanimous_share(250.0), 2)
        0.84
        """
        return float(ndtr((votes - self.threshold) / self.sigma_threshold))

    def charge(self, sensitivity: float) -> VoteCharge:
        """w²/σ_T² for the check, 2w²/σ² for the label.

        >>> ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0).charge(3.0)
        VoteCharge(check=0.0004, label=0.01125, first=None, rest=0.0)
        """
        return VoteCharge(check_charge(sensitivity, self.sigma_threshold), super().charge(sensitivity).label)

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
