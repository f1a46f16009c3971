"""Bounds of δ of sampled runs against arithmetic of 60 digits: never below the truth, and hardly above it.

Truths come from closed forms and integrals that know no grid, and, for the compositions, from the same masses composed
by a Fourier transform of 60 digits.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from accounting.privacy.sampled_charge import Losses, _normal_masses, sampled_losses

mpf = mpmath.mpf


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


#: q, σ: ordinary, weak noise, hardly anybody, nearly everybody, much noise.
STEPS = [(0.0085, 3.4), (0.01, 0.6), (1e-5, 0.3), (1 - 1e-9, 1.0), (0.2, 200.0)]


def one_step(q: float, sigma: float, epsilon: mpmath.mpf, adding: bool) -> mpmath.mpf:
    """δ(ε) of one step for any real ε, in closed form: what lies on one side of the output with that loss."""
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
    """Points of the grid, their neighbours among the doubles, points between, 0, and far beyond the grid."""
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
    """δ of two steps is the mean, over the first output, of the second's δ at what is left of ε."""
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
    """Discrete Fourier transform, radix 2."""
    size = len(values)
    if size == 1:
        return values
    even, odd = transformed(values[::2]), transformed(values[1::2])
    turned = [mpmath.expjpi(mpf(-2 * place) / size) * each for place, each in enumerate(odd)]
    return [a + b for a, b in zip(even, turned, strict=True)] + [a - b for a, b in zip(even, turned, strict=True)]


def composed(masses: np.ndarray, steps: int, size: int) -> list:
    """Masses of a sum of so many losses, of 60 digits; places beyond ``size`` begin anew at 0."""
    padded = [mpf(each) for each in masses.tolist()] + [mpf(0)] * (size - len(masses))
    powers = [mpmath.conj(each**steps) for each in transformed(padded)]
    return [mpmath.re(each) / size for each in transformed(powers)]


@pytest.mark.parametrize(
    ("steps", "size"), [(3, 256), (13, 1024), pytest.param(127, 4096, marks=pytest.mark.exhaustive)]
)
def test_a_composition_is_never_below_one_of_60_digits(steps: int, size: int) -> None:
    """Masses of all sizes, tails of 1e-300 among them; what lies outside the window of places is below 1e-40."""
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
    begin = max(mean - size // 2, 0)  # the places are those of a window around the mean
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
            both = [
                float(each.masses @ np.exp(weight * each.spacing * (each.first + np.arange(len(each.masses)))))
                for each in (fine, coarse)
            ]
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
    """A quarter of what is allowed, for tails down to 1e-300 and arguments on both sides of a power of two."""
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


def test_masses_of_cells_lie_between_what_is_said_of_them() -> None:
    """Cells as narrow as neighbouring doubles, far tails, empty cells."""
    edges = [-np.inf, -39.0, -8.0, -1e-8, 0.0, 1e-300, 1e-8, 0.5, np.nextafter(0.5, 1), 0.7, 5.0, 5.0, 5.0 + 1e-9, 12.0]
    least, most = _normal_masses(np.array(edges))
    inner = [mpf("-inf"), *map(mpf, edges), mpf("inf")]
    for low, high, under, over in zip(inner[:-1], inner[1:], least.tolist(), most.tolist(), strict=True):
        exact = mpmath.ncdf(-low) - mpmath.ncdf(-high) if low > 0 else mpmath.ncdf(high) - mpmath.ncdf(low)
        assert mpf(under) <= exact <= mpf(over)
    assert ndtri(1e-30) == pytest.approx(float(mpmath.findroot(lambda z: mpmath.ncdf(z) - mpf("1e-30"), -11.46)))
