"""Tightness of each accounting method on the published MNIST votes, and the gap of Theorem 6.

    python benchmarks/accounting_tightness.py

Needs $IPATE_DATA_DIR/pate_votes for the first part. Prints the numbers quoted in accounting/privacy/papers/README.md.
"""

import os
import warnings
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from accounting.privacy import DEFAULT_ORDERS, affordable_prefix, epsilon_from_rdp, gnmax_rdp, threshold_rdp
from accounting.privacy.checks import FloatArray, Method
from accounting.privacy.papers.argmax import GaussianNoise, argmax_divergences

SIGMA, THRESHOLD, SIGMA_CHECK, DELTA = 40.0, 200.0, 150.0, 1e-5
METHODS: tuple[Method, ...] = ("data_independent", "data_dependent", "exact")


def affordable_labels(votes: FloatArray) -> None:
    """Print queries and expected labels before ε = 1, charging labels by their probability of being answered."""
    answered = ndtr((votes.max(axis=1) - THRESHOLD) / SIGMA_CHECK)
    for method in METHODS:
        check = threshold_rdp(votes, THRESHOLD, SIGMA_CHECK, method=method)
        label = gnmax_rdp(votes, SIGMA, method=method)
        for conversion in ("classic", "improved"):
            spent = np.cumsum(check + answered[:, None] * label, axis=0)
            with warnings.catch_warnings():  # the first queries cost so little that the largest order is the best
                warnings.simplefilter("ignore")
                epsilon, _ = epsilon_from_rdp(spent, DELTA, conversion=conversion)
            queries = int(np.searchsorted(epsilon, 1.0, side="right"))
            print(f"  {method:16} {conversion:8} {queries:5} queries, {answered[:queries].sum():6.1f} labels")


def affordable_in_one_vote(votes: FloatArray) -> None:
    """Print queries and labels within ε = 1 by the budget filter, drawing the noise of the checks only once."""
    noise = np.random.default_rng(0).normal(0, SIGMA_CHECK, len(votes))
    answered = votes.max(axis=1) + noise >= THRESHOLD
    for method in METHODS:
        check = threshold_rdp(votes, THRESHOLD, SIGMA_CHECK, method=method)[:, None]
        label = gnmax_rdp(votes, SIGMA, method=method)[:, None]
        past = np.zeros((1, DEFAULT_ORDERS.size))
        prefix = affordable_prefix(past, check, label, answered, [1.0], DELTA)
        print(f"  {method:16} {prefix.count:5} queries, {answered[: prefix.count].sum():5} labels")


def reverse_direction(votes: FloatArray, name: str) -> None:
    """Print the frequency and size of violations by D_α(M(D′)‖M(D)) of Theorem 6's bound on D_α(M(D)‖M(D′))."""
    orders = np.array([2.0, 4.0, 8.0, 16.0, 32.0])
    print(f"D_α(M(D′)‖M(D)) above Theorem 6, {name}, 250 teachers, α = 2, 4, 8, 16, 32:")
    for sigma in (5.0, 10.0, 20.0, 40.0):
        _, reverse = argmax_divergences(votes, GaussianNoise(sigma), 1.0, orders, votes >= 1)
        bound = gnmax_rdp(votes, sigma, orders=orders, method="data_dependent")
        missed = reverse > bound * (1 + 1e-6) + 1e-15
        excess = (reverse[missed] / bound[missed]) if missed.any() else np.ones(1)
        print(
            f"  σ = {sigma:2g}: {missed.any(axis=1).mean():6.1%} of the queries at some α,",
            " ".join(f"{share:6.1%}" for share in missed.mean(axis=0)),
            f"; {np.median(excess):.2f} times the bound in the median, {excess.max():.2f} at most;",
            f"summed over the queries {np.array2string(reverse.sum(axis=0) / bound.sum(axis=0), precision=2)}",
        )


def main() -> None:
    path = Path(os.environ.get("IPATE_DATA_DIR", "../shared/data")) / "pate_votes" / "mnist_250_teachers.npy"
    if path.exists():
        mnist = np.load(path, allow_pickle=False).astype(float)
        print("Labels at ε = 1, expected:")
        affordable_labels(mnist)
        print("Labels at ε = 1 through the filter, one vote:")
        affordable_in_one_vote(mnist)
        reverse_direction(mnist[::9], "MNIST votes")
    generator = np.random.default_rng(1)
    for classes in (3, 10):
        shares = generator.dirichlet(np.full(classes, 0.5), size=1000)
        reverse_direction(generator.multinomial(250, shares).astype(float), f"random votes, {classes} classes")


if __name__ == "__main__":
    main()
