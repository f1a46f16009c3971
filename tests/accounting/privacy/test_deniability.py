"""Costs of plausible deniability, compared with exact distributions and the published composition theorem."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import laplace

from accounting.privacy.papers.deniability import composed_delta, composed_epsilon, row_cost


def test_the_cost_of_a_row_is_the_smallest_that_theorem_1_allows() -> None:
    k, gamma, epsilon0, delta = 50, 4.0, 0.8, 1e-8
    epsilon, t = row_cost(k, gamma, epsilon0, delta)
    allowed = [each for each in range(1, k) if math.exp(-epsilon0 * (k - each)) <= delta]
    assert t == max(allowed)
    assert epsilon == pytest.approx(min(epsilon0 + math.log(1 + gamma / each) for each in allowed), rel=1e-12)


def test_settings_that_promise_nothing_are_refused() -> None:
    for wrong in ((1, 4, 1.0, 0.1), (9, 1.0, 1.0, 0.1), (9, 4, 0.0, 0.1), (9, 4, 1.0, 0.0)):
        with pytest.raises(ValueError, match="must be above"):
            row_cost(*wrong)
    with pytest.raises(ValueError, match="larger k"):
        row_cost(10, 4.0, 0.5, 1e-9)
    with pytest.raises(ValueError, match="less per row"):
        composed_epsilon(1.0, 1e-6, 1_000, 1e-5)


def outputs(data: list[int], synthesiser: np.ndarray, k: int, gamma: float, epsilon0: float) -> np.ndarray:
    """Return the exact distribution of the release from one random seed: each row, and last, no row."""
    found = np.zeros(synthesiser.shape[1] + 1)
    for row in range(synthesiser.shape[1]):
        probabilities = synthesiser[data, row]
        buckets = np.floor(-np.log(probabilities) / math.log(gamma))
        plausible = (buckets[:, None] == buckets[None, :]).sum(axis=1)
        found[row] = (probabilities * laplace.cdf(plausible - k, scale=1 / epsilon0)).sum() / len(data)
    found[-1] = 1 - found[:-1].sum()
    return found


def test_theorem_1_holds_for_exact_distributions() -> None:
    rng = np.random.default_rng(0)
    closest = -np.inf
    for _ in range(60):
        synthesiser = rng.dirichlet(np.full(3, rng.choice([0.2, 1.0, 5.0])), 3)
        data = rng.integers(0, 3, rng.integers(2, 13)).tolist()
        k, gamma, epsilon0 = int(rng.integers(2, 9)), float(rng.choice([1.1, 2, 4])), float(rng.choice([0.1, 1, 2]))
        less, more = (outputs(each, synthesiser, k, gamma, epsilon0) for each in (data, [*data, 0]))
        for t in range(1, k):
            epsilon, delta = epsilon0 + math.log1p(gamma / t), math.exp(-epsilon0 * (k - t))
            for one, other in ((less, more), (more, less)):
                lost = np.maximum(one - math.exp(epsilon) * other, 0).sum()
                closest = max(closest, lost - delta)
    assert -1e-6 < closest <= 0, "nearly attained, and never exceeded"


@pytest.mark.parametrize(("epsilon", "delta", "rows"), [(0.5, 0.0, 7), (1.3, 1e-4, 20), (0.05, 1e-7, 60)])
@mpmath.workdps(50)
def test_rows_together_cost_what_the_printed_theorem_says(epsilon: float, delta: float, rows: int) -> None:
    exp, broken = mpmath.e ** mpmath.mpf(epsilon), 1 - (1 - mpmath.mpf(delta)) ** rows
    for place in range(rows // 2 + 1):
        inner = (
            sum(
                mpmath.binomial(rows, each) * (exp ** (rows - each) - exp ** (rows - 2 * place + each))
                for each in range(place)
            )
            / (1 + exp) ** rows
        )
        printed = broken + (1 - broken) * inner
        found = composed_delta(epsilon, delta, rows, (rows - 2 * place) * epsilon)
        assert found == pytest.approx(float(printed), rel=1e-9, abs=1e-15)


def test_the_composed_epsilon_is_the_smallest_within_delta() -> None:
    epsilon = composed_epsilon(1.13, 1e-12, 10_000, 1e-5)
    assert composed_delta(1.13, 1e-12, 10_000, epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert 1_000 < epsilon < 11_300
    assert composed_epsilon(1e-9, 0.0, 10, 0.1) == 0.0
