"""Individualized DP-SGD on Poisson samples: accuracy on MNIST, and a step compared with Opacus.

    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled mnist [--steps 9375] [--seeds 1 2 3] [--step-size 0.6]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled cifar10 [--steps 1465] [--step-size 0.7]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled small [--steps 1000] [--step-size 2]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled classes [--steps 9375] [--step-size 0.6]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled photographs [--steps 1465] [--step-size 0.7]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled tables [--steps 1000] [--step-size 0.5] [--momentum 0.9]
    IPATE_DATA_DIR=… python -m benchmarks.sgd_sampled speed
    python -m benchmarks.sgd_sampled printed

`mnist` is Tables 2 and 3 of Boenisch et al. 2023: ε = 1, 2, 3 at δ = 1e-5, 512 of 60,000 holders in a step, clipping
norm 0.2, no momentum. Their parameters are the defaults; runs with fewer steps are stored with the number of steps and
are not reproductions. Promises are kept according to the run's privacy loss distribution. Every run is stored in
benchmarks/results/sgd_sampled.json as soon as it ends, and is not repeated.

`cifar10` has the parameters of Table 4 and this project's network, which has 37,274 weights (the printed one has
550,570): 1,024 of 45,000 holders in a step, clipping norm 0.4; the test as in `benchmarks.sgd.elsewhere`. `printed`
shows the processor time for gradients of the printed one.

`small` is the same at ε = 0.3 for all, and at 0.30 and 0.31 for one half of the holders each. `classes` gives the
holders of one class a different ε, or the holders of each class their own, and counts right test points by class.
(Groups of a study are based on promises, never on classes.) `photographs` is Table 8: the same for each class of
CIFAR-10, at ε = 3 or 1 while all other classes have ε = 2.

`tables` is Adult and Diabetes (by patient) at ε = 1, 2, 3 and at ε = 1 for all, 512 holders in a step, clipping norm
0.5, a linear model and a small network on standardised columns; accuracy and area under the curve.

`speed` needs Opacus, which is not a requirement of the project, and runs each contender in a separate process, for
samples of several sizes.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.func import functional_call, grad, vmap

from accounting.caps import caps_of
from accounting.privacy import gdp_mu, sampled_gaussian_epsilon
from benchmarks.cells import Cell, keep, kept, missing
from benchmarks.neighbours.study import data_load
from benchmarks.sgd.elsewhere import cifar10_load
from common.noise import SimulationNoise, SystemNoise
from learning.formats import catalogue_load
from learning.mechanisms.sampled_steps.contributions import Gradients
from learning.mechanisms.sampled_steps.networks import NetworkModel, network_create, with_weights
from learning.mechanisms.sampled_steps.rates import Phases, SampledMechanism, epsilon_cost, sample_rates, scale_norms
from learning.mechanisms.sampled_steps.run_plan import group_after_group, plan_sampled, standard, without_strictest
from learning.mechanisms.sampled_steps.training import SampledSteps, SimulationSampling, SystemSampling, run_chunk
from learning.mechanisms.steps.linear import OwnedRecords, owned_records

RESULTS = Path(__file__).resolve().parent / "results" / "sgd_sampled.json"
EPSILONS, DELTA, SHAPE, CLASSES = (1.0, 2.0, 3.0), 1e-5, (28, 28), 10
THIRDS, MOST_STRICT = (0.34, 0.43, 0.23), (0.54, 0.37, 0.09)
#: ε of the holders of each digit, from 0 on, in the published code's study of classes (`balance_study_mnist.py`).
BY_CLASS = (0.75, 0.5, 2.0, 2.6, 4.1, 2.1, 2.05, 3.0, 3.1, 6.1)
SLACK = 1e-7
HOLDERS, BATCH, CLIP_NORM, FULL = 60_000, 512, 0.2, 9375


@dataclass(frozen=True)
class Setup:
    """Parameters of a data set, as printed in Table 4; scale: of the network's input, see `Gradients`."""

    shape: tuple[int, ...]
    holders: int
    batch: int
    clip_norm: float
    steps: int
    step_size: float
    scale: float = 1.0


