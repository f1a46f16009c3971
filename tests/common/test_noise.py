"""Noise has the right distributions and the right source."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from learning.mechanisms.pate import SimulationNoise, SystemNoise


@pytest.fixture(scope="module")
def stats() -> Any:
    from scipy import stats  # slow to load, so not while tests are collected

    return stats


@pytest.fixture
def repeatable_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the operating system's generator with a repeatable one."""
    generator = np.random.Generator(np.random.PCG64(20))
    monkeypatch.setattr("common.noise.urandom", generator.bytes)


@pytest.mark.statistical
@pytest.mark.usefixtures("repeatable_system")
@pytest.mark.parametrize("noise", [SystemNoise(), SimulationNoise(3)], ids=["system", "simulation"])
@pytest.mark.parametrize(("draw", "name"), [("normal", "norm"), ("laplace", "laplace")])
def test_noise_has_the_distribution_it_is_named_after(noise, draw, name, stats) -> None:
    sample = getattr(noise, draw)(40.0, (500, 400))
    assert sample.shape == (500, 400)
    assert stats.kstest(sample.ravel(), getattr(stats, name)(scale=40.0).cdf).pvalue > 0.001
    # the draws of one row are independent of those of the next
    assert abs(np.corrcoef(sample[:-1].ravel(), sample[1:].ravel())[0, 1]) < 0.01


def test_even_the_most_extreme_random_bits_give_finite_noise_far_in_the_tails(monkeypatch, stats) -> None:
    """Bits that are all zero lead beyond 8 standard deviations, where the first 53 bits end."""
    for byte in (b"\x00", b"\xff"):
        monkeypatch.setattr("common.noise.urandom", lambda count, byte=byte: byte * count)
        for sample in (SystemNoise().normal(1.0, 1), SystemNoise().laplace(1.0, 1)):
            assert np.isfinite(sample).all()
    for sign_bit in (0, 1):
        monkeypatch.setattr("common.noise.urandom", lambda count, bit=sign_bit: np.uint64(bit).tobytes() * (count // 8))
        assert abs(SystemNoise().normal(1.0, 1)[0]) > -stats.norm.ppf(2.0**-55)
        assert abs(SystemNoise().laplace(1.0, 1)[0]) > 55 * math.log(2)


def test_only_simulation_noise_is_repeatable_and_says_so() -> None:
    noise = SystemNoise()
    assert not (noise.normal(1.0, 100) == noise.normal(1.0, 100)).all()
    np.testing.assert_array_equal(SimulationNoise(1).laplace(2.0, (3, 4)), SimulationNoise(1).laplace(2.0, (3, 4)))
    assert SimulationNoise(1).is_simulation and not noise.is_simulation


def test_invalid_scales_are_refused() -> None:
    one, other = SystemNoise(), SimulationNoise(0)
    draws = [(draw, math.inf) for draw in (one.normal, one.laplace, other.normal, other.laplace)]
    for draw, largest in [*draws, (one.rounded_normal, 2.0**35)]:
        for scale in (0.0, -1.0, math.nan, largest):
            with pytest.raises(ValueError, match="scale"):
                draw(scale, 1)


@pytest.mark.statistical
@pytest.mark.usefixtures("repeatable_system")
@pytest.mark.parametrize("noise", [SystemNoise(), SimulationNoise(3)], ids=["system", "simulation"])
@pytest.mark.parametrize("scale", [0.4, 1.0, 7.3, 40.0])
def test_rounded_noise_has_the_probabilities_of_the_rounded_gaussian(noise, scale: float, stats) -> None:
    sample = noise.rounded_normal(scale, (300, 500))
    assert (sample.shape, sample.dtype) == ((300, 500), np.int64)
    edge = int(3 * scale)
    values = np.arange(-edge, edge + 1)
    inner = np.array([(sample == value).sum() for value in values])
    observed = np.append(inner, sample.size - inner.sum())
    expected = stats.norm.cdf((values + 0.5) / scale) - stats.norm.cdf((values - 0.5) / scale)
    expected = sample.size * np.append(expected, 1 - expected.sum())
    assert stats.chisquare(observed, expected).pvalue > 0.001


@pytest.mark.statistical
@pytest.mark.usefixtures("repeatable_system")
@pytest.mark.parametrize("scale", [1e4, 1e9, 2.0**34])
def test_rounded_noise_of_a_large_scale_is_gaussian(scale: float, stats) -> None:
    sample = SystemNoise().rounded_normal(scale, 20_000)
    assert stats.kstest(sample, stats.norm(scale=scale).cdf).pvalue > 0.001


def draw_from(monkeypatch: pytest.MonkeyPatch, scale: float, first: int, more: int | None) -> int:
    """Draw one rounded number from given bits; ``more`` is None if no further bits may be requested."""
    supply = [first.to_bytes(8, "little")] + ([] if more is None else [more.to_bytes(32, "little")])
    monkeypatch.setattr("common.noise.urandom", lambda count: supply.pop(0))
    value = int(SystemNoise().rounded_normal(scale, 1)[0])
    assert not supply
    return value


@pytest.mark.parametrize("scale", [0.7, 1.0, 40.0, 1e4])
@pytest.mark.parametrize("boundary", [0.5, 1.5, 2.5])
def test_more_bits_are_drawn_until_they_decide(monkeypatch, scale: float, boundary: float) -> None:
    """The first 53 bits contain Φ(−boundary/scale), so the next 256 bits are compared with the rest of it."""
    with mpmath.workprec(600):
        position = mpmath.ncdf(-mpmath.mpf(boundary) / mpmath.mpf(scale)) * 2**54
        cell = int(mpmath.floor(position))
        rest = int(mpmath.floor((position - cell) * 2**256))
    outside, inside = int(boundary + 0.5), int(boundary - 0.5)
    for sign_bit, sign in ((0, 1), (1, -1)):
        first = (cell << 11) | sign_bit
        assert draw_from(monkeypatch, scale, first, rest - 1) == sign * outside
        assert draw_from(monkeypatch, scale, first, rest + 1) == sign * inside
    far = 10**6 if scale < 1000 else 10**10
    assert draw_from(monkeypatch, scale, (cell - far) << 11, None) == outside
    assert draw_from(monkeypatch, scale, (cell + far) << 11, None) == inside


def test_the_tail_beyond_the_first_bits_is_reached(monkeypatch) -> None:
    """2^-310, the smallest tail probability, is beyond 37 standard deviations."""
    with mpmath.workprec(600):
        smallest = draw_from(monkeypatch, 1000.0, 0, 0)
        assert mpmath.ncdf((-0.5 - smallest) / mpmath.mpf(1000)) < mpmath.mpf(2) ** -311
        assert mpmath.ncdf((0.5 - smallest) / mpmath.mpf(1000)) >= mpmath.mpf(2) ** -311
        assert smallest > 20_000


def test_the_error_allowance_exceeds_that_of_the_inverse_distribution_function() -> None:
    from scipy.special import ndtri

    points = np.concatenate([2.0 ** -np.arange(1.0, 55.0), np.random.default_rng(5).random(300) / 2])
    with mpmath.workdps(40):
        for point in points[points < 0.5]:
            found = mpmath.mpf(float(ndtri(point)))
            error = (mpmath.ncdf(found) - mpmath.mpf(float(point))) / mpmath.npdf(found)
            assert abs(error / found) < 1e-15
