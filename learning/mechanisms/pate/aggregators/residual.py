"""Residual votes: teachers report only disagreement with the student, and fall silent after some disagreements."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import residual_vote_charge
from common.sentences import gettext_noop
from learning.mechanisms.pate.aggregators.aggregator import VoteCharge, parameter
from learning.mechanisms.pate.aggregators.noisy_max import GNMax
from learning.mechanisms.pate.votes import NO_VOTE, count_votes

SMALLEST_FIRST = 10
"""Smallest number of labels that a student learns from."""


@dataclass(frozen=True)
class ResidualGNMax(GNMax):
    """GNMax against a public guess: a teacher of weight w that predicts y contributes w·(e_y - e_ŷ), 0 where y = ŷ.

    The first `first` queries are put to a plain vote, whose labels train a student; its prediction is the guess ŷ from
    then on. After `disagreements` contributions a teacher is silent. However many queries follow, the two votes with
    and without a holder differ in at most 2 · `disagreements` of them: they are charged once, in advance
    (`accounting.privacy.residual_vote_charge`). A silent teacher counts as agreeing.

    >>> vote = ResidualGNMax(sigma=2.0, first=10, disagreements=1)
    >>> vote.count([[0, 1], [1, 1]], 2, [1.0, 2.0], guesses=[0, 0], disagreed=[0, 0])
    array([[1., 2.],
           [2., 1.]])
    >>> vote.charge(1.0)
    VoteCharge(check=0.0, label=0.5, first=10, rest=1.0)
    """

    first: float = parameter(
        "n",
        gettext_noop("queries of the plain vote"),
        gettext_noop("Number of queries in a plain vote before there is a student, at least 10."),
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
        "After a first plain vote, only disagreements with a student count. All queries together have one price."
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
        """See `Aggregator.count`; a plain vote without guesses. The public weight of all teachers counts for ŷ."""
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
        """Return 2w²/σ² for each label of the plain vote, 4dw²/σ² for all others together."""
        rest = residual_vote_charge(sensitivity, self.sigma, int(self.disagreements))
        return VoteCharge(0.0, super().charge(sensitivity).label, int(self.first), rest)
