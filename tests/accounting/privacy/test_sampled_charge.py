"""Charges of Poisson-sampled Gaussian steps as (μ, δ′)."""

import math

import numpy as np
import pytest
from scipy.fft import irfft, next_fast_len, rfft
from scipy.stats import norm

from accounting.privacy import (
    epsilon_from_rdp,
    gdp_delta,
    gdp_epsilon,
    sampled_gaussian_epsilon,
    sampled_gaussian_mu,
    sampled_gaussian_rdp,
)

MNIST = (512 / 60000, 3.42529, 9375)


def delta_from_below(q: float, sigma: float, steps: int, adding: bool, points: np.ndarray) -> np.ndarray:
    """δ of the run, never above the truth but for rounding: losses rounded down to a grid, and convolved.

    Written from the definition of the privacy loss, without dp-accounting. The loss of one step at output x is
    ln((1 − q) + q·e^{(2x − 1)/(2σ²)}) with the holder against without, and its negative the other way round. Outputs
    beyond six standard deviations are left out.
    """
    spacing = 2e-4
    x = np.linspace(-6 * sigma, 6 * sigma + 1, 200_001)
    loss = np.log1p(q * np.expm1((2 * x - 1) / (2 * sigma**2)))
    cdf = norm.cdf(x, scale=sigma) if adding else (1 - q) * norm.cdf(x, scale=sigma) + q * norm.cdf(x, 1, sigma)
    lowest = np.minimum(-loss[:-1], -loss[1:]) if adding else np.minimum(loss[:-1], loss[1:])
    cells = np.floor(lowest / spacing).astype(int)
    one = np.bincount(cells - cells.min(), np.diff(cdf))
    size = next_fast_len(steps * (one.size - 1) + 1)
    mass = np.maximum(irfft(rfft(one, size) ** steps, size), 0)
    losses = (steps * cells.min() + np.arange(size)) * spacing
    return np.array([-np.expm1(e - losses[losses > e]) @ mass[losses > e] for e in points])


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.3, 4.0, 10), (0.01, 0.7, 8)])
def test_slack_and_gaussian_dominate_the_run_and_a_smaller_gaussian_does_not(q, sigma, steps) -> None:
    slack = 1e-6
    mu = sampled_gaussian_mu(q, sigma, steps, slack)
    points = np.linspace(0, 6 * mu + mu**2 / 2, 60)
    runs = [delta_from_below(q, sigma, steps, adding, points) for adding in (False, True)]
    for run in runs:
        assert (run <= slack + (1 - slack) * gdp_delta(mu, points) + 1e-11).all()
    smaller = slack + (1 - slack) * gdp_delta(0.97 * mu, points)
    assert (np.maximum(*runs) > smaller).any()


@pytest.mark.parametrize(
    ("sigma", "classic", "improved", "pld"), [(3.42529, 1.222, 1.004, 0.917), (1.032, 5.710, 5.085, 4.678)]
)
def test_renyi_and_loss_distribution_of_the_published_runs(sigma, classic, improved, pld) -> None:
    q, steps = MNIST[0], MNIST[2]
    rdp = sampled_gaussian_rdp(q, sigma, steps)
    assert epsilon_from_rdp(rdp, 1e-5, conversion="classic")[0] == pytest.approx(classic, abs=3e-3)
    assert epsilon_from_rdp(rdp, 1e-5)[0] == pytest.approx(improved, abs=3e-3)
    assert sampled_gaussian_epsilon(q, sigma, steps, 1e-5) == pytest.approx(pld, abs=2e-3)
    mu = sampled_gaussian_mu(q, sigma, steps, 1e-7)  # nearly nothing is lost in ε
    assert pld - 5e-4 <= gdp_epsilon(mu, 1e-5 - 1e-7) <= pld + (2e-3 if sigma > 3 else 0.02)


def test_everybody_in_every_step_is_the_gaussian_mechanism_and_no_person_or_step_costs_nothing() -> None:
    assert sampled_gaussian_mu(1.0, 10.0, 100, 0.0) == pytest.approx(1.0, rel=1e-14)
    assert sampled_gaussian_mu(1.0, 7.0, 3, 0.0) >= math.sqrt(3) / 7
    assert 1.0 - 1e-5 <= sampled_gaussian_mu(1 - 1e-6, 10.0, 100, 1e-8) <= 1.001
    assert sampled_gaussian_epsilon(1.0, 10.0, 100, 1e-5) == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=1e-12)
    assert sampled_gaussian_epsilon(0.0, 1.0, 100, 1e-5) == sampled_gaussian_epsilon(0.5, 1.0, 0, 1e-5) == 0
    assert sampled_gaussian_mu(0.0, 1.0, 100, 0.0) == sampled_gaussian_mu(0.5, 1.0, 0, 0.0) == 0


def test_epsilon_is_never_below_what_a_convolution_from_below_gives() -> None:
    q, sigma, steps, delta = 0.05, 1.0, 10, 1e-6
    epsilon = sampled_gaussian_epsilon(q, sigma, steps, delta)
    for adding in (False, True):
        assert delta_from_below(q, sigma, steps, adding, np.array([epsilon]))[0] <= delta
    assert max(delta_from_below(q, sigma, steps, a, np.array([0.98 * epsilon]))[0] for a in (False, True)) > delta


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sample_rate": 1.1}, "sample_rate"),
        ({"sample_rate": math.nan}, "sample_rate"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": 0.1}, "noise_multiplier"),
        ({"steps": 1.5}, "steps"),
        ({"steps": -1}, "steps"),
        ({"slack": 0.0}, "slack"),
        ({"slack": 1.0}, "slack"),
        ({"slack": 9e-13}, "tails have to be cut"),
        ({"noise_multiplier": 0.3, "sample_rate": 0.9, "steps": 300}, "no mu"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1e-13}, "delta"),
        ({"delta": 1e-5, "sample_rate": -0.1}, "sample_"),
    ],
)
def test_bad_input_is_refused(wrong: dict, message: str) -> None:
    right = {"sample_rate": 0.1, "noise_multiplier": 1.0, "steps": 10}
    charge, right = (
        (sampled_gaussian_epsilon, right) if "delta" in wrong else (sampled_gaussian_mu, right | {"slack": 1e-7})
    )
    with pytest.raises(ValueError, match=message):
        charge(**(right | wrong))
