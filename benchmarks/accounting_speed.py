"""Speed (CPU seconds; ratios are measured in one run) and memory of the cost computations.

    python benchmarks/accounting_speed.py

Uses the published MNIST and Adult vote counts in $IPATE_DATA_DIR/pate_votes, or random counts of the same shape.
"""

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import erfc

from accounting.privacy import DEFAULT_ORDERS, PAPER_ORDERS, affordable_prefix, gnmax_rdp, lnmax_rdp, threshold_rdp

SIGMA, THRESHOLD, SIGMA_CHECK = 40.0, 200.0, 150.0
WEIGHTS = (0.5, 1.0, 1.7)


def vote_counts(name: str, queries: int, classes: int) -> np.ndarray:
    path = Path(os.environ.get("IPATE_DATA_DIR", "../shared/data")) / "pate_votes" / f"{name}.npy"
    if path.exists():
        return np.load(path, allow_pickle=False).astype(float)
    generator = np.random.default_rng(0)
    return generator.multinomial(250, generator.dirichlet(np.full(classes, 0.15), size=queries)).astype(float)


def loop_over_queries(votes: np.ndarray, sigma: float, weight: float, orders: np.ndarray) -> np.ndarray:
    """Compute PATE 2018, Theorem 6 with Propositions 7 and 10, query by query. Only the orders are vectorised."""
    costs = np.empty((len(votes), len(orders)))
    slope = (weight / sigma) ** 2
    for i, counts in enumerate(votes):
        gaps = np.delete(counts.max() - counts, counts.argmax())
        log_q = np.log(min(np.sum(erfc(gaps / (2 * sigma))) / 2, 1 - 1 / len(counts)))
        costs[i] = orders * slope
        mu2 = np.sqrt(-log_q / slope)
        mu1 = mu2 + 1
        eps1, eps2 = mu1 * slope, mu2 * slope
        if mu2 <= 1 or -log_q <= eps2:
            continue
        if log_q > (mu2 - 1) * eps2 - mu2 * (np.log(mu1 / (mu1 - 1)) + np.log(mu2 / (mu2 - 1))):
            continue
        log_stay = np.log1p(-np.exp(log_q))
        log_a = log_stay - np.log1p(-np.exp((log_q + eps2) * (1 - 1 / mu2)))
        log_b = eps1 - log_q / (mu1 - 1)
        bound = np.logaddexp(log_stay + (orders - 1) * log_a, log_q + (orders - 1) * log_b) / (orders - 1)
        costs[i] = np.where(orders < mu1, np.minimum(bound, costs[i]), costs[i])
    return costs


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of one process, which vary less with other load than wall-clock time, and the result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def peak_beyond_result(votes: np.ndarray) -> float:
    """Return the peak memory in MiB allocated by exact costs, without the result."""
    tracemalloc.start()
    result = gnmax_rdp(votes, SIGMA, method="exact")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - result.nbytes) / 2**20


def data_dependent(votes: np.ndarray) -> list[np.ndarray]:
    return [gnmax_rdp(votes, SIGMA, sensitivity=w, orders=PAPER_ORDERS, method="data_dependent") for w in WEIGHTS]


def main() -> None:
    mnist, adult = vote_counts("mnist_250_teachers", 9000, 10), vote_counts("adult_250_teachers", 10_000, 2)[:10_000]

    looped, slow = seconds(lambda: [loop_over_queries(mnist, SIGMA, w, PAPER_ORDERS) for w in WEIGHTS])
    vectorised, fast = min((seconds(lambda: data_dependent(mnist)) for _ in range(3)), key=lambda timed: timed[0])
    np.testing.assert_allclose(fast, slow, rtol=1e-8, atol=1e-15)
    print(f"data-dependent GNMax, {len(mnist)} queries × {len(WEIGHTS)} groups × {PAPER_ORDERS.size} orders:")
    print(f"  loop over queries {looped:.2f} s, vectorised {vectorised:.3f} s: {looped / vectorised:.0f} × faster")

    orders = DEFAULT_ORDERS.size
    exact, label = seconds(lambda: gnmax_rdp(mnist, SIGMA, method="exact"))
    print(f"exact GNMax, {len(mnist)} queries × 10 classes × {orders} orders: {exact:.2f} s")
    for queries in (900, 3600):
        peak = peak_beyond_result(mnist[:queries])
        print(f"  {queries} queries take {peak:.0f} MiB in addition to the result")
    check_time, check = seconds(lambda: threshold_rdp(mnist, THRESHOLD, SIGMA_CHECK, method="exact"))
    print(f"exact check, {len(mnist)} queries: {check_time:.2f} s")
    two_classes = seconds(lambda: gnmax_rdp(adult, SIGMA, method="exact"))[0]
    print(f"exact GNMax, {len(adult)} queries × 2 classes: {two_classes:.2f} s")
    laplace = seconds(lambda: lnmax_rdp(mnist[:1000], 0.05, method="exact"))[0]
    print(f"exact LNMax, 1000 queries × 10 classes: {laplace:.2f} s")

    checks, labels = (np.repeat(costs[:, None], 3, axis=1) for costs in (check, label))
    past, answered = np.zeros((3, orders)), np.ones(len(mnist), dtype=bool)
    filtering, prefix = seconds(lambda: affordable_prefix(past, checks, labels, answered, [30.0, 20.0, 10.0], 1e-5))
    print(f"budget filter, {prefix.count} of {len(mnist)} queries × 3 groups × {orders} orders: {filtering:.2f} s")


if __name__ == "__main__":
    main()
