"""Steps over Poisson samples: a single step, chunks, randomness."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from common.noise import SimulationNoise, SystemNoise
from learning.mechanisms.sampled_steps.rates import SampledMechanism
from learning.mechanisms.sampled_steps.training import SampledSteps, SimulationSampling, SystemSampling, run_chunk
from learning.mechanisms.steps.linear import OwnedRecords, owned_records
from tests.learning.lazily import Gradients, network_create

SHAPE, CLASSES = (64,), 10
MECHANISM = SampledMechanism(
    rates=np.array([0.1, 0.2]), norms=np.array([0.5, 0.4]), noise_multiplier=1.5, clip_norm=0.45, expected=30.0
)


@cache
def network():
    return network_create("linear", SHAPE, CLASSES)


def digits(count: int) -> OwnedRecords:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return owned_records(x[:count].astype(np.float32) / 16, y[:count], np.arange(count), 3 * np.arange(count))


def chunk(state: SampledSteps, holders: OwnedRecords, steps: int, noise: object, sampling: object, **other: object):
    options = {"mechanism": MECHANISM, "group": np.arange(len(holders)) % 2} | other
    group, gradients = options.pop("group"), Gradients(network(), SHAPE)
    how = {"steps": steps, "noise": noise, "sampling": sampling, "step_size": 0.5, "momentum": 0.9} | options
    return run_chunk(state, holders, group, gradients=gradients, **how)


def test_a_step_is_the_noisy_sum_over_the_public_size() -> None:
    """Computed again with the same draws."""
    holders, group = digits(200), np.arange(200) % 2
    state = chunk(SampledSteps.start(network()), holders, 2, SimulationNoise(5), SimulationSampling(6))
    noise, sampling, gradients = SimulationNoise(5), SimulationSampling(6), Gradients(network(), SHAPE)
    weights, velocity = SampledSteps.start(network()).weights, 0.0
    for step in range(2):
        drawn = sampling.chosen(MECHANISM.rates[group])
        unit = 0.5 / 2**20
        total = gradients.sums(weights, holders, drawn, MECHANISM.norms[group], unit=unit, step=step)
        released = unit * (total + noise.rounded_normal(1.5 * 0.45 / unit, total.shape))
        velocity = 0.9 * velocity + released / 30
        weights = weights - 0.5 * velocity
    np.testing.assert_allclose(state.weights, weights, rtol=1e-12)
    assert state.step == 2


@pytest.mark.statistical
def test_noise_has_the_scale_that_was_planned_and_is_drawn_again() -> None:
    """If nobody is drawn, only noise remains."""
    start, idle = SampledSteps.start(network()), replace(MECHANISM, rates=np.zeros(2))
    before = start.weights.copy()
    changes = []
    for _ in range(2):
        state = chunk(start, digits(10), 1, SystemNoise(), SystemSampling(), mechanism=idle, step_size=1.0)
        changes.append((state.weights - start.weights) * 30)
        assert len(changes[-1]) == 650
        assert np.std(changes[-1]) == pytest.approx(1.5 * 0.45, rel=0.2)  # seven standard deviations
    assert (changes[0] != changes[1]).mean() > 0.99
    assert (start.weights == before).all()


def test_cutting_a_run_into_chunks_changes_nothing_but_the_draws() -> None:
    holders, noise, sampling = digits(100), SimulationNoise(1), SimulationSampling(2)
    half = chunk(SampledSteps.start(network()), holders, 3, noise, sampling)
    stored = {name: np.array(array) for name, array in half.to_arrays().items()}
    resumed = chunk(SampledSteps.from_arrays(stored), holders, 2, noise, sampling)
    at_once = chunk(SampledSteps.start(network()), holders, 5, SimulationNoise(1), SimulationSampling(2))
    assert (resumed.weights == at_once.weights).all()
    assert (resumed.velocity == at_once.velocity).all()
    assert resumed.step == at_once.step == 5


def test_a_group_that_is_left_out_changes_nothing() -> None:
    holders, group = digits(100), np.arange(100) % 2
    alone = replace(MECHANISM, rates=np.array([1.0, 0.0]))
    results = []
    for kept in (np.arange(100), np.flatnonzero(group == 0)):
        some = owned_records(holders.x[kept], holders.y[kept], np.arange(len(kept)), holders.identity[kept])
        noise, sampling = SimulationNoise(3), SimulationSampling(4)
        results.append(
            chunk(SampledSteps.start(network()), some, 2, noise, sampling, mechanism=alone, group=group[kept])
        )
    assert (results[0].weights == results[1].weights).all()


@pytest.mark.statistical
@pytest.mark.parametrize("sampling", [SystemSampling(), SimulationSampling(8)])
def test_everybody_is_drawn_at_their_own_rate_and_independently(sampling: SystemSampling | SimulationSampling) -> None:
    rates = np.repeat([0.0, 0.05, 0.6, 1.0], 20_000)
    drawn = np.zeros((2, 80_000), bool)
    for one in drawn:
        one[sampling.chosen(rates)] = True
    counts = drawn[0].reshape(4, -1).sum(axis=1)
    assert counts[0] == 0
    assert counts[3] == 20_000
    assert counts[1] == pytest.approx(1_000, abs=250)  # eight standard deviations
    assert counts[2] == pytest.approx(12_000, abs=560)
    middle = drawn.reshape(2, 4, -1)[:, 2]
    for pairs in ((middle[0], middle[1]), (middle[0, 1:], middle[0, :-1])):
        assert np.mean(pairs[0] & pairs[1]) == pytest.approx(0.36, abs=0.03)


def test_a_rate_decides_to_its_last_bit_and_is_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person is drawn if their bits are below the rate, but not if they equal it; 1.5/2^64 is rounded to 1/2^64."""

    def chosen(rates: np.ndarray, firsts: list[int], rest: list[int]) -> list[int]:
        bits = iter([np.array(firsts, np.uint16).tobytes(), (np.array(rest, np.uint64) << np.uint64(16)).tobytes()])
        monkeypatch.setattr("learning.mechanisms.sampled_steps.training.urandom", lambda count: next(bits)[:count])
        return SystemSampling().chosen(rates).tolist()

    half, small = np.full(4, 0.5 + 2.0**-50), np.full(2, 1.5 * 2.0**-64)
    assert chosen(half, [2**15 - 1, 2**15, 2**15, 2**15 + 1], [2**14 - 1, 2**14]) == [0, 1]
    assert chosen(small, [0, 0], [0, 1]) == [0]
