"""Reserve of δ: what is left for the promise, after what noise that is not ideal takes from it."""

import math
from collections.abc import Iterable

from accounting.privacy.checks import checked_delta

#: Smallest δ that may be promised: below, the rounding of doubles elsewhere would have to be looked at again.
SMALLEST_DELTA = 1e-9


def available_delta(
    delta: float, epsilon: float, *, draws: int = 0, distance: float = 0.0, slacks: Iterable[float] = ()
) -> float:
    """The δ for which μ may be computed, so that (ε, δ)-DP still holds with real noise: δ − (1 + e^ε)·n·τ − Σ δ′.

    Each of the n numbers released is drawn from a distribution within total variation τ of the ideal one, whatever was
    released before. The whole transcripts P̃, Q̃ are then within n·τ of the ideal P, Q (replace one draw after the
    other), so that for every event S: P̃(S) ≤ P(S) + nτ ≤ e^ε·Q(S) + δ₀ + nτ ≤ e^ε·Q̃(S) + δ₀ + (1 + e^ε)·nτ. A run that
    is charged as (μ, δ′) adds its δ′ (:func:`accounting.privacy.sampled_gaussian_mu`).

    Args:
        delta: δ of the study, from 1e-9, below 1.
        epsilon: ε ≥ 0 that is promised; the largest, if several are.
        draws: n, how many noisy numbers the study may release in all.
        distance: τ of one draw; :data:`common.noise.ROUNDED_NORMAL_DISTANCE` for integers.
        slacks: δ′ of every run that has one.

    Returns:
        What is left, at least 1e-9.

    Raises:
        ValueError: an argument out of range, or less than 1e-9 left.

    >>> available_delta(1e-5, 1.0, draws=10**9, distance=1e-15, slacks=[1e-7])
    6.181718...e-06
    """
    checked_delta(delta)
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be finite and not negative, not {epsilon}")
    if draws != int(draws) or draws < 0:
        raise ValueError(f"draws must be a whole number of at least 0, not {draws}; count every noisy number")
    if not 0 <= distance <= 1:
        raise ValueError(f"distance must lie between 0 and 1, not {distance}; it is a total variation")
    losses = list(slacks)
    if not all(0 <= slack < 1 for slack in losses):
        raise ValueError(f"slacks must lie between 0 and 1, not {losses}")
    left = math.fsum([delta, -(1 + math.exp(epsilon)) * draws * distance, *(-slack for slack in losses)])
    if left < SMALLEST_DELTA:
        raise ValueError(
            f"only {left:.3g} of delta {delta:g} is left for the promise, which needs {SMALLEST_DELTA:g}: release "
            "fewer numbers, use a sampler of smaller distance, smaller slacks, or a larger delta"
        )
    return left
