"""How much ε past spending leaves, as one number."""

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy.conversion import Conversion, conversion_penalty, epsilon_from_rdp
from accounting.privacy.orders import DEFAULT_ORDERS


def remaining_epsilon(
    past: ArrayLike,
    epsilon: float,
    delta: float,
    orders: ArrayLike = DEFAULT_ORDERS,
    conversion: Conversion = "improved",
) -> float:
    """The ε of the largest Gaussian mechanism that still fits beside ``past`` into the budget ``epsilon``.

    RDP curves add up, ε values do not, so ε − ε(past) understates what is left. The vote costs about as much as a
    Gaussian mechanism, RDP(α) = c·α; the largest c for which past(α) + c·α converts to at most ε is
    max over α of (ε − past(α) − penalty(α)) / α, and what it converts to alone is returned: 0 where nothing is left.

    Args:
        past: RDP already spent, shape (R,).
        epsilon: the budget.

    >>> round(remaining_epsilon(np.zeros(DEFAULT_ORDERS.size), 2.0, 1e-5), 2)
    2.0
    >>> round(remaining_epsilon(DEFAULT_ORDERS * 0.02, 2.0, 1e-5), 2)  # a plain difference gives 1.21
    1.79
    """
    alpha = np.asarray(orders, dtype=np.float64)
    largest = ((epsilon - np.asarray(past) - conversion_penalty(delta, alpha, conversion)) / alpha).max()
    if largest <= 0:
        return 0.0
    return min(float(epsilon), float(epsilon_from_rdp(largest * alpha, delta, alpha, conversion)[0]))
