"""Aggregators that first check, with noise, whether teachers agree with one another or disagree with the student.

Papernot et al. 2018, Algorithms 1 and 2.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from accounting.privacy import check_charge, threshold_rdp
from accounting.privacy.checks import checked_votes
from common.noise import GRID, Noise, require_positive
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.pate.aggregators.aggregator import LabelRelease, VoteCharge, parameter
from learning.mechanisms.pate.aggregators.noisy_max import GNMax

#: Smallest difference between the chances of unanimous and of evenly spread votes for a useful check.
_DIFFERENCE = 1 / 3


@dataclass(frozen=True)
class ConfidentGNMax(GNMax):
    """GNMax for queries with max_j n_j + N(0, σ_T²) ≥ T; all others are rejected (Papernot et al. 2018, Algorithm 1).

    Every query pays for the check; only queries that pass the check also pay for the label.

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
        gettext_noop("check noise"),
        gettext_noop("Standard deviation of the check's Gaussian noise, in votes. Usually two to four times σ."),
        suggested=lambda teachers, classes=10: 0.4 * teachers,
    )
    threshold: float = parameter(
        "T",
        gettext_noop("threshold"),
        gettext_noop("Number of votes that the largest noisy count must reach for a query to be answered."),
        # Half-way between unanimous and evenly spread votes.
        suggested=lambda teachers, classes=10: teachers * (1 + 1 / classes) / 2,
    )

    name: ClassVar[str] = "confident_gnmax"
    label: ClassVar[str] = "Confident-GNMax"
    help: ClassVar[str] = gettext_noop(
        "Uses GNMax to answer queries on which enough teachers agree, and rejects all others."
    )
    adds_noise_once: ClassVar[bool] = False

    def warnings(self, votes: int, classes: int | None) -> list[Sentence]:
        values = {"threshold": self.threshold, "votes": votes}
        warnings = []
        if self.threshold > votes:
            too_high = gettext_noop(
                "T = %(threshold)g is above the number of votes (%(votes)d), so nearly every query will be rejected."
            )
            warnings.append(Sentence(too_high, **values))
        elif classes is not None and self.threshold * classes <= votes:
            too_low = gettext_noop(
                "T = %(threshold)g is so low that %(votes)d votes across %(classes)d classes reach it even if they "
                "disagree. The check costs budget but rejects hardly any queries."
            )
            warnings.append(Sentence(too_low, **values, classes=classes))
        if classes is not None and not self.asks_student and self._difference(votes, classes) < _DIFFERENCE:
            blind = gettext_noop(
                "σ_T = %(sigma)g is too large for %(votes)d votes across %(classes)d classes: unanimous votes are "
                "barely more likely to pass the check than votes with no agreement at all."
            )
            warnings.append(Sentence(blind, sigma=self.sigma_threshold, votes=votes, classes=classes))
        return warnings + super().warnings(votes, classes)

    def _difference(self, votes: int, classes: int) -> float:
        """Return the difference between the probabilities of answering a unanimous and an evenly spread vote."""
        counts = np.array([votes, votes / classes])
        unanimous, spread = ndtr((counts - self.threshold) / self.sigma_threshold)
        return float(unanimous - spread)

    def unanimous_share(self, votes: float) -> float:
        """Return the probability that a unanimous vote passes the check; see `Aggregator.unanimous_share`.

        >>> round(ConfidentGNMax(sigma=40.0, sigma_threshold=50.0, threshold=200.0).unanimous_share(250.0), 2)
        0.84
        """
        return float(ndtr((votes - self.threshold) / self.sigma_threshold))

    def charge(self, sensitivity: float) -> VoteCharge:
        """Return w²/σ_T² for the check and 2w²/σ² for the label.

        >>> ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0).charge(3.0)
        VoteCharge(check=0.0004, label=0.01125, first=None, rest=0.0)
        """
        return VoteCharge(check_charge(sensitivity, self.sigma_threshold), super().charge(sensitivity).label)

    def scaled(self, factor: float) -> "ConfidentGNMax":
        """Return the aggregator with σ, σ_T and T multiplied by the factor.

        >>> ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0).scaled(0.5)
        ConfidentGNMax(sigma=20.0, sigma_threshold=75.0, threshold=100.0)
        """
        by = require_positive("factor", factor)
        return replace(
            self, sigma=self.sigma * by, sigma_threshold=self.sigma_threshold * by, threshold=self.threshold * by
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
        """Return the numbers `(queries, classes)` whose maximum the check compares with T."""
        return votes


@dataclass(frozen=True)
class InteractiveGNMax(ConfidentGNMax):
    """Confident-GNMax against the student's current beliefs: Papernot et al. 2018, Algorithm 2.

    If max_j {n_j - k·p_j} + N(0, σ_T²) ≥ T, where k is the weight of all votes and p are the student's probabilities,
    GNMax answers. Otherwise, if max_j p_j > `confidence`, the student's own prediction is reinforced, which costs only
    the check. All other queries are rejected.

    p may depend only on previously released labels and on public data, never on other private data. k·p is then the
    same for neighbouring data, so the check of n_j - k·p_j costs as much as a check of n_j. If there is no student yet,
    pass probabilities of 0: the vote is then the same as in Confident-GNMax.

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> vote = InteractiveGNMax(sigma=2.0, sigma_threshold=2.0, threshold=50.0, confidence=0.9)
    >>> votes = [[90.0, 10.0], [90.0, 10.0], [90.0, 10.0]]
    >>> release = vote.release(votes, SimulationNoise(0), student_probabilities=[[0.1, 0.9], [0.95, 0.05], [0.8, 0.2]])
    >>> release.labels, release.answered, release.reinforced
    (array([ 0,  0, -1]), array([ True, False, False]), array([False,  True, False]))
    """

    confidence: float = parameter(
        "p",
        gettext_noop("minimum student confidence"),
        gettext_noop("Lowest probability at which the student's own label is used."),
        suggested=lambda teachers, classes=10: 0.9,
        below=1.0,
    )

    name: ClassVar[str] = "interactive_gnmax"
    label: ClassVar[str] = "Interactive-GNMax"
    help: ClassVar[str] = gettext_noop(
        "Uses Confident-GNMax to answer queries on which the teachers contradict the student."
    )
    asks_student: ClassVar[bool] = True
    reinforces: ClassVar[bool] = True

    def release(self, votes: ArrayLike, noise: Noise, student_probabilities: ArrayLike | None = None) -> LabelRelease:
        """Decide every query, reinforcing the student's confident predictions; `student_probabilities` is required."""
        counts = checked_votes(votes)
        probabilities = _require_probabilities(student_probabilities, counts)
        release = super().release(counts, noise, probabilities)
        reinforced = ~release.answered & (probabilities.max(axis=1) > self.confidence)
        labels = np.where(reinforced, probabilities.argmax(axis=1), release.labels)
        return LabelRelease(labels=labels, answered=release.answered)

    def _agreement(self, votes: NDArray[np.float64], student_probabilities: ArrayLike | None) -> NDArray[np.float64]:
        expected = votes.sum(axis=1, keepdims=True) * _require_probabilities(student_probabilities, votes)
        # Votes and noise lie on a grid, so the difference is exact, and a vote changes it by exactly its weight.
        return votes - np.rint(expected / GRID) * GRID


def _require_probabilities(probabilities: ArrayLike | None, votes: NDArray[np.float64]) -> NDArray[np.float64]:
    array = np.asarray(np.nan if probabilities is None else probabilities, dtype=np.float64)
    if array.shape != votes.shape or not ((array >= 0) & (array <= 1)).all():
        raise ValueError(
            f"student_probabilities must hold a probability for each entry of votes, shape {votes.shape}: pass the "
            "student's predictions for these queries, or zeros while there is no student."
        )
    return array
