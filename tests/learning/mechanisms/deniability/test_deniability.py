"""Rows generated with plausible deniability, compared with the probabilities in their definition."""

import math
from itertools import product

import numpy as np
import pytest

from learning.mechanisms.deniability import DeniabilityTest, RowNetwork, fit_network, synthesise
from learning.mechanisms.deniability.network import (
    entropy,
    entropy_sensitivity,
    noisy_correlations,
    parents_choose,
    parents_first,
)

SIZES = [3, 2, 4, 2]
WHOLE = [np.arange(size) for size in SIZES]


def records(number: int, seed: int = 0) -> np.ndarray:
    """Return records whose last column follows the first, and the third the second."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, 3, number), rng.integers(0, 2, number)
    third = (2 * second + (rng.random(number) < 0.2)) % 4
    last = np.where(rng.random(number) < 0.9, first > 0, first == 0).astype(int)
    return np.stack([first, second, third, last], axis=1)


def network(seed: int = 1) -> RowNetwork:
    found, generous = records(4_000), 1e6
    rng = np.random.default_rng(seed)
    return fit_network(found, found, SIZES, WHOLE, epsilon_entropy=generous, epsilon_count=generous, rng=rng)


def test_the_sensitivity_bounds_every_record_more_or_less() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        codes = rng.integers(0, rng.integers(1, 6), rng.integers(2, 60))
        for value in range(6):
            change = abs(entropy(np.append(codes, value)) - entropy(codes))
            assert change <= entropy_sensitivity(len(codes)) + 1e-12


def test_structure_finds_what_depends_on_what() -> None:
    found = noisy_correlations(records(4_000), SIZES, 1e9, np.random.default_rng(0))
    assert found[1, 2] > 0.5 and found[0, 3] > 0.3
    assert found[0, 1] < 0.01 and np.array_equal(found, found.T)
    edges = {frozenset((column, *those)) for column, those in enumerate(network().parents) if those}
    assert edges >= {frozenset((1, 2)), frozenset((0, 3))}


def test_parents_have_no_circle_and_few_combinations() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        correlations = rng.random((6, 6))
        sizes = rng.integers(2, 9, 6).tolist()
        parents = parents_choose((correlations + correlations.T) / 2, sizes, most_cells=20)
        assert sorted(parents_first(parents)) == list(range(6))
        assert all(math.prod(sizes[each] for each in those) <= 20 for those in parents)


def probability(net: RowNetwork, seed: np.ndarray, row: np.ndarray, omegas: list[int]) -> float:
    """Return the probability that the seed gives the row, by definition."""
    total = 0.0
    for omega in omegas:
        kept, drawn = net.order[: net.columns - omega], net.order[net.columns - omega :]
        if (seed[kept] == row[kept]).all():
            total += float(np.prod([net.probability(row[None], column)[0] for column in drawn])) / len(omegas)
    return total


@pytest.mark.parametrize("omegas", [[2], [1, 3], [4], [0, 2, 4]])
def test_plausible_seeds_are_those_that_the_definition_counts(omegas: list[int]) -> None:
    net, seeds, gamma = network(), records(60, seed=8), 2.0
    rows = synthesise(net, seeds, omegas, 25, gamma, np.random.default_rng(2))
    for row, plausible in zip(rows.codes, rows.plausible, strict=True):
        probabilities = np.array([probability(net, seed, row, omegas) for seed in seeds])
        possible = probabilities > 0
        bucket = np.floor(-np.log(probabilities[possible]) / math.log(gamma) + 1e-9)
        assert plausible in {int((bucket == each).sum()) for each in bucket}
        if len(omegas) == 1:  # everyone with the same copied columns
            kept = net.order[: net.columns - omegas[0]]
            assert plausible == (seeds[:, kept] == row[kept]).all(axis=1).sum()


@pytest.mark.statistical
def test_rows_without_copied_columns_have_the_distribution_of_the_network() -> None:
    net = network()
    rows = synthesise(net, records(10), [4], 40_000, 2.0, np.random.default_rng(4)).codes
    for values in product(*(range(size) for size in SIZES)):
        row = np.array(values)
        expected = probability(net, row, row, [4])
        share = (rows == row).all(axis=1).mean()
        assert abs(share - expected) < 5 * math.sqrt(expected / 40_000) + 1e-4


def test_rows_leave_where_there_are_enough_plausible_seeds() -> None:
    plausible = np.array([3, 9, 10, 11, 40])
    rng = np.random.default_rng(0)
    assert DeniabilityTest(10, 4.0, None).passes(plausible, rng).tolist() == [False, False, True, True, True]
    noisy = np.stack([DeniabilityTest(10, 4.0, 1.0).passes(plausible, rng) for _ in range(4_000)]).mean(axis=0)
    assert noisy[2] == pytest.approx(0.5, abs=0.04) and noisy[3] == pytest.approx(1 - math.exp(-1) / 2, abs=0.04)


@pytest.mark.statistical
def test_guesses_about_a_seed_are_within_theorem_1() -> None:
    """In the distinguishing game, a row with the person's copied columns is more frequent with them than without."""
    net, k, gamma, epsilon0, number = network(), 5, 4.0, 1.0, 60_000
    copied = net.order[:2]
    everybody = records(4_000, seed=8)
    like = (everybody[:, copied] == everybody[0, copied]).all(axis=1)
    others = np.concatenate([everybody[like][1 : k + 1], everybody[~like][:55]])  # k others could be the seed
    rng, shares = np.random.default_rng(6), []
    for seeds in (others, np.concatenate([everybody[:1], others])):
        rows = synthesise(net, seeds, [2], number, gamma, rng)
        leaves = DeniabilityTest(k, gamma, epsilon0).passes(rows.plausible, rng)
        shares.append(float((leaves & (rows.codes[:, copied] == everybody[0, copied]).all(axis=1)).mean()))
    without, within = shares
    # The seed is one of k among 60, and the row passes if the threshold's noise is at most 0. With the person, it is
    # one of k + 1 among 61, and the noise may be at most 1.
    for share, exact in ((without, k / 60 / 2), (within, (k + 1) / 61 * (1 - math.exp(-1) / 2))):
        assert share == pytest.approx(exact, abs=5 * math.sqrt(exact / number))
    for t in range(1, k):
        epsilon, delta = epsilon0 + math.log1p(gamma / t), math.exp(-epsilon0 * (k - t))
        assert within <= math.exp(epsilon) * without + delta and without <= math.exp(epsilon) * within + delta
    assert within > 1.8 * without, "guesses do become better"
