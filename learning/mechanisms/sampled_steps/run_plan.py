"""Choices and plan of a sampled run: rates or norms computed from public figures, and the charge due before it begins.

A public rule makes any choice that is left open. Rehearsals and benchmarks can also run the baselines of individualized
DP-SGD (Boenisch et al. 2023, Appendix E), which also keep every group's promise. Each baseline is a list of phases;
each phase starts from the final state of the previous one. A baseline has the same number of steps and the same average
number of holders per step as the run to which it is compared. Baselines have these arguments:

    targets: μ that each group may spend, above 0, `(groups,)`.
    group_sizes: Noisy or public numbers of holders, `(groups,)`.
    cost: Cost of a run with this many steps, see `rates.Cost`.
    steps, rate, clip_norm: As in `plan_sampled`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy import sampled_gaussian_mu
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.choices import Fault, choice
from learning.mechanisms.sampled_steps.rates import (
    Cost,
    Floats,
    Phases,
    SampledMechanism,
    balanced_norms,
    required_noise,
    shares_of,
    spend_equally,
)
from learning.mechanisms.steps.steps_plan import BY_RULE, UNSET, StepChoices
from learning.outcomes import CROSS_ENTROPY, Loss

VARIANTS = ("sample", "scale")
"""Sampled variants available to runs of any study."""
BASELINES = ("standard", "without_strictest", "group_after_group", "non_private")
"""Baselines for comparison, only for rehearsal studies."""

NETWORK_CHOICES = {
    "linear": gettext_noop("linear model"),
    "mlp": gettext_noop("small network"),
    "cnn": gettext_noop("convolutional network for images"),
}
"""Labels of networks trained on samples, by their names in `learning.mechanisms.sampled_steps.networks.NETWORKS`."""

_DRAWN, _LEAST_RATE = 512, 0.005  # average number of holders per step, as in the paper; smaller rates waste promises
_ROUNDING = 1 - 1e-9  # allowance for rounding when norms are computed from noise multipliers and vice versa
_LOUD = 5.0  # warning level: a step's noise, divided by the norm of its sum if all contributions had the same direction

CostOf = Callable[[int], Cost]

_UNCLIPPED = 1000.0  # clipping norm larger than any gradient of these networks on records of length 1


SMALLEST_SIDE = 16
"""Smallest side of an image, in pixels, for the convolutional network."""


def maps_sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the height and width of the convolutional network's final feature maps.

    Raises:
        ValueError: Records of this shape are not images, or are too small.
    """
    if len(shape) not in (2, 3) or min(shape[:2]) < SMALLEST_SIDE:
        raise ValueError(
            f"The convolutional network needs images of at least 16×16 pixels, not records of shape {shape}."
        )
    height, width = (((side - 4) // 2 - 4) // 2 for side in shape[:2])
    return height, width


def weights_number(network: str, shape: tuple[int, ...], classes: int) -> int:
    """Return a network's number of weights. Raises ValueError if it does not support records of this shape.

    >>> weights_number("cnn", (28, 28), 10)
    26010
    """
    if network == "cnn":
        height, width = maps_sides(shape)
        maps = [(1 if len(shape) == 2 else shape[2]) * 8 * 8, 16 * 4 * 4]
        inputs, outputs = [*maps, 32 * height * width, 32], [16, 32, 32, classes]
    else:
        inputs, outputs = [math.prod(shape)], [classes]
        if network == "mlp":
            inputs, outputs = [*inputs, 64, 32], [64, 32, classes]
    return sum((each + 1) * out for each, out in zip(inputs, outputs, strict=True))


@dataclass(frozen=True)
class Samples(StepChoices):
    """Choices for steps on samples of the holders.

    Without public points or with the convolutional network, training uses the records unchanged, without a
    representation.
    """

    network: str = choice("linear", gettext_noop("Model"), values=NETWORK_CHOICES)
    expected: float | None = choice(
        None, gettext_noop("Holders drawn per step, on average"), BY_RULE, minimum=1.0, maximum=1e9, unset=UNSET
    )

    momentum: float | None = choice(
        None,
        gettext_noop("Momentum"),
        gettext_noop(
            "Share of each update that is carried over to the next. Leave this empty to set the value automatically."
        ),
        minimum=0.0,
        maximum=0.999,
        unset=UNSET,
    )

    def faults(self) -> Iterator[Fault]:
        yield from super().faults()
        if self.network == "cnn" and self.representation:
            message = gettext_noop(
                "The convolutional network uses the original images. Keep the default representation."
            )
            yield "representation", message


@dataclass(frozen=True)
class SampledParameters:
    """Choices for a sampled run, used by `plan_sampled` and `training.run_chunk`."""

    rate: float
    steps: int
    clip_norm: float
    step_size: float
    momentum: float


def usual_parameters(network: str, people: float, loss: Loss = CROSS_ENTROPY) -> SampledParameters:
    """Return the default choices, which depend only on the network, the loss, and a public or noisy number of holders.

    The defaults were found in rehearsals: on Adult for networks on the coordinates of a representation, scaled to a
    typical length of 1, and on MNIST for the convolutional network.

    >>> usual_parameters("mlp", 51_200)
    SampledParameters(rate=0.01, steps=500, clip_norm=0.5, step_size=0.5, momentum=0.9)
    """
    rate = min(1.0, max(_LEAST_RATE, _DRAWN / max(people, 1.0)))
    # gradients of other outcomes differ in length, in proportion to their usual norm in full-batch steps
    longer = loss.clip_norm / CROSS_ENTROPY.clip_norm
    if network == "cnn":
        return SampledParameters(rate, steps=500, clip_norm=0.2 * longer, step_size=4.0, momentum=0.0)
    return SampledParameters(rate, steps=500, clip_norm=0.5 * longer, step_size=0.5, momentum=0.9)


@dataclass(frozen=True, eq=False)
class SampledPlan:
    """Public plan of a run whose whole charge is due before its first step.

    Attributes:
        phases: Rates, norms and noise, with their numbers of steps; there is only one phase, except in baselines.
        charges: μ² of each group, shape (groups,), at most its share of the cap; NaN if it is not protected.
        slack: δ′, which is subtracted from δ once per run, for all holders.
    """

    phases: Phases
    charges: Floats
    slack: float
    notes: tuple[Sentence, ...] = ()

    @property
    def mechanism(self) -> SampledMechanism:
        return self.phases[0][0]

    @property
    def steps(self) -> int:
        """Number of steps T."""
        return sum(steps for _mechanism, steps in self.phases)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as numbers and lists, for a run's document; `sampled_plan_from_json` is the inverse."""
        return {
            "phases": [
                {
                    "rates": mechanism.rates.tolist(),
                    "norms": mechanism.norms.tolist(),
                    "sigma": mechanism.noise_multiplier,
                    "clip_norm": mechanism.clip_norm,
                    "expected": mechanism.expected,
                    "steps": steps,
                }
                for mechanism, steps in self.phases
            ],
            "charges": [None if np.isnan(charge) else charge for charge in self.charges.tolist()],
            "slack": self.slack,
        }


def sampled_plan_from_json(document: Mapping[str, Any]) -> SampledPlan:
    """Return the plan from the result of `SampledPlan.to_json`, without its notes."""
    phases = tuple(
        (
            SampledMechanism(
                np.array(phase["rates"]),
                np.array(phase["norms"]),
                phase["sigma"],
                phase["clip_norm"],
                phase["expected"],
            ),
            int(phase["steps"]),
        )
        for phase in document["phases"]
    )
    charges = np.array([np.nan if charge is None else charge for charge in document["charges"]], np.float64)
    return SampledPlan(phases, charges, document["slack"])


def plan_sampled(
    variant: str,
    caps: ArrayLike,
    group_sizes: ArrayLike,
    *,
    share: float,
    slack: float,
    steps: int,
    rate: float,
    clip_norm: float,
    weights: int,
) -> SampledPlan:
    """Return the plan of a run whose steps make every group spend its share of the cap, as (μ², δ′).

    For every group and in both directions, the curve δ(ε) of the run lies below the curve of μ with δ′ at every ε
    (:func:`accounting.privacy.sampled_gaussian_mu`). *sample* and *scale* are Algorithms 1 and 2 with μ instead of ε.

    Args:
        variant: One of `VARIANTS`, or of `BASELINES` for a rehearsal.
        caps: μ² of each group's promise, above 0, shape (groups,).
        group_sizes: Noisy or public numbers of holders, not negative, shape (groups,).
        share: Share of every cap, above 0 and at most 1.
        slack: δ′ of the run, at least 1e-12; already subtracted from the δ that determines the caps.
        steps: Number of steps T.
        rate: Mean q of the rates, weighted by the sizes.
        clip_norm: Mean c of the norms, weighted by the sizes.

    Returns:
        The plan. Computing it takes several seconds.

    Raises:
        ValueError: An argument is out of range, or promises cannot be spent in this way; the message suggests changes.
    """
    if variant not in (*VARIANTS, *BASELINES):
        raise ValueError(f"There is no sampled variant “{variant}”; choose one of: {', '.join(VARIANTS)}.")
    if not 0 < share <= 1:
        raise ValueError(f"share must lie above 0 and be at most 1, not {share}.")
    allowed = share * np.asarray(caps, np.float64)
    limits = np.sqrt(allowed) * _ROUNDING
    if limits.ndim != 1 or not limits.size or not (np.isfinite(limits) & (limits > 0)).all():
        raise ValueError("caps must be a list of finite numbers above 0, one for each group.")
    sizes = np.asarray(group_sizes, np.float64)
    run: dict[str, Any] = {"steps": int(steps), "rate": rate, "clip_norm": clip_norm}
    if variant == NON_PRIVATE:
        return SampledPlan(non_private(sizes, **run), np.full(len(sizes), np.nan), slack)
    phases = _PHASES[variant](limits, sizes, cost=partial(_rough_cost, slack), **run)
    charges = _charges(phases, slack)
    if (charges > allowed).any():
        raise ArithmeticError("The search for the noise did not converge: use another number of steps or another rate.")
    return SampledPlan(phases, charges, slack, _notes(phases[0][0], weights))


def standard(
    targets: ArrayLike, group_sizes: ArrayLike, *, cost: CostOf, steps: int, rate: float, clip_norm: float
) -> Phases:
    """Return the phases of ordinary DP-SGD, in which every group gets the smallest of all promises."""
    allowed, sizes = np.asarray(targets, np.float64), np.asarray(group_sizes, np.float64)
    return (_phase(allowed, sizes, np.ones(len(allowed), bool), cost, steps, rate, clip_norm),)


def without_strictest(
    targets: ArrayLike, group_sizes: ArrayLike, *, cost: CostOf, steps: int, rate: float, clip_norm: float
) -> Phases:
    """Return the phases of baseline E.1: the second smallest promise, without groups that have the smallest.

    Raises:
        ValueError: All groups have the same promise.
    """
    allowed, sizes = np.asarray(targets, np.float64), np.asarray(group_sizes, np.float64)
    others = allowed > allowed.min()
    if not others.any():
        raise ValueError("All groups have the same promise, so no one would be left after excluding the strictest.")
    return (_phase(allowed, sizes, others, cost, steps, rate, clip_norm),)


def group_after_group(
    targets: ArrayLike, group_sizes: ArrayLike, *, cost: CostOf, steps: int, rate: float, clip_norm: float
) -> Phases:
    """Return the phases of baseline E.2: one group at a time, smallest promise first, steps proportional to sizes."""
    allowed, sizes = np.asarray(targets, np.float64), np.asarray(group_sizes, np.float64)
    order = np.argsort(allowed)
    ends = np.rint(np.cumsum(sizes[order]) / sizes.sum() * steps).astype(int)
    phases = []
    for group, count in zip(order, np.diff(ends, prepend=0).tolist(), strict=True):
        if count:
            alone = np.arange(len(allowed)) == group
            phases.append(_phase(allowed, sizes, alone, cost, count, rate, clip_norm))
    return tuple(phases)


def non_private(group_sizes: ArrayLike, *, steps: int, rate: float, clip_norm: float) -> Phases:
    """Return the phases of steps without noise or clipping. They give no privacy, but show its cost by comparison."""
    sizes = np.asarray(group_sizes, np.float64)
    norms = np.full(len(sizes), _UNCLIPPED * clip_norm)
    rates = np.full(len(sizes), float(rate))
    return ((SampledMechanism(rates, norms, 0.0, clip_norm, expected=float(rates @ sizes)), steps),)


def _sample(limits: Floats, sizes: Floats, *, cost: CostOf, steps: int, rate: float, clip_norm: float) -> Phases:
    """Return the phases of Algorithm 1 (*sample*); see `sample_rates`."""
    sigma, rates = spend_equally(cost(steps), limits, shares_of(sizes, len(limits)), steps=steps, rate=rate)
    norms = np.full(len(limits), float(clip_norm))
    return ((SampledMechanism(rates, norms, sigma, clip_norm, expected=rate * float(sizes.sum())), steps),)


def _scale(limits: Floats, sizes: Floats, *, cost: CostOf, steps: int, rate: float, clip_norm: float) -> Phases:
    """Return the phases of Algorithm 2 (*scale*); see `scale_norms`."""
    own = [required_noise(cost(steps), limit, steps=steps, rate=rate) for limit in limits.tolist()]
    sigma, norms = balanced_norms(own, shares_of(sizes, len(limits)), clip_norm)
    rates = np.full(len(limits), float(rate))
    return ((SampledMechanism(rates, norms, sigma, clip_norm, expected=rate * float(sizes.sum())), steps),)


NON_PRIVATE = "non_private"


_PHASES = {
    "sample": _sample,
    "scale": _scale,
    "standard": standard,
    "without_strictest": without_strictest,
    "group_after_group": group_after_group,
}


def _rough_cost(slack: float, steps: int) -> Cost:
    """Return the cost function used to search for rates and noise: a μ slightly above the run's charge."""
    return lambda rate, sigma: sampled_gaussian_mu(rate, sigma, steps, slack, roughly=True)


def _charges(phases: Phases, slack: float) -> Floats:
    """Return each group's charge, (groups,) in μ². No group may be drawn in more than one phase."""
    charges = np.zeros(len(phases[0][0].rates))
    for mechanism, steps in phases:
        own = mechanism.noise_multiplier * mechanism.clip_norm / mechanism.norms
        distinct, place = np.unique(np.column_stack([mechanism.rates, own]), axis=0, return_inverse=True)
        costs = [sampled_gaussian_mu(rate, sigma, steps, slack) ** 2 for rate, sigma in distinct.tolist()]
        charges += np.array(costs)[place.ravel()]
    return charges


def _notes(mechanism: SampledMechanism, weights: int) -> tuple[Sentence, ...]:
    loudness = mechanism.noise_multiplier * weights**0.5 / mechanism.expected
    if loudness <= _LOUD:
        return ()
    template = gettext_noop(
        "Even if all contributions to a step point the same way, its noise is %(times)d times as large as their sum, "
        "so the run will learn little. Use a higher rate, a smaller network or more people."
    )
    return (Sentence(template, times=round(loudness)),)


def _phase(
    targets: Floats, sizes: Floats, taking_part: np.ndarray, cost: CostOf, steps: int, rate: float, clip_norm: float
) -> tuple[SampledMechanism, int]:
    """Return a phase in which only these groups take part, with the smallest of their targets."""
    own = min(1.0, rate * float(sizes.sum()) / float(sizes[taking_part].sum()))
    sigma = required_noise(cost(steps), float(targets[taking_part].min()), steps=steps, rate=own)
    rates = np.where(taking_part, own, 0.0)
    norms = np.full(len(sizes), float(clip_norm))
    return SampledMechanism(rates, norms, sigma, clip_norm, expected=float(rates @ sizes)), steps