MNIST = Setup(SHAPE, HOLDERS, BATCH, CLIP_NORM, FULL, 0.6)
CIFAR10 = Setup((32, 32, 3), 45_000, 1024, 0.4, 1465, 0.7, scale=2.0)
SETUPS = {"cifar10": CIFAR10, "photographs": CIFAR10}
"""By the part of this benchmark; all others use MNIST's."""
#: Noise multiplier of groups that are trained one after the other (Appendix E.2).
ONE_BY_ONE = 2.5
BATCHES = (128, 512, 2_048)
AT_A_TIME = 32


@dataclass(frozen=True)
class Case:
    """A case. epsilons, shares: ε and share of each group.

    If there are ten groups, each consists of the holders of one class.
    of_class: the class whose holders are the last of two groups; None for random groups.
    """

    variant: str
    epsilons: tuple[float, ...]
    shares: tuple[float, ...]
    published: float | None = None
    of_class: int | None = None

    def phases(self, sizes: NDArray[np.int64], steps: int, setup: Setup = MNIST) -> Phases:
        batch, norm, rate = setup.batch, setup.clip_norm, setup.batch / setup.holders
        run: dict[str, Any] = {"delta": DELTA, "steps": steps, "rate": rate}
        if self.variant == "sample":
            sigma, rates = sample_rates(self.epsilons, sizes, **run)
            norms = np.full(len(sizes), norm)
            return ((SampledMechanism(rates, norms, sigma, norm, batch), steps),)
        if self.variant == "scale":
            sigma, norms = scale_norms(self.epsilons, sizes, **run, clip_norm=norm)
            rates = np.full(len(sizes), rate)
            return ((SampledMechanism(rates, norms, sigma, norm, batch), steps),)
        if self.variant == "group after group" and steps == setup.steps:
            return tuple(self._alone(group, size) for group, size in enumerate(sizes.tolist()))
        baseline = {
            "standard": standard,
            "without strictest": without_strictest,
            "group after group": group_after_group,
        }
        run = {"cost": partial(epsilon_cost, delta=DELTA), "steps": steps, "rate": rate}
        return baseline[self.variant](gdp_mu(self.epsilons, DELTA), sizes, **run, clip_norm=norm)

    def _alone(self, group: int, size: int) -> tuple[SampledMechanism, int]:
        """Return the mechanism for a single group, and the number of steps its promise allows at the printed noise."""
        rate, promised = BATCH / size, self.epsilons[group]
        steps = bisect_right(range(1, FULL), promised, key=partial(_spent, rate, ONE_BY_ONE))
        rates = np.where(np.arange(len(self.epsilons)) == group, rate, 0.0)
        norms = np.full(len(rates), CLIP_NORM)
        return SampledMechanism(rates, norms, ONE_BY_ONE, CLIP_NORM, BATCH), steps

    def groups(self, labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        if len(self.epsilons) == CLASSES:
            return labels
        if self.of_class is not None:
            return (labels == self.of_class).astype(np.int64)
        sizes = np.rint(len(labels) * np.array(self.shares)).astype(int)
        return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


def _spent(rate: float, sigma: float, steps: int) -> float:
    return sampled_gaussian_epsilon(rate, sigma, steps, DELTA)


def _one_class(*epsilons: tuple[float, float]) -> tuple[Case, ...]:
    """Return cases for each class in turn. A pair contains the ε of all other holders and the ε of the class."""
    return tuple(
        Case("sample", pair, (0.9, 0.1), of_class=one) for one, pair in itertools.product(range(CLASSES), epsilons)
    )


CASES = {
    "mnist": (
        Case("standard", EPSILONS, THIRDS, 96.75),
        Case("sample", EPSILONS, THIRDS, 97.81),
        Case("scale", EPSILONS, THIRDS, 97.78),
        Case("sample", EPSILONS, MOST_STRICT, 97.60),
        Case("scale", EPSILONS, MOST_STRICT, 97.54),
        Case("without strictest", EPSILONS, THIRDS, 97.60),
        Case("group after group", EPSILONS, THIRDS, 97.40),
        Case("group after group", EPSILONS, MOST_STRICT, 97.30),
        Case("without strictest", EPSILONS, MOST_STRICT, 97.10),
    ),
    "cifar10": (
        Case("standard", EPSILONS, THIRDS, 52.77),
        Case("sample", EPSILONS, THIRDS, 54.89),
        Case("scale", EPSILONS, THIRDS, 54.92),
    ),
    "small": (Case("standard", (0.3,), (1.0,), 93.29), Case("sample", (0.3, 0.31), (0.5, 0.5))),
    "classes": (
        Case("sample", BY_CLASS, (0.1,) * CLASSES),
        Case("scale", BY_CLASS, (0.1,) * CLASSES),
        Case("standard", (3.0,), (1.0,)),
        Case("sample", (1.0, 1.0), (0.9, 0.1), of_class=8),
        *_one_class((1.0, 3.0), (3.0, 1.0)),
    ),
    "photographs": (Case("standard", (2.0,), (1.0,)), *_one_class((2.0, 3.0), (2.0, 1.0))),
}


def images_run(data: Any, setup: Setup, case: Case, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the right test points in per cent, in total and by class."""
    began = time.process_time()
    group = case.groups(data.holders.y, seed)
    network = network_create("cnn", setup.shape, CLASSES, seed)
    state, gradients = SampledSteps.start(network), Gradients(network, setup.shape, scale=setup.scale)
    noise, sampling = SimulationNoise(seed), SimulationSampling(seed)  # phases continue with the same random streams
    for mechanism, steps in case.phases(np.bincount(group), options.steps, setup):
        state = run_chunk(
            state,
            data.holders,
            group,
            gradients=gradients,
            mechanism=mechanism,
            steps=steps,
            step_size=options.step_size,
            momentum=options.momentum,
            noise=noise,
            sampling=sampling,
        )
    model = NetworkModel(with_weights(network, state.weights), CLASSES, setup.shape, scale=setup.scale)
    right = model.predict(data.x) == data.y
    return {
        "right": round(100 * float(right.mean()), 2),
        "by_class": [round(100 * float(right[data.y == one].mean()), 2) for one in range(CLASSES)],
        "cpu_seconds_per_step": round((time.process_time() - began) / state.step, 3),
        "steps_done": state.step,
    }


class Mnist:
    """60,000 holders with one image each, and the 10,000 test images."""

    def __init__(self) -> None:
        splits = catalogue_load("mnist", os.environ.get("IPATE_DATA_DIR", "../shared/data"))
        numbers = np.arange(len(splits.private))
        self.holders: OwnedRecords = owned_records(splits.private.x, splits.private.y, numbers, numbers)
        self.x = np.concatenate([splits.public.x, splits.test.x])
        self.y = np.concatenate([splits.public.y, splits.test.y])


class Photographs:
    """45,000 holders with one CIFAR-10 image each, and 6,000 other images; pixels from -1 to 1."""

    def __init__(self) -> None:
        splits = cifar10_load(Path(os.environ.get("IPATE_DATA_DIR", "../shared/data")))
        x, y = (np.concatenate([getattr(part, of) for part in (splits.private, splits.public)]) for of in ("x", "y"))
        numbers = np.arange(len(x))
        self.holders: OwnedRecords = owned_records(2 * x - 1, y, numbers, numbers)
        self.x, self.y = 2 * splits.test.x - 1, splits.test.y


def images(options: argparse.Namespace) -> None:
    setup = SETUPS.get(options.part, MNIST)
    data = Mnist() if setup is MNIST else Photographs()
    cells: list[Cell] = []
    for seed in options.seeds:
        for case in CASES[options.part]:
            run = asdict(case) | {"epsilons": list(case.epsilons), "shares": list(case.shares)}
            run |= chosen(seed, options) | {"reduced": options.steps < setup.steps}
            cells.append((run, partial(images_run, data, setup, case, seed, options)))
    measure(options.part, cells)


def tables(options: argparse.Namespace) -> None:
    cells: list[Cell] = []
    for seed in options.seeds:
        for name in ("adult", "diabetes"):
            for network in ("linear", "mlp"):
                for variant, epsilons in (("sample", (1.0,)), ("sample", EPSILONS), ("scale", EPSILONS)):
                    run = {"data": name, "network": network, "variant": variant, "epsilons": list(epsilons)}
                    run |= chosen(seed, options)
                    cells.append((run, partial(table_run, name, network, variant, epsilons, seed, options)))
    measure("tables", cells)


def chosen(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the choices of a run that identify its row."""
    return {"steps": options.steps, "seed": seed, "step_size": options.step_size, "momentum": options.momentum}


def measure(part: str, cells: list[Cell]) -> None:
    """Measure missing rows, and store each row as soon as it is measured."""
    rows = kept(RESULTS).get(part, [])
    for row in missing(rows, cells):
        rows.append(row)
        keep(RESULTS, part, rows)
        print(row, flush=True)


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
    """Print seconds and memory of a step for 26,010 weights, by the expected size of a sample from 60,000 holders."""
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


def printed(options: argparse.Namespace) -> None:
    """Print the processor time for each image's own gradient in the paper's network for CIFAR-10."""
    torch.set_num_threads(1)
    layers: list[nn.Module] = []
    channels = 3
    for filters in (32, 64, 128):
        for _ in range(2):
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.Tanh()]
            channels = filters
        layers.append(nn.MaxPool2d(2))
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * channels, 128), nn.Tanh(), nn.Linear(128, CLASSES))
    weights = {name: tensor.detach() for name, tensor in network.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(network, weights, (image[None],)), label[None])

    of_each, images = vmap(grad(loss), in_dims=(None, 0, 0)), torch.rand(AT_A_TIME, 3, 32, 32)
    labels, seconds = torch.zeros(AT_A_TIME, dtype=torch.int64), []
    for _ in range(options.repeats + 1):
        began = time.process_time()
        of_each(weights, images, labels)
        seconds.append((time.process_time() - began) / AT_A_TIME)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept["printed"] = {
        "weights": sum(tensor.numel() for tensor in weights.values()),
        "median_cpu_seconds_of_an_image": round(float(np.median(seconds[1:])), 5),
        "least_cpu_seconds_of_an_image": round(min(seconds[1:]), 5),
    }
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    print(kept["printed"])


