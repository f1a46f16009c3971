"""Votes of all holders, compared with explicit sums, and independent of everybody else bit for bit."""

import tracemalloc
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import kstest

from common.noise import SimulationNoise
from learning.forecasts import LABELS
from learning.mechanisms.neighbours.forecast import propose, released_accuracy
from learning.mechanisms.neighbours.released_counts import read_counts, release_counts
from learning.mechanisms.neighbours.rounds import (
    doubtful_queries,
    expected_agreement,
    first_queries,
    next_round,
    plan_rounds,
    split_share,
    spread_queries,
)
from learning.mechanisms.neighbours.surrogates import Sample
from learning.mechanisms.neighbours.votes import kth_distances, neighbour_votes, radii, shard_contributions
from learning.mechanisms.protocol import PlannedLevel

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
    """Return squared distances in whole numbers, pair by pair."""
    return ((np.asarray(a, np.int64)[:, None] - np.asarray(b, np.int64)[None]) ** 2).sum(axis=2)


def brute_force(w, *, share, caps, sigma, predicted=None, classes=CLASSES):
    """Compute votes and charges as the guarantee defines them, holder by holder, in fractions."""
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
def test_without_one_holder_the_sum_differs_by_exactly_their_contribution(residual, kernel) -> None:
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
def test_results_are_bit_identical_for_any_blocks_of_records(residual, kernel, monkeypatch) -> None:
    """Most records belong to one holder, who is in every block; others are at the borders of blocks."""
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


def test_many_records_of_one_holder_need_memory_for_one_block_only(monkeypatch) -> None:
    """All of them are near all queries: 7.7 million pairs, 65,536 of which are in memory at a time."""
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
    """All products are as large as possible. A record at the radius votes; one a step further does not."""
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
    """Tests all divisions of up to 7 records over three classes; weights of distances are not multiples of the unit."""
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


def test_missing_neighbours_records_and_classes_and_bad_records_cause_no_errors() -> None:
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
    # holder 3 contributes the mean of two records of different classes, weighted 1 and 3/4, so its norm is below 1
    np.testing.assert_allclose(votes, [[1 + 4 / 7, 3 / 4 + 3 / 7, 0]], atol=2**-15)
    np.testing.assert_allclose(charged.toarray(), [[1, 9 / 16, 0, (16 + 9) / 49]], atol=2**-14)


def test_invalid_arguments_are_named() -> None:
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


class PlainAccounts:
    """Accounts that allow a contribution if the amount spent plus its cost is at most the cap."""

    def __init__(self, caps) -> None:
        self.caps = np.asarray(caps, np.float64)
        self.spent = np.zeros(len(self.caps))

    def charge(self, squared_norms: csr_array, sigma: float) -> csr_array:
        allowed = np.zeros(squared_norms.nnz, np.bool_)
        for row in range(squared_norms.shape[0]):
            for place in range(squared_norms.indptr[row], squared_norms.indptr[row + 1]):
                holder, cost = squared_norms.indices[place], squared_norms.data[place] / sigma**2
                if self.spent[holder] + cost <= self.caps[holder]:
                    allowed[place] = True
                    self.spent[holder] += cost
        return csr_array((allowed, squared_norms.indices, squared_norms.indptr), shape=squared_norms.shape)


CAP = 0.26805**2


