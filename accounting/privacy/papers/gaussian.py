"""The Gaussian mechanism."""

from numpy.typing import ArrayLike

from accounting.privacy.checks import FloatArray, checked_orders, checked_positive, checked_sensitivity
from accounting.privacy.papers.orders import DEFAULT_ORDERS


def gaussian_rdp(sigma: float, sensitivity: float = 1.0, orders: ArrayLike = DEFAULT_ORDERS) -> FloatArray:
    """RDP of adding N(0, σ²) to a value that one holder changes by at most ``sensitivity`` in Euclidean norm.

    Mironov, "Rényi Differential Privacy" (2017), Proposition 7: α·sensitivity²/(2σ²).

    Args:
        sigma: standard deviation of the noise, above 0, in the unit of the value.
        sensitivity: largest change by one holder, at least 0, in the same unit.
        orders: orders α > 1, shape (R,).

    Returns:
        The cost at every order, shape (R,).

    Raises:
        ValueError: sigma, sensitivity or orders out of range.

    >>> gaussian_rdp(2.0, 1.0, [2, 8])
    array([0.25, 1.  ])
    """
    alpha = checked_orders(orders)
    return alpha * (checked_sensitivity(sensitivity) / checked_positive("sigma", sigma)) ** 2 / 2