def measured(contender: Any, batch: int, repeats: int, sending: Any) -> None:
    torch.set_num_threads(1)
    data = Mnist()
    one_step = contender(data, batch)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
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
    """Return this process's memory of the kind ``name`` (as Linux calls it), in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def ours(data: Mnist, batch: int) -> Any:
    mechanism = SampledMechanism(np.array([batch / HOLDERS]), np.array([CLIP_NORM]), 3.43, CLIP_NORM, batch)
    return one_step(data.holders, network_create("cnn", SHAPE, CLASSES), mechanism)


def one_step(holders: OwnedRecords, network: Any, mechanism: SampledMechanism) -> Callable[[], SampledSteps]:
    """Return a function that takes a first step of ``network`` with one record per holder, all with one promise."""
    return partial(
        run_chunk,
        SampledSteps.start(network),
        holders,
        np.zeros(len(holders.y), int),
        gradients=Gradients(network, SHAPE),
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
    parser.add_argument("part", choices=[*CASES, "tables", "speed", "printed"])
    parser.add_argument("--steps", type=int, help="default: as printed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--step-size", type=float, help="default: as printed")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    setup = SETUPS.get(options.part, MNIST)
    options.steps, options.step_size = options.steps or setup.steps, options.step_size or setup.step_size
    {"tables": tables, "speed": speed, "printed": printed}.get(options.part, images)(options)


if __name__ == "__main__":
    main()
