"""Individualized DP-SGD (Boenisch et al. 2023): parameters, and results of `benchmarks.sgd_sampled`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from accounting.privacy import epsilon_from_rdp, gdp_mu, sampled_gaussian_rdp
from benchmarks.reproduce.folders import published
from benchmarks.reproduce.results import Case, Promises, Row
from benchmarks.reproduce.tables import ipate
from learning.mechanisms.sampled_steps.rates import Cost, balanced_norms, epsilon_cost, required_noise, spend_equally

Run = dict[str, Any]
Known = Sequence[float | None] | None
"""A printed number and its spread."""
DELTA, EPSILONS = 1e-5, (1.0, 2.0, 3.0)
HOLDERS = {"MNIST": 60_000, "SVHN": 73_257, "CIFAR-10": 50_000}
BASELINES = {"without strictest": "E.1 without the strictest group", "group after group": "E.2 group after group"}
"""Names in Table 12 for our variants."""
ATTACKS = Path(__file__).resolve().parents[2] / "results" / "attacks.json"
SIGNIFICANT = 0.05


def table5(quick: bool) -> Iterator[Case]:
    """Yield cases for Tables 4 and 5: noise multipliers that spend the promises. Quick: Table 4, ε = 1 for all."""
    setup = published("individualized-dp-sgd")["setup"]
    printed = {f"{data} standard 100": run for data, run in setup["table4"].items()}
    for name, run in (printed if quick else printed | setup["table5_tuned"]).items():
        data, variant, shares = name.split()
        how = variant, [float(share) / 100 for share in shares.split("/")], run, HOLDERS[data]
        yield Case(f"{data}, {variant}, {shares} %", (), partial(_noise, *how))


def _noise(variant: str, shares: list[float], run: Run, holders: int) -> list[Row]:
    steps = run["steps"]
    how = variant, np.array(shares), steps, run["batch"] / holders
    here, accounts = (_multiplier(cost, *how) for cost in (_renyi_cost(steps), epsilon_cost(steps, DELTA)))
    return [Row(f"noise multiplier, {steps:,} steps", run["sigma"], here, accounts=accounts)]


def _multiplier(cost: Cost, variant: str, shares: np.ndarray, steps: int, rate: float) -> float:
    targets = np.asarray(gdp_mu(EPSILONS[: len(shares)], DELTA), np.float64)
    if variant != "scale":  # standard: one group
        return spend_equally(cost, targets, shares, steps=steps, rate=rate)[0]
    own = [required_noise(cost, target, steps=steps, rate=rate) for target in targets.tolist()]
    return balanced_norms(own, shares, 1.0)[0]


def _renyi_cost(steps: int) -> Cost:
    """Return the cost by the papers' accounting, at our orders."""

    def cost(rate: float, sigma: float) -> float:
        epsilon, _ = epsilon_from_rdp(sampled_gaussian_rdp(rate, sigma, steps), DELTA)
        return float(gdp_mu(float(epsilon), DELTA))

    return cost


def table6(quick: bool) -> Iterator[Case]:
    """Yield cases for parameters at ε = 1, 2, 3, computed from those of Table 4. Quick: CIFAR-10, one division."""
    paper = published("individualized-dp-sgd")
    for data, run in paper["setup"]["table4"].items():
        for shares, known in paper["table6_parameters"][data].items():
            if not quick or (data == "CIFAR-10" and shares.startswith("34")):
                yield Case(f"{data}, {shares}", (), partial(_parameters, run, HOLDERS[data], shares, known))


