"""A pure ε-DP release as a charge in Gaussian differential privacy."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfinv, ndtri_exp

from accounting.privacy.checks import FloatArray

_ROUNDING = 1e-12  # more than the relative error of the formulas below, so that a charge is never too small


def pure_dp_mu(epsilon: ArrayLike) -> FloatArray:
    """Smallest μ such that every ε-DP release is μ-GDP: 2·Φ⁻¹(e^ε/(1 + e^ε)), rounded up.

    A test between two neighbours by an ε-DP release, with false positive rate α, has a false negative rate of at least
    f(α) = max(0, 1 − e^ε·α, e^{−ε}·(1 − α)) (Wasserman and Zhou 2010; Dong, Roth and Su 2022, section 2). f is
    convex and piecewise linear, symmetric about the diagonal, with its kink at α = f(α) = c, c = 1/(1 + e^ε). The curve
    of μ-GDP, G(α) = Φ(Φ⁻¹(1 − α) − μ), is convex, symmetric, and runs from (0, 1) to (1, 0). If G(c) = c, it lies below
    the chords from (0, 1) to (c, c) and from (c, c) to (1, 0), which are f: so G ≤ f everywhere, and the release is
    μ-GDP. No smaller μ will do, because randomised response attains c. G(c) = c reads Φ⁻¹(1 − c) − μ = Φ⁻¹(c), that is
    μ = 2·Φ⁻¹(1 − c).

    Args:
        epsilon: ε ≥ 0, any shape.

    Returns:
        μ, in the same shape; √(π/2)·ε for small ε, 2·√(2ε) for large ε, about.

    Raises:
        ValueError: ε negative, infinite or NaN.

    >>> pure_dp_mu([0.0, 0.01, 1.0, 10.0]).round(4)
    array([0.    , 0.0125, 1.232 , 7.8279])
    """
    array = np.asarray(epsilon, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError("epsilon must be finite and not negative; a release without noise has no ε")
    # e^ε/(1 + e^ε) is (1 + tanh(ε/2))/2; beyond 1 the tail 1/(1 + e^ε) keeps the digits.
    near = 2 * np.sqrt(2) * erfinv(np.tanh(np.minimum(array, 1.0) / 2))
    far = -2 * ndtri_exp(-np.logaddexp(0.0, np.maximum(array, 1.0)))
    return (np.where(array <= 1, near, far) * (1 + _ROUNDING))[()]
