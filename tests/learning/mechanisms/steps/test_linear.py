"""Contributions to a step are correct, bounded, charged by their norm, and independent of other holders."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import kstest, norm

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.mechanisms.steps.linear import (
    CLIP_STEPS,
    INTERCEPT,
    OwnedRecords,
    owned_records,
    release_sums,
    step_contributions,
)

DIMENSIONS, CLASSES = 12, 4
COUNTS = [1, 3, 1, 0, 400, 1, 3, 2, 5000, 1, 1, 3]
SIGMA = 10.0


def some_records(counts, seed: int = 0, dimensions: int = DIMENSIONS) -> OwnedRecords:
    """Return holders with `counts` records each, with random coordinates and classes."""
    rng, total = np.random.default_rng(seed), int(np.sum(counts))
    coordinates = rng.integers(-127, 128, (total, dimensions)).astype(np.int8)
    holder = np.repeat(np.arange(len(counts)), counts)
    return owned_records(coordinates, rng.integers(0, CLASSES, total), holder, np.arange(len(counts)))


def only(records: OwnedRecords, kept: np.ndarray) -> OwnedRecords:
    """Return the records of these holders only, renumbered."""
    mine = np.isin(records.holder, kept)
    numbers = np.searchsorted(kept, records.holder[mine])
    return owned_records(records.x[mine], records.y[mine], numbers, records.identity[kept])


def plain_gradient(coordinates, labels, weights) -> np.ndarray:
    """Compute the mean gradient of the cross entropy over one holder's records, in floating point."""
    features = np.hstack([coordinates.astype(float), np.full((len(coordinates), 1), float(INTERCEPT))])
    logits = features @ weights
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    probabilities[np.arange(len(labels)), labels] -= 1
    return features.T @ probabilities / len(labels)


def plain_contribution(gradient: np.ndarray, clip_norm: float, weight: float = 1.0) -> np.ndarray:
    """Return the clipped and weighted gradient, in units."""
    return gradient * (weight * min(1.0, clip_norm / np.linalg.norm(gradient)) * CLIP_STEPS / clip_norm)


def some_weights(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.004, (DIMENSIONS + 1, CLASSES))


def sums_of(records: OwnedRecords, weights=None, clip_norm: float = 60.0, caps=1.0, shares=1.0):
    accounts = IndividualAccounts(np.full(len(records), caps) if np.isscalar(caps) else caps)
    return step_contributions(
        records,
        some_weights() if weights is None else weights,
        clip_norm=clip_norm,
        accounts=accounts,
        sigma=SIGMA,
        level_weights=shares,
    ), accounts


@pytest.mark.parametrize("clip_norm", [5.0, 60.0, 1000.0])
def test_sums_and_charges_are_those_of_a_loop_over_holders(clip_norm: float) -> None:
    records = some_records(COUNTS)
    shares = np.linspace(0.3, 1.0, len(COUNTS))
    (sums, charged), _ = sums_of(records, clip_norm=clip_norm, shares=shares)
    expected = np.zeros(sums.shape)
    for one, weight in enumerate(shares):
        mine = records.holder == one
        if not mine.any():
            assert charged[one] == 0
            continue
        gradient = plain_gradient(records.x[mine], records.y[mine], some_weights())
        contribution = plain_contribution(gradient, clip_norm, weight)
        expected += contribution
        assert charged[one] <= (weight / SIGMA) ** 2
        assert charged[one] == pytest.approx((np.linalg.norm(contribution) / CLIP_STEPS / SIGMA) ** 2, rel=0.02)
    # clipping leaves room for rounding
    assert np.abs(sums - expected).max() < 0.01 * CLIP_STEPS


@pytest.mark.parametrize("each", [1, 3])
def test_rounding_makes_no_contribution_longer_than_its_share_of_the_clip(each: int) -> None:
    """In exact fractions; a small share has so few units that rounding each number up would show."""
    records = some_records([each] * 40)
    for share in np.geomspace(2.0**-17, 1, 30):
        (_, charged), _ = sums_of(records, clip_norm=5.0, shares=share)
        for one in range(0, 40, 5):
            (sums, charge), _ = sums_of(only(records, np.array([one])), clip_norm=5.0, shares=share)
            squared_norm = Fraction(sum(number**2 for number in sums.ravel().tolist()), CLIP_STEPS**2)
            assert squared_norm <= Fraction(share) ** 2, (share, one)
            assert charge[0] == charged[one] == pytest.approx(float(squared_norm) / SIGMA**2, rel=1e-12)
    assert squared_norm > 0.99, "clipped to the norm, not to less"


