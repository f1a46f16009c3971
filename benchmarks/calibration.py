"""Calibration of the models of private gradient steps before and after, on test data that had no part in it.

    IPATE_DATA_DIR=… python -m benchmarks.calibration [adult diabetes mnist cardio] [--epsilon 1 0.25 0.1]
    IPATE_DATA_DIR=… python -m benchmarks.calibration digits mnist adult --network linear|mlp|cnn [--epsilon 3 1]

Prints a table: of steps of everybody, and with a network of steps over samples, as a run takes them by rule. Digits are
scikit-learn's. "cardio" is made up: 50,000 people with eleven measurements, half of them ill.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.sgd.study import Case

SETS = ("adult", "diabetes", "mnist", "cardio")
CHUNK = 50
DELTA, SLACK = 1e-5, 1e-7


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 0.25])
    parser.add_argument("--network", choices=("linear", "mlp", "cnn"))
    options = parser.parse_args()
    print("| data, ε | accuracy | log loss (base rate) | Brier | expected calibration error |")
    print("|---|---|---|---|---|", flush=True)
    for name in options.sets:
        case, records = _case(name)
        for epsilon in options.epsilon:
            if options.network:
                before, after = _of_samples(options.network, epsilon, case, records)
            else:
                before, after = _of_everybody(epsilon, case, records)
            print(_row(f"{name}, {epsilon:g}", case.truth, before, after), flush=True)


def _case(name: str) -> tuple[Case, float]:
    """Records and points of a dataset, and how many records its holders are assumed to have."""
    from benchmarks.sgd.study import Case, case_load
    from learning.mechanisms.steps.calibration import RECORDS
    from learning.mechanisms.steps.choices import Steps
    from learning.mechanisms.steps.records import owned_records

    if name != "cardio":
        return case_load(name, 0, Steps()), RECORDS
    points, classes = _people(60_000)
    fitted = Steps().space(points).fit(points[50_000:55_000])
    x = fitted.transform(points)
    everyone = np.arange(50_000)
    records = owned_records(x[:50_000], classes[:50_000], everyone, everyone)
    public, test = slice(50_000, 55_000), slice(55_000, None)
    case = Case(name, records, x[public], x[test], classes[test], 50_000, fitted, points[public], points[test])
    return case, RECORDS


def _people(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Age, sizes, pressures and habits, scaled to 0 … 1, and who is ill: a boundary that is bent and mostly chance."""
    rng = np.random.default_rng(29)
    x = np.column_stack(
        [rng.beta(3, 3, (number, 6)), rng.integers(0, 3, (number, 2)) / 2, rng.random((number, 3)) < 0.2]
    )
    bent = 5 * (x[:, 0] - 0.5) + 7 * np.maximum(x[:, 1] - 0.45, 0) + 4 * (x[:, 2] - 0.5) * (x[:, 0] > 0.4) + x[:, 6]
    ill = rng.random(number) < 1 / (1 + np.exp(-1.3 * (bent - np.median(bent))))
    return x.astype(np.float32), ill.astype(np.int64)


def _of_everybody(epsilon: float, case: Case, records: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the test points before and after."""
    from scipy.special import softmax

    from accounting.privacy import IndividualAccounts
    from benchmarks.sgd.study import caps_draw
    from common.noise import SimulationNoise
    from learning.mechanisms.levels import Level
    from learning.mechanisms.steps.calibration import descent_calibration
    from learning.mechanisms.steps.choices import Steps
    from learning.mechanisms.steps.descent import Descent
    from learning.mechanisms.steps.linear import release_sums, step_contributions
    from learning.mechanisms.steps.planner import plan_steps
    from learning.mechanisms.steps.records import INTERCEPT

    caps = caps_draw(epsilon, len(case.records))
    classes = int(case.truth.max()) + 1
    level = Level("ALL", float(caps[0]), float(case.people))
    plan = plan_steps([level], dimensions=case.public.shape[1], n_classes=classes, share=1.0, steps=Steps())
    state, accounts, noise, found = (
        Descent.begin(plan, case.public, classes),
        IndividualAccounts(caps),
        SimulationNoise(0),
        [],
    )
    while not state.finished:
        sums, _ = step_contributions(
            case.records, state.weights, clip_norm=state.clip_norm, accounts=accounts, sigma=plan.sigma
        )
        found.append((state, release_sums(sums, plan.sigma, noise)))
        state = state.after(found[-1][1])
    fit = descent_calibration(found, state, case.public, records=records)
    probabilities = softmax(case.test.astype(float) @ state.learned[:-1] + INTERCEPT * state.learned[-1], axis=1)
    return probabilities, fit.applied(probabilities)


def _of_samples(network: str, epsilon: float, case: Case, records: float) -> tuple[np.ndarray, np.ndarray]:
    """The same of a network of steps over samples."""
    from dataclasses import replace

    from accounting.caps import caps_of
    from common.noise import SimulationNoise
    from learning.mechanisms.sampled_steps.network_states import network_model, steps_begin, weights_number
    from learning.mechanisms.sampled_steps.planner import plan_sampled, usual_parameters
    from learning.mechanisms.sampled_steps.question import SampledQuestion
    from learning.mechanisms.sampled_steps.released_gradients import network_calibration
    from learning.mechanisms.sampled_steps.training import SimulationSampling

    classes, usual = int(case.truth.max()) + 1, usual_parameters(network, case.people)
    fitted = None if network == "cnn" else case.fitted
    shape = case.points.shape[1:] if fitted is None else (fitted.dimensions,)
    length = float(np.sqrt((case.public.astype(np.float64) ** 2).sum(axis=1).mean()))
    caps = np.array([float(caps_of(epsilon, DELTA - SLACK))])
    plan = plan_sampled(
        "sample",
        caps,
        np.array([case.people]),
        share=1.0,
        slack=SLACK,
        steps=usual.steps,
        rate=usual.rate,
        clip_norm=usual.clip_norm,
        weights=weights_number(network, shape, classes),
    )
    question = SampledQuestion(
        plan,
        network,
        shape,
        1.0 if fitted is None else 1 / length,
        classes,
        fitted,
        usual.step_size,
        usual.momentum,
        steps_begin(network, shape, classes, 0),
        caps,
    )
    holders = case.records if fitted is not None else replace(case.records, x=case.mine.astype(np.float32))
    noise, sampling, states = SimulationNoise(0), SimulationSampling(0), [question.begin]
    everybody = np.zeros(len(holders), np.int64)
    while states[-1].step < usual.steps:
        steps = min(CHUNK, usual.steps - states[-1].step)
        states.append(question.advanced(states[-1], holders, everybody, steps=steps, noise=noise, sampling=sampling))
    fit = network_calibration(question, states, case.points, records=records)
    probabilities = network_model(question, states[-1]).predict_proba(case.test_points)
    return probabilities, fit.applied(probabilities)


def _row(name: str, truth: np.ndarray, before: np.ndarray, after: np.ndarray) -> str:
    from learning.measures import base_loss, brier, calibration, losses

    cells = []
    for p in (before, after):
        error, right, loss = calibration(p, truth)[0].value, (p.argmax(axis=1) == truth).mean(), losses(p, truth).mean()
        cells.append((f"{100 * right:.1f} %", f"{loss:.3f}", f"{brier(p, truth).value:.3f}", f"{error:.3f}"))
    pairs = [" → ".join(pair) for pair in zip(*cells, strict=True)]
    pairs[1] += f" ({base_loss(truth, before.shape[1]):.3f})"
    return f"| {name} | " + " | ".join(pairs) + " |"


if __name__ == "__main__":
    main()
