"""Individualized DP-SGD over Poisson samples: accuracy on MNIST, and a step beside Opacus.

    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled mnist [--steps 9375] [--seeds 1 2 3] [--step-size 0.6]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled small [--steps 1000] [--step-size 2]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled classes [--steps 1000] [--step-size 2]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled tables [--steps 1000] [--step-size 0.5] [--momentum 0.9]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled speed

`mnist` is Tables 2 and 3 of Boenisch et al. 2023: ε = 1, 2, 3 at δ = 1e-5, 512 of 60,000 holders in a step, clipping
norm 0.2, no momentum. Their parameters are the defaults; whatever is trained with fewer steps is kept with their number
and is no reproduction. Promises are kept as the privacy loss distribution bounds the run. Every run is kept in
benchmarks/results/sgd_sampled.json as soon as it ends, and is not repeated.

`small` is the same at ε = 0.3 for all, and at 0.30 and 0.31 for half of the holders each. `classes` gives the holders
of one class another ε than all others, or those of each class their own, and counts right test points by class.
(Groups of a study follow from promises, never from classes.)

`tables` is Adult and Diabetes (by patient) at ε = 1, 2, 3 and at ε = 1 for all, 512 holders in a step, clipping norm
0.5, a linear model and a small network on standardised columns; accuracy and area under the curve.

`speed` needs Opacus, which is no requirement of the project, and runs each contender in a process of its own, for
samples of several sizes.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from accounting.caps import caps_of
from accounting.privacy import gdp_mu
from benchmarks.neighbours.study import data_load
from common.noise import SimulationNoise, SystemNoise
from learning.formats import catalogue_load
from learning.mechanisms.sampled_steps.baselines import group_after_group, standard, without_strictest
from learning.mechanisms.sampled_steps.calibration import epsilon_cost, sample_rates, scale_norms
from learning.mechanisms.sampled_steps.contributions import Gradients
from learning.mechanisms.sampled_steps.mechanism import Phases, SampledMechanism
from learning.mechanisms.sampled_steps.networks import NetworkModel, network_create, with_weights
from learning.mechanisms.sampled_steps.planner import plan_sampled
from learning.mechanisms.sampled_steps.training import (
    SampledSteps,
    SimulationSampling,
    SystemSampling,
    run_chunk,
)
from learning.mechanisms.steps.records import OwnedRecords, owned_records

RESULTS = Path(__file__).resolve().parent / "results" / "sgd_sampled.json"
EPSILONS, DELTA, SHAPE, CLASSES = (1.0, 2.0, 3.0), 1e-5, (28, 28), 10
THIRDS, MOST_STRICT = (0.34, 0.43, 0.23), (0.54, 0.37, 0.09)
#: Of the holders of each digit, from 0 on, in the published code's study of classes (`balance_study_mnist.py`).
BY_CLASS = (0.75, 0.5, 2.0, 2.6, 4.1, 2.1, 2.05, 3.0, 3.1, 6.1)
SLACK = 1e-7
HOLDERS, BATCH, CLIP_NORM, FULL = 60_000, 512, 0.2, 9375
BATCHES = (128, 512, 2_048)


@dataclass(frozen=True)
class Case:
    """epsilons and shares: of the groups; ten of them are the holders of the ten classes.

    of_class: the class whose holders are the last of two groups; None for chance.
    """

    variant: str
    epsilons: tuple[float, ...]
    shares: tuple[float, ...]
    published: float | None = None
    of_class: int | None = None

    def phases(self, sizes: NDArray[np.int64], steps: int) -> Phases:
        run: dict[str, Any] = {"delta": DELTA, "steps": steps, "rate": BATCH / HOLDERS}
        if self.variant == "sample":
            sigma, rates = sample_rates(self.epsilons, sizes, **run)
            norms = np.full(len(sizes), CLIP_NORM)
            return ((SampledMechanism(rates, norms, sigma, CLIP_NORM, BATCH), steps),)
        if self.variant == "scale":
            sigma, norms = scale_norms(self.epsilons, sizes, **run, clip_norm=CLIP_NORM)
            rates = np.full(len(sizes), BATCH / HOLDERS)
            return ((SampledMechanism(rates, norms, sigma, CLIP_NORM, BATCH), steps),)
        baseline = {
            "standard": standard,
            "without strictest": without_strictest,
            "group after group": group_after_group,
        }
        run = {"cost": partial(epsilon_cost, delta=DELTA), "steps": steps, "rate": BATCH / HOLDERS}
        return baseline[self.variant](gdp_mu(self.epsilons, DELTA), sizes, **run, clip_norm=CLIP_NORM)

    def groups(self, labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        if len(self.epsilons) == CLASSES:
            return labels
        if self.of_class is not None:
            return (labels == self.of_class).astype(np.int64)
        sizes = np.rint(HOLDERS * np.array(self.shares)).astype(int)
        return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


CASES = {
    "mnist": (
        Case("standard", EPSILONS, THIRDS, 96.75),
        Case("sample", EPSILONS, THIRDS, 97.81),
        Case("scale", EPSILONS, THIRDS, 97.78),
        Case("sample", EPSILONS, MOST_STRICT, 97.60),
        Case("scale", EPSILONS, MOST_STRICT, 97.54),
        Case("without strictest", EPSILONS, THIRDS),
        Case("group after group", EPSILONS, THIRDS),
    ),
    "small": (Case("standard", (0.3,), (1.0,), 93.29), Case("sample", (0.3, 0.31), (0.5, 0.5))),
    "classes": (
        Case("sample", (1.0, 1.0), (0.9, 0.1), of_class=8),
        Case("sample", (1.0, 3.0), (0.9, 0.1), of_class=8),
        Case("sample", (3.0, 1.0), (0.9, 0.1), of_class=8),
        Case("sample", BY_CLASS, (0.1,) * CLASSES),
        Case("standard", BY_CLASS, (0.1,) * CLASSES),
    ),
}


def mnist_run(data: Any, case: Case, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Right test points in per cent, of all and by class."""
    began = time.process_time()
    group = case.groups(data.holders.y, seed)
    network = network_create("cnn", SHAPE, CLASSES, seed)
    state, gradients = SampledSteps.start(network), Gradients(network, SHAPE)
    for mechanism, steps in case.phases(np.bincount(group), options.steps):
        state = run_chunk(
            state,
            data.holders,
            group,
            gradients=gradients,
            mechanism=mechanism,
            steps=steps,
            step_size=options.step_size,
            momentum=options.momentum,
            noise=SimulationNoise(seed),
            sampling=SimulationSampling(seed),
        )
    model = NetworkModel(with_weights(network, state.weights), CLASSES, SHAPE)
    right = model.predict(data.x) == data.y
    return {
        "right": round(100 * float(right.mean()), 2),
        "by_class": [round(100 * float(right[data.y == one].mean()), 2) for one in range(CLASSES)],
        "cpu_seconds_per_step": round((time.process_time() - began) / options.steps, 3),
    }


