"""Contributions of holders: their values and norms, and that the others don't change if a holder leaves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from learning.mechanisms.sampled_steps.rates import FINENESS
from learning.mechanisms.steps.linear import OwnedRecords, owned_records
from tests.learning.lazily import Gradients, network_create, nn, torch

SHAPES = {"linear": (203,), "mlp": (6,), "cnn": (16, 17, 2)}
CLASSES, NORM = 10, 0.25
UNIT = NORM / FINENESS


def weights_of(network: nn.Module) -> np.ndarray:
    return nn.utils.parameters_to_vector(network.parameters()).detach().numpy().astype(np.float64)


def some_holders(shape: tuple[int, ...], counts: list[int], seed: int = 1) -> OwnedRecords:
    """Return holders with these numbers of records, and ids with gaps."""
    rng = np.random.default_rng(seed)
    holder = np.repeat(np.arange(len(counts)), counts)
    x = (rng.integers(-127, 128, size=(len(holder), *shape)) / 127).astype(np.float32)
    identity = np.sort(rng.choice(10 * len(counts), len(counts), replace=False))
    return owned_records(x, rng.integers(CLASSES, size=len(holder)), holder, identity)


def without(holders: OwnedRecords, gone: int) -> OwnedRecords:
    keep = np.arange(len(holders)) != gone
    owner = np.repeat(np.arange(len(holders)), np.diff(holders.first))
    kept = keep[owner]
    return owned_records(holders.x[kept], holders.y[kept], (np.cumsum(keep) - 1)[owner[kept]], holders.identity[keep])


def sums(name: str, holders: OwnedRecords, chosen: object = None, *, step: int = 0, records: int = 4) -> np.ndarray:
    network = network_create(name, SHAPES[name], CLASSES)
    who = np.arange(len(holders)) if chosen is None else np.asarray(chosen)
    gradients = Gradients(network, SHAPES[name], records=records)
    return gradients.sums(weights_of(network), holders, who, np.full(len(holders), NORM), unit=UNIT, step=step)


def one_gradient(name: str, x: np.ndarray, y: int) -> np.ndarray:
    """Return the gradient of one record by PyTorch's own differentiation, in float64."""
    network = network_create(name, SHAPES[name], CLASSES).double()
    loss = nn.functional.cross_entropy(network(torch.tensor(x, dtype=torch.float64)[None]), torch.tensor([int(y)]))
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(network.parameters()))]).numpy()


def close_to(found: np.ndarray, expected: np.ndarray, share: float) -> bool:
    """Return whether the distance is at most a share of the length."""
    return np.linalg.norm(found - expected) <= share * np.linalg.norm(expected)


def expected_contribution(name: str, holders: OwnedRecords, holder: int, places: list[int]) -> np.ndarray:
    first = holders.first[holder]
    gradient = np.mean([one_gradient(name, holders.x[first + at], holders.y[first + at]) for at in places], axis=0)
    return gradient * min(1.0, NORM / np.linalg.norm(gradient)) / UNIT


@pytest.mark.parametrize("name", SHAPES)
def test_a_sum_is_that_of_the_clipped_mean_gradients(name: str) -> None:
    counts = [1, 3, 0, 4, 1, 2]
    holders = some_holders(SHAPES[name], counts)
    chosen = [5, 0, 2, 3]
    expected = sum(expected_contribution(name, holders, one, list(range(counts[one]))) for one in chosen if counts[one])
    found = sums(name, holders, chosen)
    assert found.dtype == np.int64
    assert close_to(found, expected, 0.1 if name == "cnn" else 0.02)  # some maxima of rounded maps are elsewhere


def test_holder_with_many_records_contributes_others_in_the_next_step() -> None:
    holders = some_holders(SHAPES["mlp"], [7])
    for step, places in ((0, [0, 1, 2, 3]), (1, [4, 5, 6, 0]), (2, [1, 2, 3, 4])):
        expected = expected_contribution("mlp", holders, 0, places)
        assert close_to(sums("mlp", holders, step=step), expected, 0.02)


