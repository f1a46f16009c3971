"""Individualized DP-SGD over Poisson samples: accuracy on MNIST, and a step beside Opacus.

    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled mnist [--steps 9375] [--seeds 1 2 3] [--step-size 0.6]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled tables [--steps 1000] [--step-size 0.5] [--momentum 0.9]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled speed

`mnist` is Tables 2 and 3 of Boenisch et al. 2023: ε = 1, 2, 3 at δ = 1e-5, 512 of 60,000 holders in a step, clipping
norm 0.2, no momentum. Their parameters are the defaults; whatever is trained with fewer steps is kept with their number
and is no reproduction. Promises are kept as the privacy loss distribution bounds the run. Every run is kept in
benchmarks/results/sgd_sampled.json as soon as it ends, and is not repeated.

`tables` is Adult and Diabetes (by patient) at ε = 1, 2, 3 and at ε = 1 for all, 512 holders in a step, clipping norm
0.5, a linear model and a small network on standardised columns; accuracy and area under the curve.

`speed` needs Opacus, which is no requirement of the project, and runs each contender in a process of its own.
"""

import argparse
import json
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from accounting.caps import caps_of
from accounting.privacy import gdp_mu
from benchmarks.neighbours.study import data_load
from common.noise import SimulationNoise, SystemNoise
from training.formats import catalogue_load
from training.methods.sgd.baselines import group_after_group, standard, without_strictest
from training.methods.sgd.calibration import epsilon_cost, sample_rates, scale_norms
from training.methods.sgd.contributions import Gradients
from training.methods.sgd.mechanism import Phases, SampledMechanism
from training.methods.sgd.networks import NetworkModel, network_create, with_weights
from training.methods.sgd.records import OwnedRecords, owned_records
from training.methods.sgd.sampled import (
    SampledSteps,
    SimulationSampling,
    SystemSampling,
    run_chunk,
)
from training.methods.sgd.sampled_planner import plan_sampled

RESULTS = Path(__file__).resolve().parent / "results" / "sgd_sampled.json"
EPSILONS, DELTA, SHAPE, CLASSES = (1.0, 2.0, 3.0), 1e-5, (28, 28), 10
SPLITS = {"34/43/23": (0.34, 0.43, 0.23), "54/37/9": (0.54, 0.37, 0.09)}
SLACK = 1e-7
HOLDERS, BATCH, CLIP_NORM = 60_000, 512, 0.2
PUBLISHED = {  # per cent
    "standard": {"34/43/23": 96.75},
    "sample": {"34/43/23": 97.81, "54/37/9": 97.60},
    "scale": {"34/43/23": 97.78, "54/37/9": 97.54},
}


def phases_of(variant: str, shares: tuple[float, ...], steps: int) -> Phases:
    rate = BATCH / HOLDERS
    run: dict[str, Any] = {"delta": DELTA, "steps": steps, "rate": rate}
    if variant == "sample":
        sigma, rates = sample_rates(EPSILONS, shares, **run)
        norms = np.full(len(shares), CLIP_NORM)
        return ((SampledMechanism(rates, norms, sigma, CLIP_NORM, BATCH), steps),)
    if variant == "scale":
        sigma, norms = scale_norms(EPSILONS, shares, **run, clip_norm=CLIP_NORM)
        rates = np.full(len(shares), rate)
        return ((SampledMechanism(rates, norms, sigma, CLIP_NORM, BATCH), steps),)
    baseline = {"standard": standard, "without strictest": without_strictest, "group after group": group_after_group}
    run = {"cost": partial(epsilon_cost, delta=DELTA), "steps": steps, "rate": rate, "clip_norm": CLIP_NORM}
    return baseline[variant](gdp_mu(EPSILONS, DELTA), HOLDERS * np.array(shares), **run)


def mnist_run(data: Any, variant: str, split: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row: who learned how, and the share of right test points in per cent."""
    shares, began = SPLITS[split], time.process_time()
    group = np.random.default_rng(seed).permutation(
        np.repeat(np.arange(3), np.rint(HOLDERS * np.array(shares)).astype(int))
    )
    network = network_create("cnn", SHAPE, CLASSES, seed)
    state, gradients = SampledSteps.start(network), Gradients(network, SHAPE)
    for mechanism, steps in phases_of(variant, shares, options.steps):
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
    right = np.mean(model.predict(data.x) == data.y)
    seconds = (time.process_time() - began) / options.steps
    return {"right": round(100 * float(right), 2), "cpu_seconds_per_step": round(seconds, 3)}


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
    rows = kept.setdefault("mnist", [])
    wanted = [(variant, split) for split in SPLITS for variant in ("standard", "sample", "scale")]
    wanted += [("without strictest", "34/43/23"), ("group after group", "34/43/23")]
    wanted.remove(("standard", "54/37/9"))  # the same run as on the other split
    for seed in options.seeds:
        for variant, split in wanted:
            run = {"variant": variant, "split": split, "steps": options.steps, "seed": seed}
            run |= {"step_size": options.step_size, "momentum": options.momentum, "reduced": options.steps < 9375}
            if any(run.items() <= row.items() for row in rows):
                continue
            row = run | mnist_run(data, variant, split, seed, options)
            row["published"] = PUBLISHED.get(variant, {}).get(split)
            rows.append(row)
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
            print(row, flush=True)


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
    shares = SPLITS["34/43/23"] if len(epsilons) == 3 else (1.0,)
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
    """Seconds of a step and the memory that it takes, 512 of 60,000 holders, 26,010 weights."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    context = multiprocessing.get_context("spawn")
    rows = []
    for contender in (ours, opacus):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=measured, args=(contender, options.repeats, sending))
        process.start()
        sending.close()
        rows.append({"contender": contender.__name__, **receiving.recv()})
        process.join()
        print(rows[-1], flush=True)
    kept["speed"] = rows
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def measured(contender: Any, repeats: int, sending: Any) -> None:
    torch.set_num_threads(1)
    data = Mnist()
    one_step = contender(data)
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


def ours(data: Mnist) -> Any:
    network = network_create("cnn", SHAPE, CLASSES)
    gradients, start = Gradients(network, SHAPE), SampledSteps.start(network)
    mechanism = SampledMechanism(np.array([BATCH / HOLDERS]), np.array([CLIP_NORM]), 3.43, CLIP_NORM, BATCH)
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


def opacus(data: Mnist) -> Any:
    from opacus import PrivacyEngine

    network = network_create("cnn", SHAPE, CLASSES)
    images = torch.utils.data.TensorDataset(torch.from_numpy(data.holders.x), torch.from_numpy(data.holders.y))
    network, optimiser, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.6),
        data_loader=torch.utils.data.DataLoader(images, batch_size=BATCH),
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
    parser.add_argument("part", choices=["mnist", "tables", "speed"])
    parser.add_argument("--steps", type=int, default=9375)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--step-size", type=float, default=0.6)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    {"mnist": mnist, "tables": tables, "speed": speed}[options.part](options)


if __name__ == "__main__":
    main()
