"""The arithmetic of accounts as arrays, against sums holder by holder."""

from collections import Counter

import numpy as np
import pytest

from accounting.book import Balances


def balances_of(amounts: dict[int, float]) -> Balances:
    holders = sorted(amounts)
    return Balances(np.array(holders, dtype=np.int64), np.array([amounts[holder] for holder in holders]))


def test_charges_add_up_by_holder() -> None:
    rng = np.random.default_rng(5)
    accounts, expected = Balances.empty(), Counter[int]()
    for _ in range(50):
        chosen = rng.choice(40, size=rng.integers(0, 12), replace=False)
        charges = {int(holder): float(rng.integers(0, 8)) / 8 for holder in chosen}
        before = accounts.spent.copy()
        after = accounts.charged(balances_of(charges))
        np.testing.assert_array_equal(accounts.spent, before)
        accounts = after
        expected.update(charges)
    assert dict(zip(accounts.holders.tolist(), accounts.spent.tolist(), strict=True)) == dict(expected)
    assert (np.diff(accounts.holders) > 0).all()
    positions = np.array([77, 3, 0, -1, 39, 3])
    np.testing.assert_array_equal(accounts.of(positions), [expected[holder] for holder in positions.tolist()])


@pytest.mark.parametrize("holders", [[1, 1], [2, 1]])
def test_a_holder_listed_twice_or_out_of_order_is_refused(holders: list[int]) -> None:
    with pytest.raises(ValueError, match="each once"):
        Balances(np.array(holders), np.array([0.5, 0.5]))


def test_each_holder_has_one_amount() -> None:
    with pytest.raises(ValueError, match="one amount for each holder"):
        Balances(np.array([1, 2]), np.array([0.5]))
