"""Most that a vote may charge a group, and cost of its queries. Public, as everything that follows from it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class VoteBudget:
    """Budget of one group of the plan, and cost of a query to each of its members, in μ².

    ``cap`` is the smallest in the group; ``allowed`` the run's share of it; the rest as in
    :class:`learning.mechanisms.pate.aggregators.base.VoteCharge`.
    """

    cap: float
    allowed: float
    check: float
    label: float
    first: int | None = None
    rest: float = 0.0

    @property
    def answer(self) -> float:
        """Cost of an answered query, one of the first where these alone are paid for one by one."""
        return self.check + self.label

    @property
    def answers(self) -> int | None:
        """Number of queries that can be answered at least, if each is; None for all of them."""
        if self.first is not None and self.first * self.answer + self.rest <= self.allowed:
            return None
        affordable = int(self.allowed / self.answer)
        return affordable if self.first is None else min(affordable, self.first)

    def costs(self, start: int, answered: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(Q,) what each query of a batch costs that begins with query ``start``, given whether each is answered."""
        one_by_one = self.check + self.label * answered.astype(np.float64)
        if self.first is None:
            return one_by_one
        number = np.arange(start, start + len(answered))
        return np.where(number < self.first, one_by_one, np.where(number == self.first, self.rest, 0.0))

    def affordable(self, answered: NDArray[np.bool_], present: NDArray[np.bool_] | None = None) -> int:
        """Return the number of leading queries of a vote that the group can pay for.

        A query counts as if it will be answered: whether it stops the vote does not depend on its own noise. After the
        first query that is too dear the group pays for none, whatever the later ones cost.

        Args:
            answered: (Q,) which queries were answered.
            present: (K, Q) which of the group's teachers take part in which query; None where all do. The group pays
                for a query if each of them can.

        >>> budget = VoteBudget(cap=1.0, allowed=1.0, check=0.1, label=0.2)
        >>> budget.affordable(np.array([False, True, False, True, True, True]))
        4
        """
        takes_part = np.ones((1, len(answered)), np.bool_) if present is None else present
        paid, at_most = self.costs(0, answered) * takes_part, self.costs(0, np.ones_like(answered)) * takes_part
        fits = np.all(np.cumsum(paid, axis=1) - paid + at_most <= self.allowed, axis=0)
        return len(fits) if fits.all() else int(np.argmin(fits))
