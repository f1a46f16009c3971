"""How much ε past spending leaves, as one number."""

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy.conversion import Conversion, conversion_penalty, epsilon_from_rdp
from accounting.privacy.filter import BUDGET_RESERVE
from accounting.privacy.orders import DEFAULT_ORDERS


def gaussian_rate(
    past: ArrayLike,
    epsilon: float,
    delta: float,
    orders: ArrayLike = DEFAULT_ORDERS,
    conversion: Conversion = "improved",
) -> float:
    """The largest c for which ``past`` and a Gaussian mechanism, RDP(α) = c·α, together convert to ``epsilon`` or less.

    past(α) + c·α + penalty(α) ≤ ε has to hold at one order only, so that c is the maximum over α of
    (ε − past(α) − penalty(α)) / α; 0 where nothing is left, or no more than the filter keeps back
    (:func:`accounting.privacy.affordable_prefix`): the rounding of what was given away is no budget.

    Args:
        past: RDP already spent, shape (R,).
        epsilon: the budget.

    >>> round(gaussian_rate(np.zeros(DEFAULT_ORDERS.size), 2.0, 1e-5), 3)
    0.108
    """
    alpha = np.asarray(orders, dtype=np.float64)
    left = epsilon - np.asarray(past) - conversion_penalty(delta, alpha, conversion)
    if left.max() < BUDGET_RESERVE * epsilon:
        return 0.0
    return float((left / alpha).max())


def remaining_epsilon(
    past: ArrayLike,
    epsilon: float,
    delta: float,
    orders: ArrayLike = DEFAULT_ORDERS,
    conversion: Conversion = "improved",
    share: float = 1.0,
) -> float:
    """The ε of the largest Gaussian mechanism that still fits beside ``past`` into the budget ``epsilon``.

    RDP curves add up, ε values do not, so ε − ε(past) understates what is left. The vote costs about as much as a
    Gaussian mechanism, RDP(α) = c·α; for the largest c (:func:`gaussian_rate`), what it converts to alone is returned:
    0 where nothing is left.

    Args:
        past: RDP already spent, shape (R,).
        epsilon: the budget.
        share: 0 to 1, how much of it: the ε of ``share`` · c, about that share of the labels.

    >>> round(remaining_epsilon(np.zeros(DEFAULT_ORDERS.size), 2.0, 1e-5), 2)
    2.0
    >>> round(remaining_epsilon(DEFAULT_ORDERS * 0.02, 2.0, 1e-5), 2)  # a plain difference gives 1.21
    1.79
    >>> round(remaining_epsilon(np.zeros(DEFAULT_ORDERS.size), 2.0, 1e-5, share=0.5), 2)  # ε grows like √c
    1.37
    """
    alpha = np.asarray(orders, dtype=np.float64)
    rate = share * gaussian_rate(past, epsilon, delta, alpha, conversion)
    if rate == 0:
        return 0.0
    return min(float(epsilon), float(epsilon_from_rdp(rate * alpha, delta, alpha, conversion)[0]))
