"""Noise: the right distributions, from the right source."""

import os

import numpy as np
import pytest
from scipy import stats

from training.pate import SimulationNoise, SystemNoise


@pytest.fixture
def repeatable_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's generator, replaced by one that repeats itself, so that the tests do."""
    generator = np.random.Generator(np.random.PCG64(20))
    monkeypatch.setattr(os, "urandom", generator.bytes)


@pytest.mark.usefixtures("repeatable_system")
@pytest.mark.parametrize("noise", [SystemNoise(), SimulationNoise(3)], ids=["system", "simulation"])
@pytest.mark.parametrize(
    ("draw", "distribution"), [("normal", stats.norm(scale=40.0)), ("laplace", stats.laplace(scale=40.0))]
)
def test_noise_has_the_distribution_it_is_named_after(noise, draw, distribution) -> None:
    sample = getattr(noise, draw)(40.0, (500, 400))
    assert sample.shape == (500, 400)
    assert stats.kstest(sample.ravel(), distribution.cdf).pvalue > 0.001
    # the draws of one row tell nothing about those of the next
    assert abs(np.corrcoef(sample[:-1].ravel(), sample[1:].ravel())[0, 1]) < 0.01


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_even_the_most_extreme_random_bits_give_finite_noise(monkeypatch, byte: bytes) -> None:
    monkeypatch.setattr(os, "urandom", lambda count: byte * count)
    for sample in (SystemNoise().normal(1.0, 1), SystemNoise().laplace(1.0, 1)):
        assert np.isfinite(sample).all()


def test_far_tails_are_reached_on_both_sides(monkeypatch) -> None:
    """2^-54, the smallest tail probability, lies beyond 8 standard deviations."""
    for sign_bit in (0, 1):
        monkeypatch.setattr(os, "urandom", lambda count, bit=sign_bit: np.uint64(bit).tobytes() * (count // 8))
        assert abs(SystemNoise().normal(1.0, 1)[0]) == pytest.approx(-stats.norm.ppf(2.0**-55))


def test_system_noise_never_repeats_itself_and_says_that_it_is_real() -> None:
    noise = SystemNoise()
    assert not (noise.normal(1.0, 100) == noise.normal(1.0, 100)).any()
    assert not noise.is_simulation


def test_simulation_noise_repeats_itself_and_says_so() -> None:
    np.testing.assert_array_equal(SimulationNoise(1).laplace(2.0, (3, 4)), SimulationNoise(1).laplace(2.0, (3, 4)))
    assert SimulationNoise(1).is_simulation


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan])
@pytest.mark.parametrize("noise", [SystemNoise(), SimulationNoise(0)])
def test_a_scale_that_is_no_scale_is_refused(noise, scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        noise.normal(scale, 1)
    with pytest.raises(ValueError, match="scale"):
        noise.laplace(scale, 1)
