"""Charges of Poisson-sampled Gaussian steps as (μ, δ′)."""

import math
from collections.abc import Iterator
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from accounting.privacy import (
    epsilon_from_rdp,
    gdp_delta,
    gdp_epsilon,
    sampled_gaussian_epsilon,
    sampled_gaussian_mu,
    sampled_gaussian_rdp,
)
from accounting.privacy.sampled_charge import Losses, _normal_masses, sampled_losses

MNIST = (512 / 60000, 3.42529, 9375)


def delta_from_below(q: float, sigma: float, steps: int, adding: bool, points: np.ndarray) -> np.ndarray:
    """Bound the run's δ from below, except for rounding: losses are rounded down to a grid, and convolved.

    Written from the definition of the privacy loss, without dp-accounting. The loss of one step at output x is ln((1 −
    q) + q·e^{(2x − 1)/(2σ²)}) with the holder against without, and its negative the other way round. Outputs beyond six
    standard deviations are left out.
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
    mu = sampled_gaussian_mu(q, sigma, steps, 1e-7)  # almost nothing is lost in ε
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


mpf = mpmath.mpf


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


#: q, σ: ordinary, weak noise, hardly anybody, nearly everybody, strong noise.
STEPS = [(0.0085, 3.4), (0.01, 0.6), (1e-5, 0.3), (1 - 1e-9, 1.0), (0.2, 200.0)]


def one_step(q: float, sigma: float, epsilon: mpmath.mpf, adding: bool) -> mpmath.mpf:
    """Return δ(ε) of one step for any real ε in closed form, from both sides of the output with that loss."""
    q, sigma, epsilon = mpf(q), mpf(sigma), mpf(epsilon)
    edge = ((mpmath.e ** (-epsilon if adding else epsilon)) - (1 - q)) / q  # of e^{(x − ½)/σ²}
    if adding:
        if edge <= 0:
            return mpf(0)
        x = sigma**2 * mpmath.log(edge) + mpf(1) / 2
        without, holder = mpmath.ncdf(x / sigma), mpmath.ncdf((x - 1) / sigma)
        return without - mpmath.e**epsilon * ((1 - q) * without + q * holder)
    if edge <= 0:
        return 1 - mpmath.e**epsilon
    x = sigma**2 * mpmath.log(edge) + mpf(1) / 2
    without, holder = mpmath.ncdf(-x / sigma), mpmath.ncdf(-(x - 1) / sigma)
    return (1 - q) * without + q * holder - mpmath.e**epsilon * without


def some_epsilons(losses: Losses, generator: np.random.Generator) -> np.ndarray:
    """Return points of the grid, neighbouring doubles, points in between, 0, and points far beyond the grid."""
    last = max((losses.first + len(losses.masses)) * losses.spacing, losses.spacing)
    places = np.unique(np.linspace(0, last / losses.spacing, 12).astype(int)) * losses.spacing
    near = np.concatenate([np.nextafter(places, 0), places, np.nextafter(places, np.inf)])
    return np.sort(np.concatenate([near, generator.uniform(0, last, 12), [0.0, 1e-300, 1e-12, 2 * last]]))


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(("q", "sigma"), STEPS)
def test_one_step_is_never_below_the_closed_form_and_hardly_above(q: float, sigma: float, adding: bool) -> None:
    losses = sampled_losses(q, sigma, 1, negligible=1e-8, parts=32)[adding]
    epsilons = some_epsilons(losses, np.random.default_rng(1))
    truth = [one_step(q, sigma, epsilon, adding) for epsilon in epsilons.tolist()]
    bound = losses.delta(epsilons)
    for own, true in zip(bound.tolist(), truth, strict=True):
        assert mpf(own) >= true
    assert bound[0] <= float(truth[0]) * 1.01 + 1e-10


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(("q", "sigma"), [(0.3, 0.5), pytest.param(0.01, 0.6, marks=pytest.mark.exhaustive)])
def test_two_steps_are_never_below_the_integral(q: float, sigma: float, adding: bool) -> None:
    """δ of two steps is the mean, over the first output, of the second step's δ at the remaining ε."""
    losses = sampled_losses(q, sigma, 2, negligible=1e-8, parts=64)[adding]
    with mpmath.workdps(50):
        exact_q, exact_sigma = mpf(q), mpf(sigma)

        def loss(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.log(1 - exact_q + exact_q * mpmath.e ** ((x - mpf(1) / 2) / exact_sigma**2))

        def weighted(x: mpmath.mpf, epsilon: float) -> mpmath.mpf:
            density = mpmath.npdf(x, 0, exact_sigma)
            if not adding:
                return density * mpmath.e ** loss(x) * one_step(q, sigma, epsilon - loss(x), adding)
            return density * one_step(q, sigma, epsilon + loss(x), adding)

        for epsilon in (0.0, 0.1, 1.0):
            kink = (mpmath.e ** (epsilon - mpmath.log(1 - exact_q)) - (1 - exact_q)) / exact_q
            other = exact_sigma**2 * mpmath.log(kink) + mpf(1) / 2  # where the second step's δ has a corner
            pieces = sorted({*(mpf(each) * exact_sigma for each in range(-14, 15, 4)), 1 + 14 * exact_sigma, other})
            if adding:
                edge = (mpmath.e ** (-epsilon - mpmath.log(1 - exact_q)) - (1 - exact_q)) / exact_q
                if edge > 0:
                    pieces = sorted({*pieces, exact_sigma**2 * mpmath.log(edge) + mpf(1) / 2})
            truth = mpmath.quad(lambda x, own=epsilon: weighted(x, own), pieces, maxdegree=7)
            bound = float(losses.delta(np.array([epsilon]))[0])
            assert bound >= truth
            assert bound <= truth * 1.01 + 2e-9


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (10.0, 100), (50.0, 10_007)])
def test_nearly_everybody_in_every_step_is_the_gaussian_mechanism(sigma: float, steps: int) -> None:
    """T steps at q = 1 − 2^-50 are within T·2^-50 of one Gaussian release, in total variation."""
    q = 1 - 2.0**-50
    mu = mpmath.sqrt(steps) / mpf(sigma)
    for losses in sampled_losses(q, sigma, steps, negligible=1e-9, parts=64):
        for epsilon in (0.0, 0.3, 1.0, 3.0):
            gaussian = mpmath.ncdf(-epsilon / mu + mu / 2) - mpmath.e**epsilon * mpmath.ncdf(-epsilon / mu - mu / 2)
            truth = gaussian - steps * mpf(2) ** -50 * (1 + mpmath.e**epsilon)
            bound = float(losses.delta(np.array([epsilon]))[0])
            assert bound >= truth
            assert bound <= float(gaussian) * 1.05 + 1e-9