class Mnist:
    """60,000 holders of one image each, and the 10,000 test images."""

    def __init__(self) -> None:
        splits = catalogue_load("mnist", os.environ.get("IPATE_DATA_DIR", "../shared/data"))
        numbers = np.arange(len(splits.private))
        self.holders: OwnedRecords = owned_records(splits.private.x, splits.private.y, numbers, numbers)
        self.x = np.concatenate([splits.public.x, splits.test.x])
        self.y = np.concatenate([splits.public.y, splits.test.y])


def mnist(options: argparse.Namespace) -> None:
    data, kept = Mnist(), json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows = kept.setdefault(options.part, [])
    for seed in options.seeds:
        for case in CASES[options.part]:
            run = asdict(case) | {"epsilons": list(case.epsilons), "shares": list(case.shares)}
            run |= {"steps": options.steps, "seed": seed, "step_size": options.step_size}
            run |= {"momentum": options.momentum, "reduced": options.steps < FULL}
            if any(run.items() <= row.items() for row in rows):
                continue
            rows.append(run | mnist_run(data, case, seed, options))
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
            print(rows[-1], flush=True)


def tables(options: argparse.Namespace) -> None:
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows = kept.setdefault("tables", [])
    for seed in options.seeds:
        for name in ("adult", "diabetes"):
            for network in ("linear", "mlp"):
                for variant, epsilons in (("sample", (1.0,)), ("sample", EPSILONS), ("scale", EPSILONS)):
                    run = {"data": name, "network": network, "variant": variant, "epsilons": list(epsilons)}
                    run |= {"steps": options.steps, "seed": seed, "step_size": options.step_size}
                    run |= {"momentum": options.momentum}
                    if any(run.items() <= row.items() for row in rows):
                        continue
                    rows.append(run | table_run(name, network, variant, epsilons, seed, options))
                    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
                    print(rows[-1], flush=True)


