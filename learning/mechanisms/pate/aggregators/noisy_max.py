"""Aggregators that answer with the most frequent class under Gaussian noise (GNMax) or Laplace noise (LNMax).

`NoisyCounts` publishes the whole histogram. In residual votes, teachers report only disagreement with the student, and
stop voting after a certain number of disagreements.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import gnmax_rdp, label_charge, lnmax_charge, lnmax_rdp, residual_vote_charge
from accounting.privacy.checks import checked_votes
from common.noise import Noise, require_positive
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.pate.aggregators.aggregator import Aggregator, LabelRelease, VoteCharge, parameter
from learning.mechanisms.pate.votes import NO_VOTE, count_votes


@dataclass(frozen=True)
class GNMax(Aggregator):
    """Aggregator argmax_j {n_j + N(0, σ²)}, which answers every query (Papernot et al. 2018, section 4.1).

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> GNMax(sigma=2.0).release([[90.0, 5.0, 5.0]], SimulationNoise(0)).labels
    array([0])
    >>> GNMax(sigma=2.0).costs([[9.0, 1.0]], sensitivity=0.5, orders=[2.0], method="data_independent").label  # αw²/σ²
    array([[0.125]])
    """

    sigma: float = parameter(
        "σ",
        gettext_noop("vote noise"),
        gettext_noop(
            "Standard deviation of the Gaussian noise on each class's count, in votes. Usually about 0.2 times the "
            "number of teachers. More noise makes labels cheaper."
        ),
        suggested=lambda teachers, classes=10: 0.2 * teachers,
    )

    name: ClassVar[str] = "gnmax"
    label: ClassVar[str] = "GNMax"
    help: ClassVar[str] = gettext_noop("Picks the class with the most votes after Gaussian noise is added.")
    adds_noise_once: ClassVar[bool] = True

    def warnings(self, votes: int, classes: int | None) -> list[Sentence]:
        """Return a warning if noise can hide a unanimous vote. Two counts' difference has standard deviation √2·σ."""
        if self.sigma * math.sqrt(2) <= votes:
            return []
        lost = gettext_noop(
            "σ = %(sigma)g is large for %(votes)d votes: the noise often outweighs even a unanimous vote."
        )
        return [Sentence(lost, sigma=self.sigma, votes=votes)]

    def scaled(self, factor: float) -> "GNMax":
        """Return the aggregator with σ multiplied by the factor.

        >>> GNMax(sigma=40.0).scaled(1.5)
        GNMax(sigma=60.0)
        """
        return replace(self, sigma=self.sigma * require_positive("factor", factor))

    @property
    def deviation(self) -> float:
        return self.sigma

    def charge(self, sensitivity: float) -> VoteCharge:
        """Return 2w²/σ² for the label.

        >>> GNMax(sigma=2.0).charge(1.0)
        VoteCharge(check=0.0, label=0.5, first=None, rest=0.0)
        """
        return VoteCharge(0.0, label_charge(sensitivity, self.sigma))

    def _noisy_argmax(self, votes: NDArray[np.float64], noise: Noise) -> NDArray[np.int64]:
        return np.argmax(votes + noise.normal(self.sigma, votes.shape), axis=1)

    def _label_rdp(self, votes: NDArray[np.float64], **how: Any) -> NDArray[np.float64]:
        return gnmax_rdp(votes, self.sigma, **how)


@dataclass(frozen=True)
class LNMax(Aggregator):
    """Aggregator argmax_j {n_j + Lap(1/γ)}, which answers every query (Papernot et al. 2017, section 2.1).

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> LNMax(gamma=0.5).release([[90.0, 5.0, 5.0]], SimulationNoise(0)).labels
    array([0])
    >>> LNMax(gamma=0.1).costs([[9.0, 1.0]], sensitivity=0.5, orders=[2.0], method="data_independent").label  # 2(γw)²α
    array([[0.01]])
    """

    gamma: float = parameter(
        "γ",
        gettext_noop("inverse noise scale"),
        gettext_noop(
            "The Laplace noise on each class's count has the scale 1/γ, in votes. Usually about 10 divided by the "
            "number of teachers. A smaller γ means more noise."
        ),
        suggested=lambda teachers, classes=10: 10 / teachers,
    )

    name: ClassVar[str] = "lnmax"
    label: ClassVar[str] = "LNMax"
    help: ClassVar[str] = gettext_noop("Picks the class with the most votes after Laplace noise is added.")

    def scaled(self, factor: float) -> "LNMax":
        """Return the aggregator with the noise's scale 1/γ multiplied by the factor.

        >>> LNMax(gamma=0.1).scaled(2.0)
        LNMax(gamma=0.05)
        """
        return replace(self, gamma=self.gamma / require_positive("factor", factor))

    @property
    def deviation(self) -> float:
        return math.sqrt(2) / self.gamma

    def charge(self, sensitivity: float) -> VoteCharge:
        """Return the μ² of a label. Its release satisfies pure DP with ε₀ = 2γw."""
        return VoteCharge(0.0, lnmax_charge(sensitivity, self.gamma))

    def _noisy_argmax(self, votes: NDArray[np.float64], noise: Noise) -> NDArray[np.int64]:
        return np.argmax(votes + noise.laplace(1.0 / self.gamma, votes.shape), axis=1)

    def _label_rdp(self, votes: NDArray[np.float64], **how: Any) -> NDArray[np.float64]:
        return lnmax_rdp(votes, self.gamma, **how)


