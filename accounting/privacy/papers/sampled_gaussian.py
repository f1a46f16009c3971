"""The Gaussian mechanism on a random sample of the holders, by Google's dp-accounting."""

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy.checks import FloatArray, checked_orders, checked_positive
from accounting.privacy.papers.orders import DEFAULT_ORDERS


def sampled_gaussian_rdp(
    sample_rate: float, noise_multiplier: float, steps: int, orders: ArrayLike = DEFAULT_ORDERS
) -> FloatArray:
    """RDP of Gaussian sums over Poisson samples, as in DP-SGD; neighbours differ by one holder added or removed.

    Mironov, Talwar and Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism" (2019), Section 3.3.

    Args:
        sample_rate: probability with which each holder takes part in a step, 0 to 1.
        noise_multiplier: standard deviation of the noise over the sensitivity, above 0.
        steps: number of steps, at least 0.
        orders: orders α > 1, shape (R,).

    Returns:
        The cost of all steps at every order, shape (R,).

    Raises:
        ValueError: an argument out of range.

    >>> import numpy as np
    >>> sampled_gaussian_rdp(1.0, 2.0, 4, [2, 8])
    array([1., 4.])
    >>> bool((sampled_gaussian_rdp(0.01, 2.0, 4, [2, 8]) < [0.001, 0.005]).all())
    True
    """
    # Imported here: it takes a second, which neither the site nor a worker should spend to start.
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    if not 0 <= sample_rate <= 1:
        raise ValueError(f"sample_rate must lie between 0 and 1, not {sample_rate}; divide the batch by the holders")
    if steps != int(steps) or steps < 0:
        raise ValueError(f"steps must be a whole number of at least 0, not {steps}")
    event = PoissonSampledDpEvent(sample_rate, GaussianDpEvent(checked_positive("noise_multiplier", noise_multiplier)))
    accountant = RdpAccountant(checked_orders(orders)).compose(event, int(steps))
    return np.asarray(accountant.rdp, dtype=np.float64)
