"""Boosting on synthetic rows, judged on test records, compared with private records and no promise.

With ``--reuse``, the rows serve as public points: drawing them uses part of every cap, and steps or votes use the rest.
With ``--steps``, one run does both, as it does if there are no public points.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accounting.caps import caps_of
from benchmarks.neighbours.study import Data
from benchmarks.sgd.study import DELTA, SHARES, case_of, splits_load
from benchmarks.sgd.study import hold as take_steps
from benchmarks.students.study import hold as ask_votes
from common.noise import SimulationNoise
from learning.formats import TabularSchema
from learning.mechanisms.protocol import Arrays, People, PlannedLevel, Records
from learning.mechanisms.steps.steps_plan import ROWS, Steps
from learning.mechanisms.synthesis.rounds import (
    ROUNDS,
    Description,
    Marginals,
    Synthesis,
    SyntheticRows,
    plan_synthesis,
    rows_draw,
)
from learning.representations import default_representation
from learning.students import labelled, student_create, student_learn

Numbers = NDArray[np.floating]
PROMISES: tuple[float | tuple[float, ...], ...] = ((1.0, 2.0, 3.0), 1.0, 0.25)
WHOLE = slice(0, 1)


def draw(
    schema: TabularSchema,
    records: Records,
    promise: float | tuple[float, ...],
    seed: int,
    *,
    share: float = 1.0,
    rows: int | None = None,
) -> SyntheticRows[Description]:
    """Return the rows that a run with this share would draw."""
    several = promise if isinstance(promise, tuple) else (promise,)
    shares = SHARES if len(several) > 1 else (1.0,)
    level_of = np.random.default_rng(seed).choice(len(several), int(records.owner.max()) + 1, p=shares)
    return rows_draw(count(schema, records, caps_of(several, DELTA)[level_of], seed, share=share, rows=rows))


def count(
    schema: TabularSchema, records: Records, caps: Numbers, seed: int, *, share: float = 1.0, rows: int | None = None
) -> Marginals:
    """Return the releases of a run for holders with these caps (H,), all of whom own records."""
    holders = len(caps)
    of_levels, numbers = np.unique(caps, return_counts=True)
    levels = [PlannedLevel(str(cap), float(cap), float(number)) for cap, number in zip(of_levels, numbers, strict=True)]
    plan = plan_synthesis(levels, columns=len(schema.features), share=share, rows=rows, bins=Synthesis().bins)
    marginals = Marginals(schema, plan, tuple(of_levels.tolist()))
    spent, noise = np.zeros(holders), SimulationNoise(seed)
    for index in range(ROUNDS):
        question = marginals.question(index)
        people = People(np.arange(holders), caps, caps, spent)
        answers: list[Arrays] = [_answer(question.answer, people, records)]
        spent = spent + answers[0]["charge"]
        marginals = marginals.after(question.release(WHOLE, None, answers, noise).arrays["sums"])
    assert (spent <= share * caps).all(), "an account exceeds its share"
    return marginals


def _answer(answer: Callable[..., Arrays], people: People, records: Records) -> Arrays:
    return answer(WHOLE, None, people, lambda: records, alone=True, draws=None)


def judged(x: Numbers, classes: NDArray[np.integer], test: Numbers, truth: NDArray[np.integer]) -> tuple[float, float]:
    """Return accuracy, and area under the curve of class 1, of the student *boosting* on labelled rows."""
    from sklearn.metrics import roc_auc_score

    learned = labelled(np.arange(len(x)), classes, classes=2)
    model = student_learn(student_create("boosting", {}), x, learned, seed=1)
    probabilities = model.predict_proba(test)[:, 1]
    return float(((probabilities > 0.5) == truth).mean()), float(roc_auc_score(truth, probabilities))


def reuse(name: str, draws: int) -> None:
    """Print the accuracy of steps and votes at ε = 1.

    They use synthetic points, which take a share of the cap, or real public points and the whole cap.
    """
    splits = splits_load(name)
    assert isinstance(splits.schema, TabularSchema)
    private, test, truth = splits.private, splits.test.x, splits.test.y
    owner = np.unique(np.array(private.holders), return_inverse=True)[1]
    records, cap = Records(private.x, private.y, owner), float(caps_of(1.0, DELTA))
    for share in (0.0, 0.1, 0.2, 0.5):
        found = []
        for seed in range(draws):
            points = splits.public.x
            if share:
                points = draw(splits.schema, records, 1.0, seed, share=share, rows=len(points)).x
            caps = np.full(int(owner.max()) + 1, (1 - share) * cap)
            case = case_of(name, private, points, test, truth, Steps())
            stepped = take_steps(case, 1.0, steps=Steps(), seed=seed, caps=caps)
            fitted = default_representation(points.shape[1:]).fit(points)
            coordinates = [fitted.transform(each) for each in (private.x, points, test)]
            mine, public, judging = coordinates
            # The true classes of synthetic points are unknown and not needed.
            unknown = np.zeros(len(points), np.int64)
            data = Data(name, 2, points, unknown, test, truth, mine, private.y, owner, public, judging)
            releases = ask_votes(data, 1.0, caps=caps, seed=seed).releases
            model = student_learn(student_create("boosting", {}), points, releases, seed=1)
            voted = float((model.predict_proba(test).argmax(axis=1) == truth).mean())
            found.append((stepped.accuracy, voted))
        steps, votes = np.mean(found, axis=0)
        print(f"{share:.0%} of the cap for rows: steps {100 * steps:.2f} %, votes {100 * votes:.2f} %", flush=True)


def counted_steps(name: str, draws: int) -> None:
    """Print private steps of runs without public points, which count people first, for several parts of the share."""
    splits = splits_load(name)
    assert isinstance(splits.schema, TabularSchema)
    private, (test, truth) = splits.private, judging(name)
    owner = np.unique(np.array(private.holders), return_inverse=True)[1]
    records = Records(private.x, private.y, owner)
    for epsilon in (1.0, 0.25):
        cap = float(caps_of(epsilon, DELTA))
        for part in (0.05, 0.1, 0.15, 0.25):
            found = []
            for seed in range(draws):
                points = draw(splits.schema, records, epsilon, seed, share=part, rows=ROWS).x
                caps = np.full(int(owner.max()) + 1, (1 - part) * cap)
                case = case_of(name, private, points, test, truth, Steps())
                learned = take_steps(case, epsilon, steps=Steps(), seed=seed, caps=caps)
                found.append((learned.accuracy, learned.auc or 0.0))
            text = f"{_row(np.mean(found, axis=0))} ± {_row(np.std(found, axis=0, ddof=min(1, draws - 1)))}"
            print(f"ε = {epsilon}, {part:.0%} of the share for counts: accuracy, area {text}", flush=True)


def judging(name: str) -> tuple[Numbers, NDArray[np.integer]]:
    """Return test points and their classes; for Adult, including the public points, which are not needed here."""
    splits = splits_load(name)
    parts = (splits.public, splits.test) if name == "adult" else (splits.test,)
    return np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=("adult", "diabetes"))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--steps", action="store_true")
    options = parser.parse_args()
    splits = splits_load(options.data)
    assert isinstance(splits.schema, TabularSchema)
    test, truth = judging(options.data)
    owner = np.unique(np.array(splits.private.holders), return_inverse=True)[1]
    records = Records(splits.private.x, splits.private.y, owner)
    if options.reuse:
        reuse(options.data, options.draws)
        return
    if options.steps:
        counted_steps(options.data, options.draws)
        return
    print(f"real rows, no promise: accuracy, area {_row(judged(records.x, records.classes, test, truth))}", flush=True)
    for promise in PROMISES:
        clock, found, pairs = time.process_time(), [], []
        for seed in range(options.draws):
            rows = draw(splits.schema, records, promise, seed)
            pairs.append(rows.description.pairs)
            found.append(judged(rows.x, rows.classes, test, truth))
        each = (time.process_time() - clock) / options.draws
        means, deviations = np.mean(found, axis=0), np.std(found, axis=0, ddof=min(1, options.draws - 1))
        text = f"{_row(means)} ± {_row(deviations)}; pairs {np.mean(pairs):.3f}; {each:.0f} s"
        print(f"ε = {promise}: accuracy, area {text}", flush=True)


def _row(numbers: tuple[float, float] | Numbers) -> str:
    return f"{100 * numbers[0]:.2f} %, {numbers[1]:.4f}"


if __name__ == "__main__":
    main()
