"""Caps of accounts: never more than ε and δ allow, little less."""

import numpy as np
import pytest

from accounting import caps
from accounting.caps import DRAWS, caps_of
from accounting.privacy import gdp_delta, gdp_mu
from common.noise import ROUNDED_NORMAL_DISTANCE

TABLE = {  # μ of the guarantee, section 2
    1e-5: {0.1: 0.03252, 0.25: 0.07527, 0.5: 0.14221, 1: 0.26805, 2: 0.50155, 3: 0.71912, 5: 1.12124, 8: 1.66603},
    1e-6: {0.1: 0.02754, 0.25: 0.06489, 0.5: 0.12411, 1: 0.23670, 2: 0.44833, 3: 0.64773, 5: 1.02036, 8: 1.53155},
}


@pytest.mark.parametrize("delta", TABLE)
def test_caps_are_those_of_the_guarantee(delta: float) -> None:
    epsilons = list(TABLE[delta])
    np.testing.assert_allclose(np.sqrt(caps_of(epsilons, delta)), list(TABLE[delta].values()), atol=6e-6)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_a_cap_keeps_the_promise_after_what_the_sampler_takes(delta: float) -> None:
    for epsilon in (0.01, 0.1, 1.0, 3.0, 8.0):
        cap = float(caps_of(epsilon, delta))
        taken = (1 + np.exp(epsilon)) * DRAWS * ROUNDED_NORMAL_DISTANCE
        assert gdp_delta(np.sqrt(cap), epsilon) + taken <= delta
        assert cap == pytest.approx(float(gdp_mu(epsilon, delta)) ** 2, rel=1e-6), "and next to nothing is lost"


def test_a_worse_sampler_would_take_its_distance_out_of_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler's own distance, 2⁻²⁵⁶, changes no digit of a cap."""
    monkeypatch.setattr(caps, "ROUNDED_NORMAL_DISTANCE", 1e-15)
    left = 1e-5 - (1 + np.e) * DRAWS * 1e-15
    assert float(caps_of(1.0, 1e-5)) == pytest.approx(float(gdp_mu(1.0, left)) ** 2, rel=1e-9)
    assert float(caps_of(1.0, 1e-5)) < 0.97 * float(gdp_mu(1.0, 1e-5)) ** 2


def test_a_cap_does_not_depend_on_which_others_are_asked_for() -> None:
    """To the last bit: a single holder with a promise of their own would show in what others may spend."""
    known = [0.1, 0.25, 0.5, 0.8, 0.9, 1.0, 1.2, 1.5, 1.8, 1.9, 2.0, 2.5, 2.6, 2.9, 3.0, 4.0, 5.0, 8.0]
    alone = {epsilon: float(caps_of(epsilon, 1e-6)) for epsilon in known}
    rng = np.random.default_rng(0)
    for _ in range(60):
        some = rng.choice(known, rng.integers(2, 9), replace=False)
        assert caps_of(some, 1e-6).tolist() == [alone[epsilon] for epsilon in some.tolist()]


def test_caps_have_the_shape_of_the_promises() -> None:
    squares = caps_of([[3.0, 1.0], [1.0, 2.0]], 1e-5)
    assert squares.shape == (2, 2)
    assert squares[0, 1] == squares[1, 0] < squares[1, 1] < squares[0, 0]
    assert caps_of(np.empty(0), 1e-5).shape == (0,)
    assert caps_of(1.0, 1e-5).shape == ()