def table_run(
    name: str, kind: str, variant: str, epsilons: tuple[float, ...], seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    data, began = data_load(name), time.process_time()
    shares = THIRDS if len(epsilons) == 3 else (1.0,)
    caps = np.array([float(caps_of(epsilon, DELTA - SLACK)) for epsilon in epsilons])
    shape = data.private.shape[1:]
    network = network_create(kind, shape, data.classes, seed)
    plan = plan_sampled(
        variant,
        caps,
        data.holders * np.array(shares),
        share=1.0,
        slack=SLACK,
        steps=options.steps,
        rate=BATCH / data.holders,
        clip_norm=0.5,
        weights=sum(tensor.numel() for tensor in network.parameters()),
    )
    holders = owned_records(data.private, data.private_truth, data.holder, np.arange(data.holders))
    scale = float((data.public.astype(np.float64) ** 2).sum(axis=1).mean() ** -0.5)
    state = run_chunk(
        SampledSteps.start(network),
        holders,
        np.random.default_rng(seed).choice(len(shares), data.holders, p=shares),
        gradients=Gradients(network, shape, scale=scale),
        mechanism=plan.mechanism,
        steps=options.steps,
        step_size=options.step_size,
        momentum=options.momentum,
        noise=SimulationNoise(seed),
        sampling=SimulationSampling(seed),
    )
    model = NetworkModel(with_weights(network, state.weights), data.classes, shape)
    found = model.predict_proba(scale * data.test)
    row = {"right": round(100 * float(np.mean(found.argmax(axis=1) == data.test_truth)), 2)}
    if data.classes == 2:
        row["auc"] = round(float(roc_auc_score(data.test_truth, found[:, 1])), 4)
    return row | {"sigma": round(plan.mechanism.noise_multiplier, 3), "cpu_seconds": round(time.process_time() - began)}


def speed(options: argparse.Namespace) -> None:
    """Seconds of a step and the memory that it takes, 26,010 weights, over the expected size of a sample of 60,000."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    context = multiprocessing.get_context("spawn")
    rows = []
    for batch, contender in itertools.product(BATCHES, (ours, opacus)):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=measured, args=(contender, batch, options.repeats, sending))
        process.start()
        sending.close()
        rows.append({"contender": contender.__name__, "batch": batch, **receiving.recv()})
        process.join()
        print(rows[-1], flush=True)
    kept["speed"] = rows
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def measured(contender: Any, batch: int, repeats: int, sending: Any) -> None:
    torch.set_num_threads(1)
    data = Mnist()
    one_step = contender(data, batch)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # from here on a new peak
    one_step()
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        one_step()
        seconds.append(time.process_time() - began)
    sending.send(
        {
            "median_cpu_seconds": round(float(np.median(seconds)), 4),
            "least_cpu_seconds": round(min(seconds), 4),
            "mebibytes": round((memory("VmHWM") - before) / 1024),
        }
    )


def memory(name: str) -> int:
    """Kibibytes of this process, of the kind that Linux calls so."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def ours(data: Mnist, batch: int) -> Any:
    network = network_create("cnn", SHAPE, CLASSES)
    gradients, start = Gradients(network, SHAPE), SampledSteps.start(network)
    mechanism = SampledMechanism(np.array([batch / HOLDERS]), np.array([CLIP_NORM]), 3.43, CLIP_NORM, batch)
    group = np.zeros(HOLDERS, int)
    return lambda: run_chunk(
        start,
        data.holders,
        group,
        gradients=gradients,
        mechanism=mechanism,
        steps=1,
        step_size=0.6,
        momentum=0.0,
        noise=SystemNoise(),
        sampling=SystemSampling(),
    )


def opacus(data: Mnist, batch: int) -> Any:
    from opacus import PrivacyEngine

    network = network_create("cnn", SHAPE, CLASSES)
    images = torch.utils.data.TensorDataset(torch.from_numpy(data.holders.x), torch.from_numpy(data.holders.y))
    network, optimiser, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.6),
        data_loader=torch.utils.data.DataLoader(images, batch_size=batch),
        noise_multiplier=3.43,
        max_grad_norm=CLIP_NORM,
    )
    batches = iter(loader)

    def one_step() -> None:
        x, y = next(batches)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()

    return one_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*CASES, "tables", "speed"])
    parser.add_argument("--steps", type=int, default=FULL)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--step-size", type=float, default=0.6)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    {"tables": tables, "speed": speed}.get(options.part, mnist)(options)


if __name__ == "__main__":
    main()
