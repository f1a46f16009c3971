"""The budget filter of rehearsals, compared with a loop over queries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.privacy import affordable_prefix
from accounting.privacy.papers import curves
from accounting.privacy.papers.curves import conversion_penalty

ORDERS = np.array([1.5, 3.0, 8.0, 24.0, 64.0, 512.0])
DELTA = 1e-5


def random_vote(seed: int, queries: int, groups: int, size: float) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    past, check, label = (
        size * generator.exponential(1, (*shape, groups, 1)) * ORDERS * generator.uniform(0, 1, (*shape, groups, 1))
        for shape in ((), (queries,), (queries,))
    )
    return past, check * generator.integers(0, 2), label, generator.random(queries) < 0.6


def one_by_one(
    past: np.ndarray, check: np.ndarray, label: np.ndarray, answered: np.ndarray, epsilons: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray]:
    """Compute the filter by definition, in a loop."""
    spent, penalty = past.copy(), conversion_penalty(DELTA, ORDERS, "improved")
    for i in range(len(answered)):
        spending = zip(spent, check[i], label[i], epsilons, strict=True)
        over = np.array([min(have + cost + more + penalty) > most * (1 - 1e-9) for have, cost, more, most in spending])
        if over.any():
            return i, spent, over
        spent = spent + check[i] + (label[i] if answered[i] else 0)
    return len(answered), spent, np.zeros(len(epsilons), dtype=bool)


votes = {"seed": st.integers(0, 2**30), "queries": st.integers(0, 40), "groups": st.integers(1, 5)}
votes |= {"size": st.floats(1e-4, 0.05)}
quick = settings(derandomize=True, deadline=None, max_examples=60)


@quick
@given(**votes, budget=st.floats(0.3, 8))
def test_it_matches_the_definition_and_nobody_overspends(seed, queries, groups, size, budget) -> None:
    past, check, label, answered = random_vote(seed, queries, groups, size)
    epsilons = budget * np.random.default_rng(seed).uniform(0.3, 1, groups)
    prefix = affordable_prefix(past, check, label, answered, epsilons, DELTA, ORDERS)
    count, spent, exhausted = one_by_one(past, check, label, answered, epsilons)
    assert prefix.count == count
    np.testing.assert_allclose(prefix.spent, spent, rtol=1e-12)
    np.testing.assert_array_equal(prefix.exhausted, exhausted)
    if prefix.count:
        # For any order in which an auditor adds up the costs, and at any order α.
        paid = check[: prefix.count] + answered[: prefix.count, None, None] * label[: prefix.count]
        again = np.array([past, *paid])[::-1].sum(axis=0)
        assert ((again + conversion_penalty(DELTA, ORDERS, "improved")).min(axis=1) <= epsilons).all()


@quick
@given(**votes, cut=st.integers(0, 40))
def test_cutting_into_batches_changes_no_bit(seed: int, queries: int, groups: int, size: float, cut: int) -> None:
    past, check, label, answered = random_vote(seed, queries, groups, size)
    epsilons = np.full(groups, 3.0)
    whole = affordable_prefix(past, check, label, answered, epsilons, DELTA, ORDERS)
    with pytest.MonkeyPatch.context() as patch:  # as the filter itself divides large batches
        patch.setattr(curves, "_BATCH_VALUES", 60)
        pieces = affordable_prefix(past, check, label, answered, epsilons, DELTA, ORDERS)
    assert (pieces.count, pieces.spent.tolist()) == (whole.count, whole.spent.tolist())
    first = affordable_prefix(past, check[:cut], label[:cut], answered[:cut], epsilons, DELTA, ORDERS)
    if first.count < len(answered[:cut]):
        assert (first.count, first.spent.tolist()) == (whole.count, whole.spent.tolist())
        return
    second = affordable_prefix(first.spent, check[cut:], label[cut:], answered[cut:], epsilons, DELTA, ORDERS)
    assert first.count + second.count == whole.count
    assert second.spent.tolist() == whole.spent.tolist()


def test_a_group_that_pays_nothing_never_stops_the_filter() -> None:
    past = np.array([ORDERS, 0 * ORDERS])
    label = np.zeros((3, 2, ORDERS.size))
    label[:, 1] = 1e-3 * ORDERS
    prefix = affordable_prefix(past, 0 * label, label, [True, True, False], [0.1, 5.0], DELTA, ORDERS)
    assert prefix.count == 3
    np.testing.assert_allclose(prefix.spent[1], 2e-3 * ORDERS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"past": np.zeros((3, 6))}, "past"),
        ({"check": np.zeros((4, 2, 5))}, "check"),
        ({"label": np.full((4, 2, 6), -1.0)}, "negative"),
        ({"past": np.full((2, 6), np.nan)}, "NaN"),
        ({"answered": np.ones((4, 1), dtype=bool)}, "answered"),
        ({"epsilons": [1.0, 0.0]}, "above 0"),
        ({"delta": 0.0}, "delta"),
    ],
)
def test_bad_input_is_refused(wrong: dict, message: str) -> None:
    right = {
        **dict.fromkeys(("check", "label"), np.zeros((4, 2, 6))),
        **{"past": np.zeros((2, 6)), "answered": np.ones(4, dtype=bool), "epsilons": [1.0, 1.0]},
    }
    with pytest.raises(ValueError, match=message):
        affordable_prefix(**({"delta": DELTA, "orders": ORDERS} | right | wrong))
