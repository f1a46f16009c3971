"""Pure differential privacy as a charge in μ²."""

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting.privacy import pure_dp_mu


@pytest.mark.parametrize("epsilon", [1e-300, 1e-12, 1e-4, 0.3, 0.999999, 1.0, 1.000001, 4.0, 50.0, 800.0, 1e5])
def test_never_below_the_formula_and_hardly_above(epsilon: float) -> None:
    with mpmath.workdps(60):
        mu = mpmath.mpf(float(pure_dp_mu(epsilon)))
        # μ = 2Φ⁻¹(1 − c) with c = 1/(1 + e^ε): Φ(−μ/2) ≤ c, but not by much
        c = 1 / (1 + mpmath.exp(epsilon))
        if epsilon < 1e-9:
            exact = mpmath.sqrt(mpmath.pi / 2) * epsilon
        else:
            start = -stats.norm.ppf(float(c)) * 2 if epsilon < 700 else 2 * mpmath.sqrt(2 * epsilon)
            exact = mpmath.findroot(lambda m: mpmath.log(mpmath.ncdf(-m / 2)) - mpmath.log(c), start)
        assert exact <= mu <= exact * (1 + 3e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 6.0])
def test_no_test_against_pure_dp_beats_the_gaussian(epsilon: float) -> None:
    """The trade-off curve of ε-DP is nowhere below that of μ-GDP, and touches it; with a smaller μ it is."""
    c = 1 / (1 + np.exp(epsilon))
    alpha = np.unique(np.concatenate([np.geomspace(1e-12, 0.5, 4000), np.linspace(0, 1, 4001), [c]]))
    pure = np.maximum(0, np.maximum(1 - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - alpha)))

    def gaussian(mu: float) -> np.ndarray:
        return stats.norm.cdf(stats.norm.isf(alpha) - mu)

    mu = pure_dp_mu(epsilon)
    assert (gaussian(mu) <= pure + 1e-15).all()
    assert pure[alpha == c] - gaussian(mu)[alpha == c] == pytest.approx(0, abs=1e-11)
    assert (gaussian(0.999 * mu) > pure).any()


def test_nothing_costs_nothing_and_shapes_stay() -> None:
    assert pure_dp_mu(0.0) == 0
    assert pure_dp_mu(np.ones((2, 3))).shape == (2, 3)
    assert (np.diff(pure_dp_mu(np.linspace(0, 3, 1001))) > 0).all()


@pytest.mark.parametrize("epsilon", [-1.0, np.nan, np.inf])
def test_bad_input_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        pure_dp_mu(epsilon)
