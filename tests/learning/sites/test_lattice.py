"""Numbers that sites send: exact, of the right noise, and as good as one rounded Gaussian."""

from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp

from accounting.privacy import available_delta
from common.noise import GRID, JOINT_NORMAL_DISTANCE, LARGEST_ROUNDED_SCALE, SimulationNoise, SystemNoise
from learning.sites.documents import Refused
from learning.sites.lattice import IncludedNoise, Lattice


@pytest.mark.parametrize(
    ("spread", "grain"), [(0.1, 1.0), (2.0**17, 1.0), (2.0**30, 1.0), (0.5, GRID), (16384.0, GRID)]
)
def test_the_unit_is_as_fine_as_noise_can_be_drawn(spread: float, grain: float) -> None:
    lattice = Lattice.finest(spread, grain)
    units = spread / grain * 2**lattice.shift
    assert LARGEST_ROUNDED_SCALE / 2 <= units <= LARGEST_ROUNDED_SCALE and lattice.shift >= 0


@pytest.mark.parametrize("grain", [1.0, GRID])
@pytest.mark.parametrize("sites", [1, 3, 20])
def test_sums_are_decoded_bit_for_bit(grain: float, sites: int) -> None:
    lattice, rng = Lattice.finest(40.0, grain), np.random.default_rng(1)
    most = int(lattice.most(sites) / grain)
    grains = rng.integers(-most, most, (sites, 200), endpoint=True)
    grains[:, :2] = most, -most
    sums = grains if grain == 1 else grains * grain
    total = np.sum([lattice.encode(each, sites) for each in sums], axis=0, dtype=np.uint64)
    decoded = lattice.decode(total)
    assert decoded.dtype == sums.dtype
    assert decoded.tolist() == sums.sum(axis=0).tolist()


def test_sums_that_could_overflow_or_were_rounded_are_refused() -> None:
    lattice = Lattice.finest(40.0, GRID)
    with pytest.raises(Refused, match="more noise or fewer people"):
        lattice.encode(np.array([2 * lattice.most(5)]), 5)
    for wrong in (GRID / 2, np.nan):
        with pytest.raises(Refused, match="no whole multiples"):
            lattice.encode(np.array([wrong]), 5)
    with pytest.raises(Refused, match="less noise"):
        Lattice.finest(2.0**35, 1.0)
    assert Lattice.finest(0.5, GRID).most(20) > 10**6, "people, and little noise"


def test_a_total_is_rounded_after_the_noise() -> None:
    lattice = Lattice.finest(2.0**31, 1.0)
    assert lattice.shift == 2
    total = np.array([-6, -5, -2, -1, 1, 2, 5, 6, 7], np.int64).view(np.uint64)
    assert lattice.decode(total).tolist() == [-1, -1, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("noise", [SystemNoise(), SimulationNoise(1)], ids=["system", "simulation"])
@pytest.mark.statistical
def test_a_site_has_noise_of_its_own_spread(noise: SystemNoise | SimulationNoise) -> None:
    lattice = Lattice.finest(3.0, GRID)
    drawn = lattice.noise(noise, 20_000).view(np.int64) * GRID / 2.0**lattice.shift
    assert drawn.std() == pytest.approx(3.0, rel=5 / np.sqrt(2 * 20_000))
    assert abs(drawn.mean()) < 5 * 3.0 / np.sqrt(20_000)


def test_a_total_with_noise_gets_no_other_and_only_once() -> None:
    included = IncludedNoise(5.0)
    with pytest.raises(Refused, match=r"needs noise of 5\.1"):
        included.normal(5.1, 2)
    assert not included.rounded_normal(5.0, (2, 3)).any()
    with pytest.raises(Refused, match="one noisy sum"):
        included.normal(5.0, 2)
    with pytest.raises(Refused, match="aggregator"):
        IncludedNoise(5.0).laplace(5.0, 2)


# --- One rounded normal or several -----------------------------------------------------------------------------------


def rounded(scale: float, reach: int) -> list[mp.mpf]:
    """Probabilities of the integers from -reach to reach of a rounded normal."""
    edges = [mp.ncdf((mp.mpf(place) - mp.mpf(1) / 2) / scale) for place in range(-reach, reach + 2)]
    return [above - below for below, above in pairwise(edges)]


def distance(scale: float, count: int) -> mp.mpf:
    """Total variation between the sum of so many rounded normals and one of their variance together."""
    one = rounded(mp.mpf(scale), int(9 * scale) + 2)
    several = one
    for _ in range(count - 1):
        wide = [mp.mpf(0)] * (len(several) + len(one) - 1)
        for i, a in enumerate(several):
            for j, b in enumerate(one):
                wide[i + j] += a * b
        several = wide
    single = rounded(mp.mpf(scale) * mp.sqrt(count), (len(several) - 1) // 2)
    return mp.fsum(abs(a - b) for a, b in zip(several, single, strict=True)) / 2


@pytest.mark.parametrize(("scale", "count"), [(1.0, 2), (1.0, 4), (2.5, 3)])
def test_several_rounded_normals_are_as_near_to_one_as_docs_say(scale: float, count: int) -> None:
    """(k - 1)·φ(1)/(12·Σs²), in units of the lattice: an upper bound, and no smaller one has this form."""
    with mp.workdps(40):
        bound = (count - 1) * mp.npdf(1) / (12 * count * mp.mpf(scale) ** 2)
        assert mp.mpf(1) / bound * (count - 1) / (count * mp.mpf(scale) ** 2) > 49
        found = distance(scale, count)
        assert 0.8 * bound < found < bound
        if scale >= 2.5:
            assert found > 0.95 * bound


def test_the_reserve_of_delta_covers_any_number_of_sites() -> None:
    with mp.workdps(40):
        least = mp.mpf(LARGEST_ROUNDED_SCALE) / 2
        most = mp.npdf(1) / (12 * least**2) + 10**6 * mp.mpf(2) ** -256  # (k - 1)/k < 1; a million sites' samplers
        assert most < JOINT_NORMAL_DISTANCE < 2 * most
    assert available_delta(1e-5, 1.0, draws=10**9, distance=JOINT_NORMAL_DISTANCE) > 1e-5 * (1 - 1e-6)