def _parameters(run: Run, holders: int, named: str, known: dict[str, Any]) -> list[Row]:
    """Return the columns of Table 6, by Rényi costs and by the loss distribution."""
    steps, rate = run["steps"], run["batch"] / holders
    shares = np.array([float(share) / 100 for share in named.removesuffix(" %").split("/")])
    targets = np.asarray(gdp_mu(EPSILONS, DELTA), np.float64)

    def computed(cost: Cost) -> list[float]:
        own = [required_noise(cost, target, steps=steps, rate=rate) for target in targets.tolist()]
        scale, norms = balanced_norms(own, shares, run["clip"])
        sample, rates = spend_equally(cost, targets, shares, steps=steps, rate=rate)
        return [*own, scale, *norms, sample, *rates]

    of_groups = [f"{{}} at ε = {epsilon:g}" for epsilon in EPSILONS]
    names = [one.format("noise multiplier") for one in of_groups] + ["*scale*, noise multiplier"]
    names += [one.format("*scale*, clipping norm") for one in of_groups] + ["*sample*, noise multiplier"]
    names += [one.format("*sample*, rate") for one in of_groups]
    printed = [*known["own_sigmas"], known["scale_sigma"], *known["scale_norms"]]
    printed += [known["sample_sigma"], *known["sample_rates"]]
    columns = zip(names, printed, computed(_renyi_cost(steps)), computed(epsilon_cost(steps, DELTA)), strict=True)
    return [Row(name, one, here, accounts=accounts) for name, one, here, accounts in columns]


def table10(quick: bool) -> Iterator[Case]:
    """Yield Figure 2 and Table 10: success of LiRA against people at ε = 10 and at ε = 20.

    The measurements come from `benchmarks.attacks`. There are no verdicts, because the data and models differ from the
    paper's.
    """
    paper = published("individualized-dp-sgd")
    tests = sum(p < SIGNIFICANT for _, p in paper["table10_lira_t_tests"])
    printed = [*(f"{paper['figure2_lira_cifar10'][name]:g}" for name in ("eps 10", "eps 20", "both")), str(tests)]
    names = ("area at ε = 10", "area at ε = 20", "area of both", "models of five whose groups differ (p < 0.05)")
    for run in json.loads(ATTACKS.read_text()).get("groups", []) if ATTACKS.exists() else []:
        found = [*run["areas"], sum(p < SIGNIFICANT for _, p in run["targets"])]
        rows = [
            Row(f"{name}; printed for CIFAR-10: {known}" if run["published"] == "sampled" else name, None, one)
            for name, known, one in zip(names, printed, found, strict=True)
        ]
        rows += [
            Row("area at ε = 20 less area at ε = 10", None, run["gap"]),
            Row("its standard error over the studies", None, run["uncertain"]),
            Row("Student's t of it", None, run["t"]),
        ]
        named = "sample" if run["published"] == "sampled" else "steps over everybody"
        yield Case(f"{named}, digits, {run['shadows']} shadow models", (), partial(_same, rows))


def table11(quick: bool) -> Iterator[Case]:
    """Yield cases for MNIST: students of Individualized PATE, compared in the paper with its own method."""
    printed = published("individualized-dp-sgd")["table11_ipate"]["MNIST"]
    promises, seeds = Promises("mnist", (1.0,)), ipate.SEEDS["mnist"][:1]
    yield Case("everybody at 1, PATE", seeds, partial(_student, promises, "PATE", seeds, *printed["PATE"]), promises)
    for shares in ("34/43/23 %", "54/37/9 %"):
        parts = tuple(int(part) / 100 for part in shares.removesuffix(" %").split("/"))
        promises, known = Promises("mnist", EPSILONS, parts), printed[shares]["weighting"]
        yield Case(f"{shares}, weighting", seeds, partial(_student, promises, "weighting", seeds, *known), promises)


def _student(promises: Promises, variant: str, seeds: Sequence[int], known: float, spread: float) -> list[Row]:
    return [replace(row, spread=spread) for row in ipate.student(promises, variant, seeds, known)]


def table2(quick: bool) -> Iterator[Case]:
    """Yield one case of MNIST for each variant and division into groups."""
    printed = published("individualized-dp-sgd")["table2"]["MNIST"]
    yield from _divided("mnist", lambda variant, shares: printed[shares].get(variant))


def table7(quick: bool) -> Iterator[Case]:
    """Yield cases for CIFAR-10 with parameters of Table 4: one ε for all as in Table 2, the variants as in Table 7."""
    paper = published("individualized-dp-sgd")
    tuned, untuned = paper["table2"]["CIFAR-10"], paper["table7_untuned"]["CIFAR-10"]

    def known(variant: str, shares: str) -> Known:
        return tuned[shares][variant] if variant == "standard" else (untuned[shares][variant], None)

    yield from _divided("cifar10", known)