def transformed(values: list) -> list:
    """Compute the discrete Fourier transform, radix 2."""
    size = len(values)
    if size == 1:
        return values
    even, odd = transformed(values[::2]), transformed(values[1::2])
    turned = [mpmath.expjpi(mpf(-2 * place) / size) * each for place, each in enumerate(odd)]
    return [a + b for a, b in zip(even, turned, strict=True)] + [a - b for a, b in zip(even, turned, strict=True)]


def composed(masses: np.ndarray, steps: int, size: int) -> list:
    """Return masses of a sum of this many losses, with 60 digits; positions beyond ``size`` start again at 0."""
    padded = [mpf(each) for each in masses.tolist()] + [mpf(0)] * (size - len(masses))
    powers = [mpmath.conj(each**steps) for each in transformed(padded)]
    return [mpmath.re(each) / size for each in transformed(powers)]


@pytest.mark.parametrize(
    ("steps", "size"), [(3, 256), (13, 1024), pytest.param(127, 4096, marks=pytest.mark.exhaustive)]
)
def test_a_composition_is_never_below_one_of_60_digits(steps: int, size: int) -> None:
    """Masses have all sizes, including tails of 1e-300; those outside the window are below 1e-40."""
    generator = np.random.default_rng(steps)
    masses = np.exp(-np.abs(np.arange(-20, 41)) * generator.uniform(0.5, 0.7)) * generator.uniform(0.5, 1.5, 61)
    masses[50:] = 1e-300
    masses /= masses.sum()
    base = Losses(2.0**-7, -20, masses, 1e-12, 1e-16)
    total, taken = base, 1
    for bit in bin(steps)[3:]:
        total, taken = total.plus(total, 1e-13), 2 * taken
        if bit == "1":
            total, taken = total.plus(base, 1e-13), taken + 1
    exact = composed(masses, steps, size)
    mean = int(steps * (np.arange(61) @ masses))
    begin = max(mean - size // 2, 0)  # the positions are those of a window around the mean
    unrolled = {begin + (place - begin) % size: each for place, each in enumerate(exact)}
    finite = 1 - (1 - mpf(base.beyond)) ** steps
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        truth = sum(
            (1 - mpmath.e ** (epsilon - loss)) * each
            for place, each in unrolled.items()
            if (loss := mpf(steps * base.first + place) * base.spacing + steps * mpf(base.shift)) > epsilon
        )
        bound = mpf(float(total.delta(np.array([epsilon]))[0]))
        assert bound >= truth + finite * (1 - truth) - mpf(10) ** -40
        assert bound <= (truth + finite) * (1 + mpf(10) ** -8) + mpf(10) ** -9


def test_a_coarser_grid_keeps_both_masses_and_is_above() -> None:
    masses = np.random.default_rng(3).uniform(0, 1, 31) / 31
    for first in (-7, -8, 0, 3):
        fine = Losses(0.05, first, masses, 0.0, 0.0)
        coarse = fine.coarser()
        epsilons = np.linspace(0, 3, 200)
        assert (coarse.delta(epsilons) >= fine.delta(epsilons) * (1 - 1e-13)).all()
        for weight in (0, -1):
            spaced = [
                (each.masses, each.spacing * (each.first + np.arange(len(each.masses)))) for each in (fine, coarse)
            ]
            both = [float(masses @ np.exp(weight * losses)) for masses, losses in spaced]
            assert both[1] == pytest.approx(both[0], rel=1e-13)


def test_cut_losses_count_as_infinite_and_small_ones_as_the_next() -> None:
    losses = Losses(0.1, 0, np.array([1e-9, 0.5, 0.5, 1e-9, 1e-12]), 0.0, 0.0)
    zero = Losses(0.1, 0, np.ones(1), 0.0, 0.0)
    cut = losses.plus(zero, 1e-8)
    assert cut.first == 1
    assert len(cut.masses) == 2
    assert cut.beyond >= 1e-9 + 1e-12
    assert cut.masses[0] >= 0.5 + 1e-9
    assert (cut.delta(np.linspace(0, 1, 50)) >= losses.delta(np.linspace(0, 1, 50))).all()


def test_epsilon_is_one_at_which_delta_suffices_and_nearly_the_smallest() -> None:
    for losses in sampled_losses(0.05, 1.0, 20, negligible=1e-8, parts=64):
        for delta in (1e-8, 1e-6, 1e-3, 0.1):
            epsilon = losses.epsilon(delta)
            assert losses.delta(np.array([epsilon]))[0] <= delta
            if epsilon > 0:
                assert losses.delta(np.array([epsilon * (1 - 1e-6)]))[0] > delta
        assert losses.epsilon(losses.beyond / 2) == math.inf
        assert replace(losses, beyond=0.0).epsilon(0.5) == 0


def test_the_functions_that_are_called_err_less_than_the_proof_assumes() -> None:
    """Errors are at most a quarter of those allowed, for tails down to 1e-300 and arguments around a power of two."""
    generator = np.random.default_rng(5)
    points = np.concatenate([generator.uniform(-37, 8, 300), 2.0 ** np.arange(-30, 4), -(2.0 ** np.arange(-30, 5))])
    points = np.concatenate([points, np.nextafter(points, 0)])
    for z, found in zip(points.tolist(), ndtr(points).tolist(), strict=True):
        assert abs(mpf(found) / mpmath.ncdf(mpf(z)) - 1) <= mpf(16 + 4 * z * z) * mpf(2) ** -54
    arguments = np.concatenate([generator.uniform(-40, 40, 200), generator.uniform(-1e-3, 1e-3, 100)])
    for function, exact in ((np.exp, mpmath.exp), (np.expm1, mpmath.expm1)):
        for x, found in zip(arguments.tolist(), function(arguments).tolist(), strict=True):
            assert abs(mpf(found) / exact(mpf(x)) - 1) <= mpf(2) ** -51
    values = np.concatenate([np.exp(generator.uniform(-40, 40, 200)), 1 + generator.uniform(-1e-6, 1e-6, 100)])
    for x, found in zip(values.tolist(), np.log(values).tolist(), strict=True):
        assert abs(mpf(found) - mpmath.log(mpf(x))) <= mpf(2) ** -51 * abs(mpmath.log(mpf(x)))


def test_masses_of_cells_are_within_their_bounds() -> None:
    """This includes cells as narrow as neighbouring doubles, far tails and empty cells."""
    edges = [-np.inf, -39.0, -8.0, -1e-8, 0.0, 1e-300, 1e-8, 0.5, np.nextafter(0.5, 1), 0.7, 5.0, 5.0, 5.0 + 1e-9, 12.0]
    least, most = _normal_masses(np.array(edges))
    inner = [mpf("-inf"), *map(mpf, edges), mpf("inf")]
    for low, high, under, over in zip(inner[:-1], inner[1:], least.tolist(), most.tolist(), strict=True):
        exact = mpmath.ncdf(-low) - mpmath.ncdf(-high) if low > 0 else mpmath.ncdf(high) - mpmath.ncdf(low)
        assert mpf(under) <= exact <= mpf(over)
    assert ndtri(1e-30) == pytest.approx(float(mpmath.findroot(lambda z: mpmath.ncdf(z) - mpf("1e-30"), -11.46)))
