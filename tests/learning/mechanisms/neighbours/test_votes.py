"""Every holder votes: against sums written out by hand, and bit for bit independent of everybody else."""

import tracemalloc
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from learning.mechanisms.neighbours.votes import kth_distances, neighbour_votes, radii, shard_contributions
from tests.learning.mechanisms.neighbours.accounts import PlainAccounts

CLASSES = 3
PLENTY = 1e9


def world(seed: int = 0, *, queries: int = 40, public: int = 60, records: int = 150, holders: int = 30, d: int = 5):
    rng = np.random.default_rng(seed)
    draw = lambda n: rng.integers(-4, 5, (n, d)).astype(np.int8)  # noqa: E731  (few values: many ties)
    return {
        "queries": draw(queries),
        "public": draw(public),
        "records": draw(records),
        "classes_of": rng.integers(0, CLASSES, records),
        "holder_of": rng.integers(0, holders, records),
    }


def distances(a, b) -> np.ndarray:
    """Squared distances in whole numbers, pair by pair."""
    return ((np.asarray(a, np.int64)[:, None] - np.asarray(b, np.int64)[None]) ** 2).sum(axis=2)


def brute_force(w, *, share, caps, sigma, predicted=None, classes=CLASSES):
    """Votes and charges by the words of the guarantee, holder by holder, in fractions."""
    reach = np.sort(distances(w["queries"], w["public"]), axis=1)[:, int(np.ceil(share * len(w["public"]))) - 1]
    apart = distances(w["queries"], w["records"])
    votes = np.zeros((len(reach), classes))
    charged, spent = np.zeros((len(reach), len(caps))), [Fraction(0)] * len(caps)
    for q in range(len(reach)):
        for holder in range(len(caps)):
            own = (w["holder_of"] == holder) & (apart[q] <= reach[q])
            if not own.any():
                continue
            counts = np.bincount(w["classes_of"][own], minlength=classes)
            x = [Fraction(int(2**16 * int(c) // int(own.sum())), 2**16) for c in counts]
            if predicted is not None:
                x[predicted[q]] -= sum(x)
            cost = sum(value**2 for value in x)
            if spent[holder] + cost / Fraction(sigma) ** 2 <= Fraction(caps[holder]):
                spent[holder] += cost / Fraction(sigma) ** 2
                charged[q, holder] = float(cost)
                votes[q] += [float(value) for value in x]
    return votes, charged


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("cap", [PLENTY, 1.5])
def test_votes_and_charges_are_those_written_out_by_hand(residual, cap) -> None:
    w = world()
    predicted = np.random.default_rng(1).integers(0, CLASSES, 40) if residual else None
    caps = np.full(30, cap)
    accounts = PlainAccounts(caps)
    votes, charged = neighbour_votes(
        **w, radius_share=0.1, n_classes=CLASSES, accounts=accounts, sigma=2.0, predicted=predicted
    )
    expected, costs = brute_force(w, share=0.1, caps=caps, sigma=2, predicted=predicted)
    assert expected.any() and (costs.sum(axis=0).max() > 6) == (cap == PLENTY), "accounts of 1.5 · σ² = 6 are used up"
    np.testing.assert_array_equal(votes, expected)
    np.testing.assert_array_equal(charged.toarray(), costs)
    assert (accounts.spent <= caps).all()


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kernel", ["uniform", "epanechnikov"])
def test_without_one_holder_the_sum_differs_by_their_contribution_alone(residual, kernel) -> None:
    w = world(3, records=400, holders=25, d=8)
    options = {
        "radius_share": 0.05, "n_classes": CLASSES, "sigma": 1.0, "kernel": kernel,
        "predicted": np.full(40, 1) if residual else None,
    }  # fmt: skip
    votes, charged = neighbour_votes(**w, **options, accounts=PlainAccounts([3.0] * 25))
    for gone in range(25):
        rest = w["holder_of"] != gone
        without = w | {name: w[name][rest] for name in ("records", "classes_of", "holder_of")}
        fewer, others = neighbour_votes(**without, **options, accounts=PlainAccounts([3.0] * 25))
        before, after = charged.toarray(), others.toarray()
        np.testing.assert_array_equal(np.delete(before, gone, axis=1), np.delete(after, gone, axis=1))
        np.testing.assert_array_equal(((votes - fewer) ** 2).sum(axis=1), before[:, gone])
        assert before[:, gone].sum() <= 3.0


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kernel", ["uniform", "epanechnikov"])
def test_however_records_are_cut_into_blocks_the_bits_are_the_same(residual, kernel, monkeypatch) -> None:
    """Most records are one holder's, who is in every block; others stand at the borders of blocks."""
    w = world(8, records=300, holders=20)
    w["holder_of"] = np.where(np.arange(300) % 5, 7, w["holder_of"])
    options = {
        "radius_share": 0.3, "n_classes": CLASSES, "sigma": 1.0, "kernel": kernel,
        "predicted": np.full(40, 1) if residual else None,
    }  # fmt: skip
    votes, charged = neighbour_votes(**w, **options, accounts=PlainAccounts([9.0] * 20))
    assert charged.toarray()[:, 7].any() and votes.any()
    for block in (1, 7, 64, 10_000):
        monkeypatch.setattr("learning.mechanisms.neighbours.votes._RECORDS_AT_A_TIME", block)
        again, costs = neighbour_votes(**w, **options, accounts=PlainAccounts([9.0] * 20))
        assert (again.tobytes(), costs.data.tobytes()) == (votes.tobytes(), charged.data.tobytes())
        assert (costs.indices.tolist(), costs.indptr.tolist()) == (charged.indices.tolist(), charged.indptr.tolist())


def test_records_of_one_holder_fill_no_memory_but_a_block(monkeypatch) -> None:
    """All of them near all queries: 7.7 million pairs, of which 65,536 are in memory at a time."""
    monkeypatch.setattr("learning.mechanisms.neighbours.votes._RECORDS_AT_A_TIME", 256)
    records, queries = np.ones((30_000, 2), np.int8), np.zeros((256, 2), np.int8)
    classes, owners = np.arange(30_000) % CLASSES, np.arange(30_000) // 29_000
    tracemalloc.start()
    try:
        votes, _ = shard_contributions(
            queries, np.full(256, 2), records, classes, owners,
            n_classes=CLASSES, accounts=PlainAccounts([PLENTY] * 2), sigma=1.0,
        )  # fmt: skip
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    third = np.floor(2**16 * 9667 / 29_000) / 2**16
    assert votes[0].tolist() == pytest.approx([2 * third] * 3, abs=1e-3)
    assert peak < 20e6


@pytest.mark.parametrize("d", [1, 346, 347, 1040])
def test_extreme_coordinates_are_compared_exactly(d) -> None:
    """All products as large as they can be: a record one step beyond the radius has no vote, one at it has."""
    query = np.full((1, d), 127, np.int8)
    edge, beyond = -query[0].astype(np.int64), -query[0].astype(np.int64)
    edge[0] += 1
    reach = distances(query, edge[None])[0]
    votes, _ = shard_contributions(
        query, reach, np.array([edge, beyond, -edge], np.int8), [0, 1, 2], [0, 1, 2],
        n_classes=3, accounts=PlainAccounts([9.0] * 3), sigma=1.0,
    )  # fmt: skip
    np.testing.assert_array_equal(votes, [[1.0, 0.0, 1.0]])


def test_the_radius_is_the_smallest_that_holds_the_share_also_over_many_blocks() -> None:
    rng = np.random.default_rng(8)
    public, queries = rng.integers(-20, 21, (9001, 3)).astype(np.int8), rng.integers(-20, 21, (40, 3)).astype(np.int8)
    apart = distances(queries, public)
    for share in (1e-6, 0.01, 0.5, 1.0):
        reach = radii(queries, public, share)
        needed = np.ceil(share * 9001)
        assert ((apart <= reach[:, None]).sum(axis=1) >= needed).all()
        assert ((apart < reach[:, None]).sum(axis=1) < needed).all()
    np.testing.assert_array_equal(radii(queries, public, [0.01, 0.5])[:, 1], radii(queries, public, 0.5))
    np.testing.assert_array_equal(kth_distances(queries, public, [3])[:, 0], np.sort(apart, axis=1)[:, 2])


@pytest.mark.parametrize("kernel", ["uniform", "epanechnikov"])
def test_rounding_never_makes_a_vote_count_more_than_one(kernel: str) -> None:
    """All divisions of up to 7 records over three classes, at distances whose weights are no multiples of the unit."""
    for counts in product(range(4), repeat=3):
        if not 0 < (total := sum(counts)) < 8:
            continue
        records, classes = np.arange(total)[:, None].astype(np.int8), np.repeat(np.arange(3), counts)
        for guess in (None, [0]):
            votes, charged = shard_contributions(
                [[0]], [51], records, classes, np.zeros(total, int), n_classes=3, predicted=guess,
                accounts=PlainAccounts([PLENTY]), sigma=1.0, kernel=kernel,
            )  # fmt: skip
            numbers = [Fraction(number) for number in votes[0].tolist()]
            assert sum(number for number in numbers if number > 0) <= 1
            norm = sum(number**2 for number in numbers)
            assert norm == Fraction(charged.sum()) and norm <= (1 if guess is None else 2)


def test_absent_neighbours_records_and_classes_are_ordinary_and_a_bad_record_stops_nobody() -> None:
    def asked(queries, reach, records, classes, holders, caps=(PLENTY,), n_classes=2):
        how = {"n_classes": n_classes, "accounts": PlainAccounts(caps), "sigma": 1.0}
        return shard_contributions(queries, reach, np.array(records, np.int8), classes, holders, **how)

    votes, charged = asked([[0], [5]], [3, 3], [[100]], [4], [0], n_classes=9)
    assert votes.shape == (2, 9) and not votes.any() and charged.nnz == 0
    votes, charged = asked([[0]], [3], np.zeros((0, 1)), [], [])
    assert not votes.any() and charged.shape == (1, 1)
    votes, charged = asked(np.zeros((0, 1), np.int8), [], [[1]], [0], [0])
    assert votes.shape == (0, 2) and charged.shape == (0, 1)
    bad = [[1], [1], [2], [-128]]
    votes, charged = asked([[0], [0]], [9, 9], bad, [7, -1, 1, 0], [0, 1, 2, 3], [PLENTY] * 4)
    np.testing.assert_array_equal(votes, [[0, 1], [0, 1]])
    np.testing.assert_array_equal(charged.toarray()[0], [0, 0, 1, 0])


def test_a_kernel_shrinks_what_is_contributed_and_what_it_costs() -> None:
    votes, charged = shard_contributions(
        [[0]], [100], [[0], [5], [10], [0], [5]], [0, 1, 2, 0, 1], [0, 1, 2, 3, 3],
        n_classes=3, accounts=PlainAccounts([PLENTY] * 4), sigma=1.0, kernel="epanechnikov",
    )  # fmt: skip
    # holder 3 has weights 1 and 3/4 on two classes: their mean, of norm below 1
    np.testing.assert_allclose(votes, [[1 + 4 / 7, 3 / 4 + 3 / 7, 0]], atol=2**-15)
    np.testing.assert_allclose(charged.toarray(), [[1, 9 / 16, 0, (16 + 9) / 49]], atol=2**-14)


def test_public_mistakes_are_named() -> None:
    options = {"radius_share": 0.1, "n_classes": CLASSES, "accounts": PlainAccounts([1.0] * 30), "sigma": 1.0}
    for change, message in (
        ({"queries": np.full((40, 5), 128, np.int16)}, "beyond"),
        ({"queries": np.zeros((40, 4), np.int8)}, "same representation"),
        ({"queries": np.zeros((40, 5))}, "whole-number"),
        ({"public": np.zeros((0, 5), np.int8)}, "give some"),
        ({"radius_share": 0.0}, "radius_share"),
        ({"predicted": np.full(40, 3)}, "between 0 and 2"),
        ({"kernel": "round"}, "no kernel"),
    ):
        with pytest.raises(ValueError, match=message):
            neighbour_votes(**(world() | options | change))