def table12(quick: bool) -> Iterator[Case]:
    """Yield cases for MNIST: two baselines that also keep every promise."""
    printed = published("individualized-dp-sgd")["table12_mnist_baselines"]

    def known(variant: str, shares: str) -> Known:
        return (printed[shares][BASELINES[variant]], None) if variant in BASELINES else None

    yield from _divided("mnist", known)


def _divided(part: str, known: Callable[[str, str], Known]) -> Iterator[Case]:
    """Yield one case for each variant and division with a printed number, from its runs with the most steps."""
    settings: dict[tuple[str, str], list[Run]] = {}
    for run in _runs(part):
        shares = "/".join(f"{100 * share:g}" for share in run["shares"])
        settings.setdefault((run["variant"], f"{shares} %"), []).append(run)
    for (variant, shares), every in settings.items():
        steps = max(run["steps"] for run in every)
        found = [run for run in every if run["steps"] == steps]
        if printed := known(variant, shares):
            fewer = f", {steps:,} steps" if found[0]["reduced"] else ""
            yield Case(
                f"{variant}, {shares}{fewer}", tuple(run["seed"] for run in found), partial(_rows, found, *printed)
            )


def table3(quick: bool) -> Iterator[Case]:
    """Yield cases for MNIST at ε = 0.3 with 1,000 steps."""
    printed = published("individualized-dp-sgd")["table3_mnist_eps_0.3"]
    names = {"standard": "standard", "sample": "accounting and assignment 0.30/0.31"}
    for run in _runs("small"):
        known = printed[names[run["variant"]]]
        yield Case(f"{names[run['variant']]}, {run['steps']:,} steps", (run["seed"],), partial(_rows, [run], *known))


def table8(quick: bool) -> Iterator[Case]:
    """Yield cases for CIFAR-10, with one class at another ε than the 2 of all others: the runs with the most steps."""
    printed = published("individualized-dp-sgd")["table8_cifar10_one_class"]
    runs = _runs("photographs")
    most = max((run["steps"] for run in runs), default=0)
    found = {(run["of_class"], run["epsilons"][-1]): run for run in runs if run["steps"] == most}
    for one, cells in printed.items():
        rows = []
        for column, epsilon in enumerate((3.0, 2.0, 1.0)):
            if run := found.get((None if epsilon == 2 else int(one), epsilon)):
                own, others = run["by_class"][int(one)], run["by_class"][: int(one)] + run["by_class"][int(one) + 1 :]
                known, of_others = cells["class: eps 3, 2, 1"][column], cells["other classes"][column]
                rows += [
                    Row(f"right on class {one} at ε = {epsilon:g}, %", known, own),
                    Row(f"right on the others beside ε = {epsilon:g}, %", of_others, round(fmean(others), 2)),
                ]
        if rows:
            yield Case(f"class {one}, {most:,} steps", (1,), partial(_same, rows))


def table9(quick: bool) -> Iterator[Case]:
    """Yield cases for MNIST with promises by class, compared with everyone at ε = 3: the runs with all steps."""
    printed = published("individualized-dp-sgd")["table9_mnist_by_class"]
    columns = {variant: printed[variant] for variant in ("sample", "scale")} | {"standard": printed["baseline eps 3"]}
    for run in _runs("classes"):
        if run["of_class"] is None and not run["reduced"]:
            cells = zip(cycle(run["epsilons"]), columns[run["variant"]], run["by_class"], strict=False)
            rows = [
                Row(f"right on digit {digit} (ε {epsilon:g}), %", known, right)
                for digit, (epsilon, known, right) in enumerate(cells)
            ]
            yield Case(run["variant"], (run["seed"],), partial(_same, rows))


def _same(rows: Sequence[Row]) -> Sequence[Row]:
    return rows


def _runs(part: str) -> list[Run]:
    from benchmarks.sgd_sampled import RESULTS

    return list(json.loads(RESULTS.read_text()).get(part, [])) if RESULTS.exists() else []


def _rows(runs: list[Run], known: float | None, known_spread: float | None) -> list[Row]:
    right = [float(run["right"]) for run in runs]
    spread = stdev(right) if len(right) > 1 else None
    return [Row("test accuracy, %", known, fmean(right), known_spread, here_spread=spread)]
