"""From a Rényi-DP curve to (ε, δ)."""

import warnings
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy.checks import FloatArray, checked_delta, checked_orders
from accounting.privacy.papers.orders import DEFAULT_ORDERS

Conversion = Literal["improved", "classic"]


def epsilon_from_rdp(
    rdp: ArrayLike, delta: float, orders: ArrayLike = DEFAULT_ORDERS, conversion: Conversion = "improved"
) -> tuple[FloatArray, FloatArray]:
    """Smallest ε, and the order that gives it, such that a mechanism with this RDP curve is (ε, δ)-DP.

    ``classic`` is Mironov, "Rényi Differential Privacy" (2017), Proposition 3, as used by the PATE papers:
    ε = RDP(α) + ln(1/δ)/(α−1). ``improved`` is Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential
    Privacy" (2020), Proposition 12: ε = RDP(α) + ln((α−1)/α) − (ln δ + ln α)/(α−1), never the larger of the two. Both
    grow with every entry of the curve, so an overestimated cost gives an overestimated ε.

    Args:
        rdp: costs in natural units, shape (..., R), not negative; infinity where an order gives no bound.
        delta: the δ of (ε, δ)-DP, between 0 and 1.
        orders: the orders α > 1 of the last axis, shape (R,).
        conversion: "improved" or "classic".

    Returns:
        ε and the best order, both of shape rdp.shape[:-1] (0-d arrays for one curve). ε is never negative, and 0 for a
        curve of zeros, which says that nothing was released.

    Raises:
        ValueError: shapes that do not fit, negative or NaN costs, a δ or orders out of range, an unknown conversion.

    Warns:
        UserWarning: the best order is the first or last one, so that more orders would give a smaller ε.

    >>> epsilon, order = epsilon_from_rdp(DEFAULT_ORDERS / 2, delta=1e-5)  # a Gaussian of noise multiplier 1
    >>> round(float(epsilon), 3), float(order)
    (4.729, 5.5)
    >>> epsilon, order = epsilon_from_rdp(DEFAULT_ORDERS / 2, delta=1e-5, conversion="classic")
    >>> round(float(epsilon), 3), float(order)
    (5.303, 6.0)
    """
    curve, alpha = np.asarray(rdp, dtype=np.float64), checked_orders(orders)
    if curve.shape[-1:] != alpha.shape:
        raise ValueError(f"the last axis of rdp must match the {alpha.size} orders; its shape is {curve.shape}")
    if np.isnan(curve).any() or (curve < 0).any():
        raise ValueError("rdp must not be negative or NaN; a cost was computed from invalid input")
    candidates = curve + conversion_penalty(delta, alpha, conversion)
    best = candidates.argmin(axis=-1)
    epsilon = np.take_along_axis(candidates, best[..., None], axis=-1)[..., 0]
    nothing_spent = (curve == 0).all(axis=-1)
    epsilon = np.where(nothing_spent, 0.0, np.maximum(epsilon, 0.0))
    at_an_end = ((best == 0) | (best == alpha.size - 1)) & (epsilon > 0)
    if alpha.size > 1 and at_an_end.any():
        warnings.warn(
            f"the best order lies at an end of {alpha[0]:g}..{alpha[-1]:g}: ε is valid but larger than necessary; "
            "widen the orders",
            stacklevel=2,
        )
    return epsilon, alpha[best]


def conversion_penalty(delta: float, orders: FloatArray, conversion: Conversion) -> FloatArray:
    """Excess of ε over the RDP at every order: ε = min over α of RDP(α) + penalty(α).

    >>> conversion_penalty(1e-5, np.array([2.0, 3.0]), "classic").round(3)
    array([11.513,  5.756])
    """
    delta = checked_delta(delta)
    if conversion == "classic":
        return -np.log(delta) / (orders - 1)
    if conversion == "improved":
        return np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    raise ValueError(f"unknown conversion {conversion!r}; choose 'improved' or 'classic'")