@dataclass(frozen=True)
class NoisyCounts(GNMax):
    """Aggregator that releases all counts n_j + N(0, σ²), rounded; the label is the class with the largest count.

    If a teacher of weight w votes differently, the histogram moves by w·√2, so it costs 2w²/σ². GNMax charges the same
    for the label only, because the label is a function of the histogram (docs/gaussian-accounts.md).

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> release = NoisyCounts(sigma=2.0).release([[90.0, 5.0, 5.0]], SimulationNoise(0))
    >>> release.counts, release.labels
    (array([[90,  5,  6]]), array([0]))
    """

    name: ClassVar[str] = "noisy_counts"
    label: ClassVar[str] = gettext_noop("Noisy counts")
    help: ClassVar[str] = gettext_noop(
        "Releases the noisy count of every class, at the cost of one GNMax label. If the student learns from all "
        "counts together, many queries with a lot of noise work well."
    )
    releases_counts: ClassVar[bool] = True

    def warnings(self, votes: int, classes: int | None) -> list[Sentence]:
        """Return no warnings: noise larger than a count is fine for a student that learns from all counts together."""
        return []

    def release(self, votes: ArrayLike, noise: Noise, student_probabilities: ArrayLike | None = None) -> LabelRelease:
        totals = checked_votes(votes)
        counts = np.rint(totals + noise.normal(self.sigma, totals.shape)).astype(np.int64)
        return LabelRelease(counts.argmax(axis=1), np.ones(len(counts), np.bool_), counts=counts)

    def _label_rdp(self, votes: NDArray[np.float64], **how: Any) -> NDArray[np.float64]:
        # The cheaper bounds for votes that agree apply only if nothing but the label is released.
        return super()._label_rdp(votes, **how | {"method": "data_independent"})


SMALLEST_FIRST = 10
"""Smallest number of labels that a student learns from."""


@dataclass(frozen=True)
class ResidualGNMax(GNMax):
    """GNMax against a public guess: a teacher of weight w that predicts y contributes w·(e_y - e_ŷ), or 0 if y = ŷ.

    The first `first` queries are put to a plain vote, whose labels train a student. From then on, the guess ŷ is the
    student's prediction. After `disagreements` contributions, a teacher stops voting and is treated as agreeing.
    However many queries follow, the votes with and without a holder differ in at most 2 · `disagreements` queries,
    which are charged once, in advance (`accounting.privacy.residual_vote_charge`).

    >>> vote = ResidualGNMax(sigma=2.0, first=10, disagreements=1)
    >>> vote.count([[0, 1], [1, 1]], 2, [1.0, 2.0], guesses=[0, 0], disagreed=[0, 0])
    array([[1., 2.],
           [2., 1.]])
    >>> vote.charge(1.0)
    VoteCharge(check=0.0, label=0.5, first=10, rest=1.0)
    """

    first: float = parameter(
        "n",
        gettext_noop("queries in the plain vote"),
        gettext_noop("Number of queries in a plain vote before there is a student (minimum 10)."),
        suggested=lambda teachers, classes=10: 40.0,
    )
    disagreements: float = parameter(
        "d",
        gettext_noop("disagreements"),
        gettext_noop(
            "After this many disagreements with the student, a teacher stops voting. The charge covers all of these "
            "disagreements."
        ),
        suggested=lambda teachers, classes=10: 20.0,
    )

    name: ClassVar[str] = "residual_gnmax"
    label: ClassVar[str] = gettext_noop("Residual GNMax")
    help: ClassVar[str] = gettext_noop(
        "After a first plain vote, only votes that disagree with a student are counted. All queries together are "
        "charged only once."
    )
    asks_student: ClassVar[bool] = True
    pays_once: ClassVar[bool] = True
    has_paper_costs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("first", SMALLEST_FIRST), ("disagreements", 1)):
            number = getattr(self, name)
            if number != int(number) or number < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, not {number:g}.")

    def count(
        self,
        predictions: ArrayLike,
        classes: int,
        weights: ArrayLike,
        *,
        guesses: ArrayLike | None = None,
        disagreed: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Count votes for each class, without charging teachers that agree with the guesses; see `Aggregator.count`.

        If there are guesses ŷ, the public total weight of all teachers is added to the votes for ŷ.
        """
        if guesses is None or disagreed is None:
            return count_votes(predictions, classes, weights)
        matrix, guess = np.asarray(predictions), np.asarray(guesses)
        differs = (matrix != NO_VOTE) & (matrix != guess)
        before = np.asarray(disagreed)[:, None] + np.cumsum(differs, axis=1) - differs
        speaks = differs & (before < self.disagreements)
        for_themselves = count_votes(np.where(speaks, matrix, NO_VOTE), classes, weights)
        against = np.where(speaks, np.asarray(weights, np.float64)[:, None], 0.0).sum(axis=0)
        votes = for_themselves
        votes[np.arange(len(guess)), guess] += np.sum(weights) - against
        return votes

    def charge(self, sensitivity: float) -> VoteCharge:
        """Return 2w²/σ² for each label of the plain vote, and 4dw²/σ² for all others together."""
        rest = residual_vote_charge(sensitivity, self.sigma, int(self.disagreements))
        return VoteCharge(0.0, super().charge(sensitivity).label, int(self.first), rest)
