"""Proposals by public rules: steps, noise, clipping norm and step size of a round of private gradient steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.sentences import Sentence
from training.methods.levels import Level
from training.methods.sgd.parameters import Steps

STEPS = 100
CLIP_NORM = 0.5
STEP_SIZE = 8.0


@dataclass(frozen=True)
class StepsPlan:
    """A round of full-batch steps, all of it public.

    sigma: noise multiplier, the same for all steps.  steps: how many.  clip_norm: of a holder's gradient, where points
    have norm 1.  step_size, momentum: of `descent.Descent`.  largest_cap: μ² of the most lenient level; see
    `level_weights`.  people: the sum of all holders' weights, by public head counts.  until: by level, the share of the
    cap that this round may use at most, earlier rounds not counted.  notes: for plan and card.  warnings: what is
    unlikely to work.
    """

    sigma: float
    steps: int
    clip_norm: float
    step_size: float
    momentum: float
    largest_cap: float
    people: float
    until: dict[str, float]
    notes: tuple[Sentence, ...] = ()
    warnings: tuple[Sentence, ...] = ()

    def level_weights(self, caps: ArrayLike) -> NDArray[np.float64]:
        """By what the clipped gradient of holders with these caps (whole, in μ²) is multiplied: √(cap / largest cap).

        Then everybody's account lasts for the same number of steps at least.
        """
        return np.sqrt(np.clip(np.asarray(caps, np.float64) / self.largest_cap, 1e-12, 1.0))

    def to_json(self) -> dict[str, Any]:
        """What `steps_plan_from_json` reads; sentences with their values."""
        document = asdict(self)
        return document | {name: [one.to_json() for one in getattr(self, name)] for name in ("notes", "warnings")}


def steps_plan_from_json(document: Mapping[str, Any]) -> StepsPlan:
    """The plan that `StepsPlan.to_json` wrote."""
    sentences = {
        name: tuple(Sentence(one["template"], **one["values"]) for one in document[name])
        for name in ("notes", "warnings")
    }
    return StepsPlan(**{**document, **sentences})


def plan_steps(
    levels: Sequence[Level], *, dimensions: int, n_classes: int, share: float, steps: Steps | None = None
) -> StepsPlan:
    """The proposed round.

    Args:
        levels: With caps and noisy or public head counts; at least one of them with people in it.
        dimensions: d, coordinates of a point without the intercept.
        n_classes: C.
        share: Of every cap that this round may use, earlier rounds not counted.
        steps: What was chosen by hand; the rest follows from the rules of docs/sgd.md.
    """
    chosen = steps or Steps()
    largest = max(level.cap for level in levels)
    count = chosen.steps or STEPS
    sigma = chosen.sigma or math.sqrt(count / (share * largest))
    clip_norm = chosen.clip_norm or CLIP_NORM
    weights = {level.name: math.sqrt(level.cap / largest) for level in levels}
    people = sum(max(level.holders, 0.0) * weights[level.name] for level in levels)
    until = {level.name: min(share, count * weights[level.name] ** 2 / sigma**2 / level.cap) for level in levels}
    return StepsPlan(
        sigma, count, clip_norm, chosen.step_size or STEP_SIZE, chosen.momentum, largest, max(people, 1.0), until
    )