def blobs(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return four overlapping classes in the plane."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    middles = np.array([[-40, -40], [-40, 40], [40, -40], [40, 40]])
    return np.clip(np.rint(middles[labels] + rng.normal(0, 25, (count, 2))), -127, 127).astype(np.int8), labels


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("labelled", [True, False])
def test_forecasts_match_the_outcome(records, labelled) -> None:
    public, truth = blobs(0, 300)
    private, classes_of = blobs(1, 3000)
    sample = Sample(*blobs(2, 600)) if labelled else None
    levels = [PlannedLevel("HIGH", CAP, 500, records), PlannedLevel("LOW", 4 * CAP, 3000 / records - 500, records)]
    proposal = propose(public, public, levels, share=0.5, n_classes=4, sample=sample)
    expected = proposal.forecast
    caps = np.where(np.arange(3000 // records) < 500, CAP, 4 * CAP)
    accounts = PlainAccounts(0.5 * caps)
    votes, _ = neighbour_votes(
        public, public, private, classes_of, np.arange(3000) % (3000 // records),
        radius_share=proposal.radius_share, n_classes=4, accounts=accounts, sigma=proposal.sigma,
    )  # fmt: skip
    release = read_counts(release_counts(votes, proposal.sigma, SimulationNoise(0)), proposal.sigma)
    right = float((release.labels == truth).mean())
    result = expected.labels
    assert result.low <= right <= result.high and result.of == LABELS and bool(result.judged) == labelled
    if labelled:
        assert result.value == pytest.approx(right, abs=0.03)
    assert expected.voters[1] == pytest.approx(np.median(votes.sum(axis=1)), rel=0.2)
    for level, spent in zip(expected.levels, (accounts.spent[:500] / CAP, accounts.spent[500:] / 4 / CAP), strict=True):
        if records == 1:
            assert level.spent == pytest.approx(spent.mean(), abs=0.06)
        assert level.spent <= level.share == 0.5
    assert expected.levels[0].votes_allowed * 4 <= expected.levels[1].votes_allowed


def test_a_released_batch_bounds_its_own_accuracy() -> None:
    public, truth = blobs(3, 400)
    private, classes_of = blobs(4, 5000)
    for sigma in (5.0, 60.0):
        votes, _ = neighbour_votes(
            public, public, private, classes_of, np.arange(5000),
            radius_share=0.05, n_classes=4, accounts=PlainAccounts([1e9] * 5000), sigma=sigma,
        )  # fmt: skip
        counts = release_counts(votes, sigma, SimulationNoise(1))
        low, high = released_accuracy(counts, sigma)
        assert low - 0.03 <= (read_counts(counts, sigma).labels == truth).mean() <= high + 0.03


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_planner_asks_each_point_once(rounds) -> None:
    public, _ = blobs(0, 100)
    for wanted in (None, 70):
        plan = plan_rounds(
            public, [PlannedLevel("ALL", CAP, 3000)], share=0.8, n_classes=4, rounds=rounds, wanted=wanted
        )
        positions = np.concatenate([one.queries for one in plan.rounds])
        assert len(set(positions.tolist())) == len(positions) == (wanted or 100)
        assert [one.residual for one in plan.rounds] == [False, True][:rounds]
        assert [one.share for one in plan.rounds] == pytest.approx([[0.8], [0.4, 0.8]][rounds - 1])
        for one in plan.rounds:
            assert one.forecast.levels[0].spent <= one.share
            assert one.forecast.sigma == one.sigma and one.forecast.queries == len(one.queries)
    first = plan_rounds(public, [PlannedLevel("ALL", CAP, 3000)], share=1.0, n_classes=4, rounds=2, first=33).rounds[0]
    assert len(first.queries) == 33


def test_settings_chosen_by_hand_are_planned_and_forecast() -> None:
    public, _ = blobs(0, 200)
    levels = [PlannedLevel("ALL", CAP, 3000)]
    for rounds in (1, 2, None):
        chosen = plan_rounds(public, levels, share=1.0, n_classes=4, rounds=rounds, sigma=33.0, radius_share=0.07)
        for one in chosen.rounds:
            assert (one.sigma, one.radius_share) == (one.forecast.sigma, one.forecast.radius_share) == (33.0, 0.07)
    forecast = partial(plan_rounds, public, levels, share=1.0, n_classes=4, rounds=1)
    proposed, radius_alone = (forecast(radius_share=radius).rounds[0] for radius in (None, 0.07))
    assert radius_alone.sigma == proposed.sigma
    assert radius_alone.forecast.voters != proposed.forecast.voters


def test_doubtful_points_are_asked_first_and_numbers_out_of_range_are_named() -> None:
    public, _ = blobs(0, 120)
    levels = [PlannedLevel("ALL", CAP, 3000)]
    first = plan_rounds(public, levels, share=1.0, n_classes=4, rounds=2).rounds[0]
    counts = np.tile([90, 10, 0, 0], (len(first.queries), 1))
    lead = np.random.default_rng(2).uniform(0.3, 0.7, 120)
    student = np.stack([lead, 1 - lead, 0 * lead, 0 * lead], axis=1)
    second, _ = next_round(first.as_earlier_round, public, counts, public, student, levels, share=1.0, n_classes=4)
    assert (np.diff(np.abs(lead[second.queries] - 0.5)) >= 0).all()
    with pytest.raises(ValueError, match="121 labels"):
        plan_rounds(public, levels, share=1.0, n_classes=4, wanted=121)
    with pytest.raises(ValueError, match="rounds"):
        plan_rounds(public, levels, share=1.0, n_classes=4, rounds=3)
    assert first_queries(30, 4) == 15


def test_the_share_is_split_and_never_exceeded() -> None:
    for rounds in range(1, 8):
        parts = split_share(0.7, rounds)
        assert len(parts) == rounds and sum(parts) == pytest.approx(0.7) and sum(parts) <= 0.7 + 1e-15
    with pytest.raises(ValueError, match="round"):
        split_share(0.7, 0)


def test_first_queries_are_spread_over_all_clusters_and_doubtful_ones_come_first() -> None:
    rng = np.random.default_rng(0)
    middles = rng.integers(-100, 100, (12, 6))
    points = (np.repeat(middles, 30, axis=0) + rng.integers(-3, 4, (360, 6))).astype(np.int8)
    chosen = spread_queries(points, 24)
    assert len(set(chosen.tolist())) == 24
    assert len(set((chosen // 30).tolist())) >= 10
    np.testing.assert_array_equal(chosen, spread_queries(points, 24))
    assert spread_queries(np.zeros((9, 2), np.int8), 9).tolist() == list(range(9))
    assert len(set(spread_queries(np.zeros((9, 2), np.int8), 4).tolist())) == 4
    with pytest.raises(ValueError, match="request fewer"):
        spread_queries(np.zeros((9, 2), np.int8), 10)
    assert doubtful_queries([[0.2, 0.8], [0.5, 0.5], [0.45, 0.55], [0.5, 0.5]], 3).tolist() == [1, 3, 2]


def test_a_tenth_of_the_people_is_recognised_by_the_noisy_counts() -> None:
    rng = np.random.default_rng(1)
    expected = rng.uniform(500, 1500, 600)
    counts = np.rint(rng.dirichlet(np.ones(10), 600) * expected[:, None] * 0.1 + rng.normal(0, 50, (600, 10)))
    assert expected_agreement(counts, expected) == pytest.approx(0.1, abs=0.02)
    assert expected_agreement([[-5, 0]], [10.0]) == 0.0


@pytest.mark.statistical
def test_counts_are_whole_and_their_noise_has_the_sigma_that_is_charged() -> None:
    totals = np.tile([[100.25, 3.5]], (20_000, 1))
    counts = release_counts(totals, 30.0, SimulationNoise(0))
    assert counts.dtype == np.int64
    assert kstest(((counts - totals) / 30.0).ravel(), "norm").pvalue > 0.01


def test_labels_margins_ties_and_overturned_predictions() -> None:
    release = read_counts([[5, 5, 1], [-7, -3, -30]], 2.0)
    assert release.labels.tolist() == [0, 1] and release.margins.tolist() == [0.0, 2.0]
    assert read_counts([[4]], 1.0).labels.tolist() == [0]
    counts = [[-40, 38, 2], [-40, 38, 2]]
    release = read_counts(counts, 1.0, predicted=[0, 0], voters=np.array([100.0, 50.0]))
    assert release.labels.tolist() == [0, 1]
    assert release.margins.tolist() == [22.0, 28.0]
    np.testing.assert_array_equal(release.counts, counts)
