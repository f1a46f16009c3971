"""Asking teachers in rounds, least certain points first, compared with random points and with all points at once.

    IPATE_DATA_DIR=… python -m benchmarks.active [digits] [mnist]

All three cost people the same: noisy counts of n points with σ in proportion to √n. In rounds, the first quarter of the
questions is about random points. Each further quarter is about the points with the least certain smoothed counts so
far, which are public (certainty is the lead of the likeliest class in standard deviations). Points may be asked about
again. `digits` uses the demo's 92 teachers with ε = 1, 2 and 3, and spends at most half of every cap. `mnist` uses
the published votes of 250 teachers (Papernot et al. 2018) at ε = 1. The smoothed counts predict the classes of other
points, which are not asked about.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
from numpy.typing import NDArray

from accounting.caps import caps_of
from benchmarks.neighbours.study import DELTAS, SHARES
from benchmarks.reproduce.votes import published_counts
from benchmarks.sgd.study import splits_load
from learning.learners import suggested_learner
from learning.mechanisms.pate import NoisyCounts, PrivacyGroup, assign_keyed, count_votes, make_plan, teacher_seed
from learning.mechanisms.pate.teachers import PublicGraph, teacher_classes
from learning.representations import default_representation
from learning.students.smoothing import Smoother

Floats = NDArray[np.float64]
ROUNDS = 4
EIGENVECTORS = {"digits": 100, "mnist": 200}
ASKED = {"digits": (30, 100, 300, 900), "mnist": (100, 300, 1000, 3000)}
DRAWS = {"digits": 30, "mnist": 10}
_KEY = b"benchmark"
_SETTINGS = list(product((0.003, 0.01, 0.03, 0.1), (1.0, 2.0, 3.0), (0.1, 0.2, 0.4)))
_MISFITS = (0.0, 0.05)


def smoothed(
    graph: Smoother, times: NDArray[np.int64], sums: Floats, sigma: float, votes: float
) -> tuple[Floats, Floats]:
    """Return means `(P, C)` and deviations `(P,)` of all counts, as `learning.students.smooth` does.

    Args:
        graph: Graph of all points.
        times: `(P,)` how often each point was asked about.
        sums: `(P, C)` sums of each point's noisy counts.
        sigma: Standard deviation of each answer's noise.
        votes: Total number of votes.
    """
    rows = np.flatnonzero(times)
    classes, vectors = sums.shape[1], graph.vectors
    asked, seen = vectors[rows], sums[rows] / times[rows, None] - votes / classes
    laplacian, mass = np.maximum(1.0 - graph.values, 0.0), (vectors**2).mean(axis=0)
    best: tuple[float, Floats, Floats] = -np.inf, np.empty((0, 0)), np.empty((0, 0))
    for misfit in _MISFITS:
        noise = sigma**2 / times[rows] + (misfit * votes) ** 2
        weighted = asked / noise[:, None]
        gram, projected = asked.T @ weighted, weighted.T @ seen
        constant = (seen**2 / noise[:, None]).sum() / 2 + classes * np.log(noise).sum() / 2
        for floor, power, spread in _SETTINGS:
            shape = (laplacian + floor) ** -power
            prior = (spread * votes) ** 2 * shape / (shape @ mass)
            factor = np.asarray(np.linalg.cholesky(np.diag(1 / prior) + gram), np.float64)
            half = np.linalg.solve(factor, projected)
            determinant = classes * (np.log(np.diag(factor)).sum() + np.log(prior).sum() / 2)
            evidence = float((half**2).sum() / 2 - constant - determinant)
            if evidence > best[0]:
                best = evidence, half, factor
    _, half, factor = best
    mean = vectors @ np.linalg.solve(factor.T, half) + votes / classes
    return mean, np.sqrt((np.linalg.solve(factor, vectors.T) ** 2).sum(axis=0))


def classes_after(
    counts: Floats, graph: Smoother, asked: int, sigma: float, rounds: int, seed: int
) -> NDArray[np.int64]:
    """Return the predicted class of every point after ``asked`` questions about the points of `counts` (A, C)."""
    rng, points = np.random.default_rng(seed), len(graph.vectors)
    times, sums = np.zeros(points, np.int64), np.zeros((points, counts.shape[1]))
    votes = float(counts[0].sum())
    mean, deviation = np.empty((points, 0)), np.ones(points)
    for part in np.array_split(np.arange(asked), rounds):
        if mean.size:
            ordered = np.sort(mean[: len(counts)], axis=1)
            chosen = np.argsort((ordered[:, -1] - ordered[:, -2]) / deviation[: len(counts)])[: len(part)]
        else:
            chosen = np.resize(rng.permutation(len(counts)), len(part))
        np.add.at(times, chosen, 1)
        np.add.at(sums, chosen, counts[chosen] + rng.normal(0, sigma, (len(chosen), counts.shape[1])))
        mean, deviation = smoothed(graph, times, sums, sigma, votes)
    return mean.argmax(axis=1)


def digits_votes() -> tuple[Floats, float, NDArray, NDArray[np.int64]]:
    """Return votes of teachers (300, C), σ² of one question, all points, and the classes of points not asked about."""
    splits, delta, epsilons = splits_load("digits"), DELTAS["digits"], (1.0, 2.0, 3.0)
    holders, points = len(splits.private), splits.public.x
    assert splits.private.y is not None and splits.test.y is not None
    places = np.random.default_rng(0).choice(len(SHARES), holders, p=SHARES)
    groups = [PrivacyGroup(str(place), epsilon, int((places == place).sum())) for place, epsilon in enumerate(epsilons)]
    vote = NoisyCounts(sigma=1.0)
    plan = make_plan(groups, variant="weighting", teachers=92, aggregator=vote, delta=delta, weight_scheme="gdp")
    position, teacher = assign_keyed(plan, np.arange(holders), places, _KEY)
    fitted = default_representation(points.shape[1:]).fit(points)
    graph, classes = PublicGraph.of(fitted, fitted.transform(points)), len(splits.schema.classes)
    said = []
    for number in range(plan.teachers):
        mine = position[teacher == number]
        records = splits.private.x[mine], splits.private.y[mine]
        seed = teacher_seed(_KEY, number)
        said.append(teacher_classes(suggested_learner("image"), *records, points, graph, classes=classes, seed=seed))
    counts = count_votes(np.array(said), classes, plan.teacher_weights())
    charge = max(2 * group.weight**2 / (0.5 * float(caps_of(group.epsilon, delta))) for group in plan.groups)
    return counts, charge, np.concatenate([points, splits.test.x]), splits.test.y


def mnist_votes() -> tuple[Floats, float, NDArray, NDArray[np.int64]]:
    """Return the same values as `digits_votes` for the published votes on 9,000 of 10,000 test images."""
    splits = splits_load("mnist")
    assert splits.test.y is not None
    counts = published_counts("mnist_250_teachers").astype(np.float64)
    x = np.concatenate([splits.public.x, splits.test.x])
    return counts, 2 / float(caps_of(1.0, DELTAS["mnist"])), x, splits.test.y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=sorted(ASKED), default=sorted(ASKED))
    for name in parser.parse_args().names:
        counts, charge, x, truth = digits_votes() if name == "digits" else mnist_votes()
        fitted = default_representation(x.shape[1:]).fit(x[: len(counts)])
        graph = Smoother(fitted.transform(x), EIGENVECTORS[name])
        for asked in ASKED[name]:
            sigma = float(np.sqrt(asked * charge))
            found = {
                rounds: [
                    float((classes_after(counts, graph, asked, sigma, rounds, seed)[len(counts) :] == truth).mean())
                    for seed in range(DRAWS[name])
                ]
                for rounds in (1, ROUNDS)
            }
            gain = np.subtract(found[ROUNDS], found[1])
            print(
                f"{name}: {asked} questions, σ {sigma:.0f}: random {np.mean(found[1]):.1%}, in {ROUNDS} rounds "
                f"{np.mean(found[ROUNDS]):.1%}; difference {100 * gain.mean():+.1f} ± "
                f"{100 * gain.std(ddof=1) / np.sqrt(len(gain)):.1f} points",
                flush=True,
            )


if __name__ == "__main__":
    main()
