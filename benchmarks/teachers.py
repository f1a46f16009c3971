"""Accuracy of students that learn from noisy counts of teachers' votes, with the product's defaults.

    python -m benchmarks.teachers digits
    python -m benchmarks.teachers mnist [--splits 1 2]

The public and test points of each split are drawn again from all points that are not private, as in
`benchmarks.students`. The teachers are trained once per split, and vote for every set of promises.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from accounting.caps import caps_of
from benchmarks.neighbours.study import DELTAS, SHARES
from benchmarks.sgd.study import splits_load
from benchmarks.students.study import split_order
from common.noise import SimulationNoise
from learning.learners import suggested_learner
from learning.mechanisms.pate import NoisyCounts, PrivacyGroup, assign_keyed, count_votes, make_plan, teacher_seed
from learning.mechanisms.pate.teachers import PublicGraph, teacher_classes
from learning.representations import default_representation
from learning.students import counted, smooth, student_learn, suggested_student

PROMISES = {"1": (1.0, 1.0, 1.0), "1, 2, 3": (1.0, 2.0, 3.0)}
"""ε of the holders of each level, whose shares are 34, 43 and 23 %."""
TEACHERS = {"digits": 100, "mnist": 250}
SHARE = 0.95
_KEY = b"benchmark"


def votes_of(name: str, split: int, teachers: int) -> None:
    """Print the results of a split for each set of promises."""
    splits, clock = splits_load(name), time.process_time()
    x, y = (np.concatenate([getattr(splits.public, part), getattr(splits.test, part)]) for part in ("x", "y"))
    order = split_order(name, len(x), split)
    public, test = order[: len(splits.public)], order[len(splits.public) :]
    classes, holders, points = len(splits.schema.classes), len(splits.private), x[public]
    fitted = default_representation(x.shape[1:]).fit(points)
    graph = PublicGraph.of(fitted, fitted.transform(points))
    learner = suggested_learner("image")
    said: dict[tuple[int, ...], np.ndarray] = {}
    for label, promises in PROMISES.items():
        places = np.random.default_rng(0).choice(len(SHARES), holders, p=SHARES)
        groups = [
            PrivacyGroup(str(place), epsilon, int((places == place).sum())) for place, epsilon in enumerate(promises)
        ]
        how = {"variant": "weighting", "delta": DELTAS[name], "weight_scheme": "gdp"}
        plan = make_plan(groups, teachers=teachers, aggregator=NoisyCounts(sigma=1.0), **how)
        sizes = tuple(group.teachers for group in plan.groups)
        if sizes not in said:
            position, teacher = assign_keyed(plan, np.arange(holders), places, _KEY)
            said[sizes] = np.array(
                [
                    teacher_classes(
                        learner,
                        splits.private.x[position[teacher == number]],
                        splits.private.y[position[teacher == number]],
                        points,
                        graph,
                        classes=classes,
                        seed=teacher_seed(_KEY, number),
                    )
                    for number in range(plan.teachers)
                ]
            )
        votes = count_votes(said[sizes], classes, plan.teacher_weights())
        charges = [2 * group.weight**2 / (SHARE * float(caps_of(group.epsilon, DELTAS[name]))) for group in plan.groups]
        sigma = float(np.sqrt(len(points) * max(charges)))
        release = NoisyCounts(sigma=sigma).release(votes, SimulationNoise(split))
        counts = counted(np.arange(len(points)), release.counts, sigma)
        smoothed = smooth(graph.coordinates, counts, float(plan.teacher_weights().sum()))
        model = student_learn(suggested_student("image"), points, smoothed, seed=0)
        right = float((model.predict(x[test]) == y[test]).mean())
        most = float(np.bincount(y[test]).max() / len(test))
        each = float((said[sizes] == y[public]).mean())
        print(
            f"{name}, split {split}, ε {label}: {plan.teachers} teachers, {each:.1%} right each; "
            f"σ {sigma:.0f}; labels {(smoothed.labels == y[public]).mean():.1%}; student {right:.2%} "
            f"(most frequent class {most:.1%}); {time.process_time() - clock:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(TEACHERS))
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--teachers", type=int)
    chosen = parser.parse_args()
    for number in chosen.splits:
        votes_of(chosen.name, number, chosen.teachers or TEACHERS[chosen.name])
