"""Caps of accounts are never more than ε and δ allow, and hardly less."""

import numpy as np
import pytest
from mpmath import mp

from accounting import caps
from accounting.caps import DRAWS, SLACKS, caps_of, epsilon_of, slack_of
from accounting.privacy import gdp_mu, guess_odds, record_guess_odds
from tests.accounting.privacy.test_gaussian_dp import EPSILONS, PUBLISHED, exact_delta


@pytest.mark.parametrize("delta", PUBLISHED)
def test_caps_are_those_of_the_guarantee_less_a_thousandth_for_sampled_runs(delta: float) -> None:
    mu = np.sqrt(caps_of(EPSILONS, delta))
    assert (mu < PUBLISHED[delta]).all()
    np.testing.assert_allclose(mu, gdp_mu(EPSILONS, 0.99 * delta), rtol=1e-12)
    np.testing.assert_allclose(mu, PUBLISHED[delta], rtol=1.1e-3)


@pytest.mark.parametrize("delta", [1e-9, 2e-9, 3e-9, 1e-5, 0.01])
def test_a_cap_keeps_the_promise_after_what_the_sampler_and_sampled_runs_take(delta: float) -> None:
    """In exact arithmetic, with a full account and all sampled runs that are possible."""
    for epsilon in (0.01, 0.1, 1.0, 3.0, 8.0):
        with mp.workdps(60):
            taken = (1 + mp.exp(epsilon)) * DRAWS * mp.mpf(2) ** -236 + SLACKS * mp.mpf(slack_of(delta))
            assert exact_delta(mp.sqrt(float(caps_of(epsilon, delta))), epsilon) + taken <= mp.mpf(delta)


def test_the_slack_of_a_run_is_a_thousandth_of_delta() -> None:
    assert (slack_of(1e-5), SLACKS) == (pytest.approx(1e-8), 10)
    assert [slack_of(delta) for delta in (1e-9, 2e-9)] == [0, 0], "1e-9 has to remain for the promise"
    assert slack_of(3e-9) > 0


def test_no_study_can_draw_more_numbers_than_are_set_aside_and_they_cost_no_digit_of_a_cap() -> None:
    """A thousand cores at 10⁷ numbers a second each draw fewer in a year."""
    assert DRAWS > 1000 * 365 * 86400 * 10**7
    with mp.workdps(60):
        assert (1 + mp.exp(24)) * DRAWS * mp.mpf(2) ** -236 < 1e-36


def test_a_full_account_is_worth_exactly_the_promise() -> None:
    for epsilon in (0.05, 1.0, 8.0):
        worth = epsilon_of(float(caps_of(epsilon, 1e-5)), 1e-5)
        assert epsilon * (1 - 1e-6) <= worth <= epsilon
    assert epsilon_of(0.0, 1e-5) == 0


def test_a_worse_sampler_would_take_its_distance_out_of_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler's actual distance, 2⁻²³⁶ in sums across sites, changes no digit of a cap."""
    monkeypatch.setattr(caps, "JOINT_NORMAL_DISTANCE", 1e-24)
    left = 0.99e-5 - (1 + np.e) * DRAWS * 1e-24
    assert float(caps_of(1.0, 1e-5)) == pytest.approx(float(gdp_mu(1.0, left)) ** 2, rel=1e-9)
    assert float(caps_of(1.0, 1e-5)) < 0.97 * float(gdp_mu(1.0, 1e-5)) ** 2


def test_a_cap_does_not_depend_on_other_promises() -> None:
    """Caps are equal to the last bit. Otherwise a holder with a unique promise would affect what others may spend."""
    known = [0.1, 0.25, 0.5, 0.8, 0.9, 1.0, 1.2, 1.5, 1.8, 1.9, 2.0, 2.5, 2.6, 2.9, 3.0, 4.0, 5.0, 8.0]
    alone = {epsilon: float(caps_of(epsilon, 1e-6)) for epsilon in known}
    rng = np.random.default_rng(0)
    for _ in range(30):
        some = rng.choice(known, rng.integers(2, 9), replace=False)
        assert caps_of(some, 1e-6).tolist() == [alone[epsilon] for epsilon in some.tolist()]
    squares = caps_of([[3.0, 1.0], [1.0, 2.0]], 1e-5)
    assert squares.shape == (2, 2)
    assert squares[0, 1] == squares[1, 0] < squares[1, 1] < squares[0, 0]
    assert caps_of(np.empty(0), 1e-5).shape == (0,)
    assert caps_of(1.0, 1e-5).shape == ()


def test_shown_odds_hold_with_the_coins_of_all_sampled_runs() -> None:
    """A coin reveals a holder with probability 10·δ/1000 (two coins for two records), but caps use less than δ."""
    for delta in np.geomspace(2.1e-9, 0.01, 6).tolist():
        coins = SLACKS * slack_of(delta)
        epsilons = np.geomspace(0.001, 10, 20)
        shares, kept = gdp_mu(epsilons, delta), np.sqrt(caps_of(epsilons, delta))
        assert (guess_odds(kept) * (1 - coins) + coins <= guess_odds(shares)).all()
        assert (record_guess_odds(kept) * (1 - coins) ** 2 + 1 - (1 - coins) ** 2 <= record_guess_odds(shares)).all()
