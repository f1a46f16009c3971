"""GNMax that releases the whole noisy histogram of every query."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.noise import Noise
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.pate.aggregators.base import Release
from learning.mechanisms.pate.aggregators.gnmax import GNMax
from learning.mechanisms.pate.validation import require_totals


@dataclass(frozen=True)
class NoisyCounts(GNMax):
    """n_j + N(0, σ²) of every class, rounded to whole numbers; the label is the class with the largest.

    A teacher of weight w that votes otherwise moves the histogram by w·√2, so it costs 2w²/σ², what GNMax charges for
    the label alone: that is a function of the histogram (docs/gaussian-accounts.md).

    >>> from learning.mechanisms.pate import SimulationNoise
    >>> release = NoisyCounts(sigma=2.0).release([[90.0, 5.0, 5.0]], SimulationNoise(0))
    >>> release.counts, release.labels
    (array([[90,  5,  6]]), array([0]))
    """

    name: ClassVar[str] = "noisy_counts"
    label: ClassVar[str] = gettext_noop("Noisy counts")
    help: ClassVar[str] = gettext_noop(
        "The noisy votes for every class, at the price of GNMax's label. Many queries with much noise teach a student "
        "that learns from all counts together."
    )
    releases_counts: ClassVar[bool] = True

    def warnings(self, votes: int, classes: int | None) -> list[Sentence]:
        """See `Aggregator.warnings`: single counts may be lost in the noise, the forecast says what all tell."""
        return []

    def release(self, votes: ArrayLike, noise: Noise, student_probabilities: ArrayLike | None = None) -> Release:
        """See `Aggregator.release`."""
        totals = require_totals(votes)
        counts = np.rint(totals + noise.normal(self.sigma, totals.shape)).astype(np.int64)
        return Release(counts.argmax(axis=1), np.ones(len(counts), np.bool_), counts=counts)

    def _label_rdp(self, votes: NDArray[np.float64], **how: Any) -> NDArray[np.float64]:
        # What is cheaper about votes that agree holds for the label alone.
        return super()._label_rdp(votes, **how | {"method": "data_independent"})
