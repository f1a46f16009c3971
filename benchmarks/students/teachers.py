"""Method pate without a database: teachers of one group each, their predictions in a file, labels by the accounts."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from accounting.caps import caps_of
from benchmarks.neighbours.study import DELTAS, SHARES
from common.noise import SimulationNoise
from learning.learners import learner_create, learner_parameters
from learning.learners.learner import Learner
from learning.mechanisms.pate import AGGREGATORS, NO_VOTE, Plan, PrivacyGroup, assign_keyed, make_plan, teacher_seed
from learning.mechanisms.pate.votes import count_votes
from learning.students import Releases, labelled

TEACHERS = 250
AGGREGATOR = next(iter(AGGREGATORS))
"""The initial aggregator of a proposal, with its suggested noise and threshold."""
LEARNERS = {
    "mnist": learner_create("cnn"),
    "adult": learner_create("random_forest"),
    "diabetes": learner_create("random_forest", {"balanced": True, "leaf": 5}),
}
_KEY = b"benchmark"


@dataclass(frozen=True, eq=False)
class TrainedStudent:
    """Classes `(teachers, points)` of all points that are not private, and processor seconds for predicting them."""

    predictions: NDArray[np.integer]
    seconds: float


@dataclass(frozen=True, eq=False)
class Answers:
    """Labels released until the first account is used up. points: points put to the vote, with or without an answer."""

    releases: Releases
    points: int


def levels_draw(epsilon: float | Sequence[float], holders: int) -> tuple[list[PrivacyGroup], NDArray[np.int64]]:
    """Return groups with their sizes, and each holder's group, drawn in the same way as caps in `caps_draw`."""
    epsilons = np.atleast_1d(np.asarray(epsilon, np.float64))
    places = np.zeros(holders, np.int64)
    if len(epsilons) > 1:
        places = np.random.default_rng(0).choice(len(epsilons), holders, p=SHARES)
    counts = np.bincount(places, minlength=len(epsilons))
    return [PrivacyGroup(f"{one:g}", float(one), int(n)) for one, n in zip(epsilons, counts, strict=True)], places


def weighted_plan(name: str, epsilon: float | Sequence[float], holders: int) -> tuple[Plan, NDArray[np.int64]]:
    """Return the plan with weights in proportion to μ, and the group of each holder."""
    groups, places = levels_draw(epsilon, holders)
    kind = AGGREGATORS[AGGREGATOR]
    aggregator = kind(**{spec.name: spec.suggested(TEACHERS) for spec in kind.fields()})
    plan = make_plan(
        groups, variant="weighting", teachers=TEACHERS, aggregator=aggregator, delta=DELTAS[name], weight_scheme="gdp"
    )
    return plan, places


def teach(
    name: str,
    plan: Plan,
    places: NDArray[np.int64],
    x: NDArray[np.floating],
    y: NDArray[np.integer],
    holder: NDArray[np.integer],
    points: NDArray[np.floating],
    learner: Learner | None = None,
) -> TrainedStudent:
    """Train the teachers, each on the records of its holders, and let them label all `points`.

    The teachers depend on the groups and not on the public split, so predictions are stored in a file, under
    $IPATE_TEACHERS_DIR or the system's folder for temporary files.
    """
    learner = learner or LEARNERS[name]
    sizes = [group.teachers for group in plan.groups]
    settings = repr((name, learner.name, sorted(learner_parameters(learner).items()), sizes, len(points)))
    folder = Path(os.environ.get("IPATE_TEACHERS_DIR") or tempfile.gettempdir())
    kept = folder / f"teachers-{name}-{hashlib.sha256(settings.encode()).hexdigest()[:12]}.npz"
    if kept.exists():
        with np.load(kept, allow_pickle=False) as arrays:
            return TrainedStudent(arrays["predictions"], float(arrays["seconds"]))
    clock = time.process_time()
    positions, teachers = assign_keyed(plan, np.arange(len(places)), places, _KEY)
    teacher_of = np.empty(len(places), np.int64)
    teacher_of[positions] = teachers
    said = np.full((plan.teachers, len(points)), NO_VOTE, np.int16)
    for teacher in tqdm(range(plan.teachers), desc=f"teachers of {name}"):
        mine = np.flatnonzero(teacher_of[holder] == teacher)
        if len(mine):
            model = learner.fit(x[mine], y[mine], classes=int(y.max()) + 1, seed=teacher_seed(_KEY, teacher))
            said[teacher] = model.predict(points)
    seconds = time.process_time() - clock
    np.savez_compressed(kept, predictions=said, seconds=seconds)
    return TrainedStudent(said, seconds)


def vote(name: str, plan: Plan, predictions: NDArray[np.integer], classes: int, *, seed: int) -> Answers:
    """Put points to the vote in order, until the next answer might cost a group more than its cap.

    An account pays for a check of every point and for every answer; neither depends on the votes.
    """
    votes = count_votes(predictions, classes, plan.teacher_weights())
    release = plan.aggregator.release(votes, SimulationNoise(seed))
    fits = np.ones(len(votes), bool)
    for group in plan.groups:
        charge = plan.aggregator.charge(group.sensitivity)
        paid = np.cumsum(charge.check + charge.label * release.answered)
        at_most = paid + charge.label * ~release.answered
        fits &= at_most <= float(caps_of(group.epsilon, DELTAS[name]))
    queries = len(fits) if fits.all() else int(np.argmin(fits))
    rows = np.flatnonzero(release.answered[:queries])
    return Answers(labelled(rows, release.labels[rows], classes=classes), queries)