def test_without_a_holder_the_sums_lack_their_contribution_and_nothing_else() -> None:
    records = some_records(COUNTS)
    (everyone, charged), accounts = sums_of(records)
    for left_out in (0, 1, 4, 8, 11):
        others = np.setdiff1d(np.arange(len(COUNTS)), left_out)
        (rest, charged_rest), accounts_rest = sums_of(only(records, others))
        (alone, charged_alone), _ = sums_of(only(records, np.array([left_out])))
        assert (everyone == rest + alone).all()
        assert (charged[others] == charged_rest).all() and charged[left_out] == charged_alone[0]
        assert (accounts.spent[others] == accounts_rest.spent).all()
        assert (alone.astype(float) ** 2).sum() / CLIP_STEPS**2 / SIGMA**2 == charged_alone[0] > 0


@pytest.mark.parametrize("stretch", [1, 300], ids=["usual", "probabilities of 0 and 1, and logits beyond exp"])
def test_a_contribution_is_the_same_bit_for_bit_among_any_number_of_others(stretch: int) -> None:
    weights = stretch * some_weights()
    for holders in (*range(1, 10), 37, 4096, 4097, 4105):
        records = some_records([1 + (holders == 37)] * holders, seed=holders)
        (_, charged), _ = sums_of(records, weights)
        for one in {0, holders // 2, holders - 1}:
            (_, alone), _ = sums_of(only(records, np.array([one])), weights)
            assert alone[0] == charged[one]


def test_shards_add_up_and_blocks_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    records = some_records(COUNTS * 3)
    (whole, charged), _ = sums_of(records)
    for shards in (3, 7):
        parts = [sums_of(only(records, part))[0] for part in np.array_split(np.arange(len(COUNTS) * 3), shards)]
        assert (sum(sums for sums, _ in parts) == whole).all()
        assert (np.concatenate([costs for _, costs in parts]) == charged).all()
    for block in (3, 100, 100_000):
        monkeypatch.setattr("learning.mechanisms.steps.linear._RECORDS_AT_A_TIME", block)
        (again, costs), _ = sums_of(records)
        assert (again.tobytes(), costs.tobytes()) == (whole.tobytes(), charged.tobytes())


def test_many_records_of_one_holder_need_memory_for_one_block_only() -> None:
    """As numbers of eight bytes they would take 80 MB, and calculations several times that."""
    records = some_records([100_000, 1], dimensions=99)
    weights = np.random.default_rng(1).normal(0, 0.004, (100, CLASSES))
    tracemalloc.start()
    try:
        sums_of(records, weights)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6


def test_records_without_a_class_contribute_nothing() -> None:
    records = some_records([1, 1, 2])
    records.y[:] = [-1, CLASSES, 1, 2**40]
    (sums, charged), _ = sums_of(records, clip_norm=1e4)
    assert charged[0] == charged[1] == 0 < charged[2]
    good = plain_gradient(records.x[2:3], records.y[2:3], some_weights())
    assert np.abs(sums * (1e4 / CLIP_STEPS) - good / 2).max() < 0.03


def test_holders_who_cannot_pay_are_left_out_before_the_sum() -> None:
    records = some_records([1, 2, 1])
    (sums, charged), accounts = sums_of(records, caps=np.array([1.0, 1e-9, 1e-9]))
    (alone, _), _ = sums_of(only(records, np.array([0])))
    assert (sums == alone).all()
    assert (charged[1:] == 0).all() and (accounts.spent[1:] == 0).all() and charged[0] > 0
    accounts, paid = IndividualAccounts([3.5 / SIGMA**2] * 3), []
    for _ in range(5):
        paid.append(step_contributions(records, some_weights(), clip_norm=1.0, accounts=accounts, sigma=SIGMA)[1] > 0)
    assert np.array(paid).sum(axis=0).tolist() == [3, 3, 3]


@pytest.mark.statistical
def test_noise_has_the_size_that_was_planned() -> None:
    sums = np.zeros((200, 100), np.int64)
    released = release_sums(sums, 3.0, SimulationNoise(1))
    assert released.dtype == np.int64
    assert kstest(released.ravel() / CLIP_STEPS, norm(0, 3.0).cdf).pvalue > 0.01


def test_inexact_computations_are_refused() -> None:
    with pytest.raises(ValueError, match="transform the records"):
        sums_of(owned_records(np.zeros((2, 3)), [0, 0], [0, 1], [0, 1]))
    with pytest.raises(ValueError, match="level_weights"):
        sums_of(some_records([1]), shares=1.5)
    with pytest.raises(ValueError, match="not finite"):
        sums_of(some_records([1]), weights=some_weights() * np.inf)
