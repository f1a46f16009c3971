"""Further uses of the noisy sums of steps: calibration of the model, and shares of the classes among the people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learning.calibration import Calibration, StepCheck, fit_to_sums
from learning.class_shares import ClassShare, first_step_shares
from learning.mechanisms.steps.descent import EARLY, Descent
from learning.mechanisms.steps.linear import CLIP_STEPS
from learning.mechanisms.steps.records import INTERCEPT

RECORDS = 1.2
"""Average number of a holder's records, if a dataset takes several: an assumption, because the number is private."""
_POINTS = 3000


def descent_calibration(
    steps: Sequence[tuple[Descent, NDArray[np.int64]]], final: Descent, public: ArrayLike, *, records: float
) -> Calibration:
    """Return the calibration of the model that a descent led to.

    Args:
        steps: State before each step, and the `(d + 1, C)` noisy sums that it released.
        final: State after the last.
        public: `(P, d)` coordinates of public points, sampled if there are many.
        records: Of a holder on average, see `fit_to_sums`.
    """
    plan, length = final.plan, final.length
    points = np.asarray(public, np.float64)
    points = points[np.linspace(0, len(points) - 1, min(len(points), _POINTS)).astype(np.int64)]
    features = np.column_stack([points, np.full(len(points), float(INTERCEPT))]) / length
    noise = plan.sigma * plan.clip_norm / plan.people
    checks = []
    # those whose weights the model averages
    for state, sums in steps[-max(1, round((1 - EARLY) * len(steps))) :]:
        gradient, weights = sums * (plan.clip_norm / plan.people / CLIP_STEPS), state.learned * length
        checks.append(
            StepCheck(
                logits=features @ state.parameters,
                direction=features @ weights,
                along=float((weights * gradient).sum()),
                intercept=gradient[-1],
                noise_along=noise * float(np.sqrt((weights**2).sum())),
                noise_intercept=noise,
            )
        )
    return fit_to_sums(
        features @ (final.learned * length),
        checks,
        lengths=np.sqrt((features**2).sum(axis=1)),
        clip_norm=plan.clip_norm,
        constant=INTERCEPT / length,
        records=records,
    )


def descent_shares(begin: Descent, sums: NDArray[np.int64]) -> list[ClassShare] | None:
    """Return shares of the classes among the people, by the `(d + 1, C)` noisy sums of a descent's first step.

    None if the chosen noise is so small that an account need not last for a single step: it is unknown who contributed.
    """
    plan, constant = begin.plan, INTERCEPT / begin.length
    if plan.sigma**2 * plan.largest_cap * max(plan.until.values()) < 1:
        return None
    return first_step_shares(
        sums[-1] * (plan.clip_norm / CLIP_STEPS / plan.people / constant),
        noise=plan.noise / constant,
        lengths=np.sqrt((begin.points.astype(np.float64) ** 2).sum(axis=1) + INTERCEPT**2) / begin.length,
        clip_norm=plan.clip_norm,
    )
