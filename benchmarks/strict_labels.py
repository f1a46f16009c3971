"""Number of labels that the accounts can pay for on the published MNIST votes, and the share of correct ones.

    IPATE_DATA_DIR=… python -m benchmarks.strict_labels [--draws 200]

Everyone is promised the same ε at δ = 1e-5; 250 teachers of weight 1 label the first public points by GNMax, without a
check. A label costs 2/σ² of an account's cap μ², which alone determines their number. "Rényi" is the number that the
same promise pays for with Rényi costs that do not depend on the votes and bound the same mechanism from above. "right"
is the mean share of right labels among these points, over draws of the noise. At σ = 40, another line is for
Confident-GNMax (T = 200, σ_T = 150), which first checks whether a point is worth its label. The last line is for three
groups with their own ε.
"""

import argparse
import gzip
import os
import warnings
from pathlib import Path

import numpy as np

from accounting.caps import caps_of
from accounting.privacy import DEFAULT_ORDERS, check_charge, epsilon_from_rdp, gnmax_rdp, label_charge, threshold_rdp
from common.noise import SimulationNoise
from learning.mechanisms.pate import ConfidentGNMax, GNMax, PrivacyGroup, make_plan

DELTA = 1e-5
EPSILONS, SIGMAS = (1.0, 2.0, 3.0), (20.0, 40.0, 80.0, 120.0, 160.0, 200.0)


def labels_afforded(epsilon: float, sigma: float) -> int:
    return int(caps_of(epsilon, DELTA) / label_charge(1.0, sigma))


def labels_by_renyi(epsilon: float, sigma: float) -> int:
    """Return the largest number of labels whose Rényi curve converts to at most ε."""
    curve = gnmax_rdp(np.zeros((1, 10)), sigma, method="data_independent")[0]
    with warnings.catch_warnings():  # so few labels cost so little that the largest order is the best
        warnings.simplefilter("ignore")
        epsilons, _ = epsilon_from_rdp(np.arange(1, 20_000)[:, None] * curve, DELTA, DEFAULT_ORDERS)
    return int(np.searchsorted(epsilons, epsilon, side="right"))


def share_right(votes: np.ndarray, truth: np.ndarray, sigma: float, draws: int) -> float:
    """Return the mean share of correct labels over ``draws`` of the noise."""
    noise = SimulationNoise(1)
    return float(np.mean([GNMax(sigma).release(votes, noise).labels == truth for _ in range(draws)]))


def confident(votes: np.ndarray, truth: np.ndarray, epsilon: float, draws: int) -> tuple[float, float, float]:
    """Return the mean numbers of labels paid for by the accounts and by Rényi costs, and the share of right labels.

    Before each label, Confident-GNMax checks the votes.
    """
    aggregator, noise = ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0), SimulationNoise(2)
    cap, check, label = caps_of(epsilon, DELTA), check_charge(1.0, 150.0), label_charge(1.0, 40.0)
    checks = threshold_rdp(votes[:1], 200.0, 150.0, method="data_independent")[0]
    labels = gnmax_rdp(votes[:1], 40.0, method="data_independent")[0]
    counts = []
    for _ in range(draws):
        release = aggregator.release(votes, noise)
        queries, answered = np.arange(1, len(votes) + 1), np.cumsum(release.answered)
        curves = queries[:, None] * checks + answered[:, None] * labels
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            epsilons, _ = epsilon_from_rdp(curves, DELTA, DEFAULT_ORDERS)
        both = [queries * check + answered * label <= cap, epsilons <= epsilon]
        ends = [len(votes) if fits.all() else int(np.argmin(fits)) for fits in both]
        right = release.labels[: ends[0]] == truth[: ends[0]]
        counts.append([*(release.answered[:end].sum() for end in ends), right[release.answered[: ends[0]]].mean()])
    by_accounts, by_renyi, share = np.mean(counts, axis=0)
    return float(by_accounts), float(by_renyi), float(share)


def labels_individualized(variant: str) -> int:
    """Return labels for 34 % / 43 % / 23 % of 60,000 holders at ε = 1, 2, 3, σ 40, proportional to μ."""
    groups = [PrivacyGroup("HIGH", 1.0, 20_400), PrivacyGroup("AVERAGE", 2.0, 25_800), PrivacyGroup("LOW", 3.0, 13_800)]
    plan = make_plan(groups, variant=variant, teachers=250, aggregator=GNMax(40.0), delta=DELTA, weight_scheme="gdp")
    return min(
        int(caps_of(group.epsilon, DELTA) / plan.aggregator.charge(group.sensitivity).label) for group in plan.groups
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    folder = Path(os.environ.get("IPATE_DATA_DIR", "../shared/data"))
    votes = np.load(folder / "pate_votes" / "mnist_250_teachers.npy", allow_pickle=False).astype(float)
    with gzip.open(folder / "mnist" / "t10k-labels-idx1-ubyte.gz") as file:
        truth = np.frombuffer(file.read(), dtype=np.uint8, offset=8)[: len(votes)]
    print(f"{len(votes)} public points; without noise {np.mean(votes.argmax(axis=1) == truth):.1%} right")
    for epsilon in EPSILONS:
        print(f"ε = {epsilon:g}, μ² = {caps_of(epsilon, DELTA):.5f}")
        print(f"{'σ':>5} {'labels':>7} {'Rényi':>7} {'right':>7} {'right labels':>13}")
        for sigma in SIGMAS:
            count, renyi = labels_afforded(epsilon, sigma), labels_by_renyi(epsilon, sigma)
            queries = min(count, len(votes))
            right = share_right(votes[:queries], truth[:queries], sigma, draws)
            print(f"{sigma:5g} {count:7} {renyi:7} {right:7.1%} {right * queries:13.0f}")
        count, renyi, right = confident(votes[:2500], truth[:2500], epsilon, min(draws, 50))
        print(f"   40 {count:7.0f} {renyi:7.0f} {right:7.1%} {right * count:13.0f}  with the check")
    print("34 % / 43 % / 23 % at ε = 1, 2, 3, σ 40:", end="")
    print(*(f" {variant} {labels_individualized(variant)}" for variant in ("standard", "upsampling", "weighting")))
    assert labels_afforded(1.0, 40.0) == 57


if __name__ == "__main__":
    main()