@pytest.mark.parametrize("name", SHAPES)
def test_the_sum_without_a_holder_differs_by_exactly_their_contribution(name: str) -> None:
    """In floating point they would differ: with 203 columns, a product's last bits depend on the row's position."""
    counts = [1] * 60 + [3, 40, 1, 100, 2] + [2] * 10
    holders = some_holders(SHAPES[name], counts, seed=4)
    broken = int(holders.first[17])
    holders.x[broken] = np.nan
    holders.y[holders.first[20]] = -5
    everybody = sums(name, holders, records=16)
    for gone in (0, 17, 20, 61, 63, len(counts) - 1):
        own = sums(name, holders, [gone], records=16)
        assert (everybody - sums(name, without(holders, gone), records=16) == own).all()
        assert own.any() == (gone not in (17, 20))
        assert sum(int(number) ** 2 for number in own) <= FINENESS**2


def test_shards_add_up_and_order_does_not_matter() -> None:
    holders = some_holders(SHAPES["mlp"], [1, 2, 9, 1] * 40)
    everybody = sums("mlp", holders)
    order = np.random.default_rng(3).permutation(len(holders))
    assert (sums("mlp", holders, order) == everybody).all()
    assert (sum(sums("mlp", holders, part) for part in np.array_split(order, 7)) == everybody).all()


def test_whole_coordinates_are_scaled_first_and_values_beyond_one_count_as_one() -> None:
    holders = some_holders((6,), [1, 2, 1])

    def found(x: np.ndarray, scale: float) -> np.ndarray:
        network = network_create("mlp", (6,), CLASSES)
        owned = OwnedRecords(x, holders.y, holders.first, holders.identity)
        gradients = Gradients(network, (6,), scale=scale)
        return gradients.sums(weights_of(network), owned, [0, 1, 2], np.full(3, NORM), unit=UNIT, step=0)

    whole = np.rint(127 * holders.x).astype(np.int8)
    assert (found(whole, 0.5 / 127) == found(holders.x, 0.5)).all()
    assert (found(1e6 * holders.x, 1.0) == found(np.sign(holders.x), 1.0)).all()


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_no_contribution_is_longer_than_its_norm(name: str, each: int) -> None:
    """Exact, in whole units: norms have so few units that most numbers are below 1, so rounding up would show.

    Records of zeros have gradients only for the biases of the first layer; larger weights make gradients long enough to
    be clipped.
    """
    holders, network = some_holders(SHAPES[name], [each] * 4), network_create(name, SHAPES[name], CLASSES)
    holders.x[: 2 * each] = 0
    gradients, longest = Gradients(network, SHAPES[name]), 0.0
    for norm in (*np.geomspace(1, FINENESS, 14), *np.arange(2, 6)):
        for stretch, one in ((1, 0), (1, 2), (30, 1), (30, 3)):
            weights, norms = stretch * weights_of(network), np.full(4, norm * UNIT)
            own = gradients.sums(weights, holders, [one], norms, unit=UNIT, step=0)
            squared_norm = sum(int(number) ** 2 for number in own if number)
            assert squared_norm <= Fraction(norms[one]) ** 2 / Fraction(UNIT) ** 2, (norm, stretch, one)
        longest = max(longest, squared_norm / norm**2)
    assert longest > 0.99, "clipped to the norm, not to less"


def test_invalid_records_count_for_nothing() -> None:
    x = np.zeros((4, 6), np.float32)
    x[0], x[1, 2], x[2] = np.inf, np.nan, 1e38
    holders = owned_records(x, [0, 1, 2, 99], [0, 1, 2, 3], [3, 5, 67, 4])
    for chosen in ([0], [1], [3], []):
        assert not sums("mlp", holders, chosen).any()
    assert (sums("mlp", holders) == sums("mlp", holders, [2])).all()


def test_arrays_that_do_not_fit_are_refused() -> None:
    for y, holder, message in (([0], [0, 1], "labels"), ([0, 1], [0, 2], "holder"), ([0, 1], [-1, 0], "holder")):
        with pytest.raises(ValueError, match=message):
            owned_records(np.zeros((2, 6)), y, holder, [7, 8])
