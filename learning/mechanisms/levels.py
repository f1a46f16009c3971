"""Levels for planners: a cap and a public head count."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class PlannedLevel:
    """Holders with the same cap.

    name: of the level.  cap: μ² of their promise.  holders: a noisy or public head count.  records: per holder, a
    public figure.  used: the share of the cap that earlier rounds are forecast to have used.
    """

    name: str
    cap: float
    holders: float
    records: float = 1.0
    used: float = 0.0


def signal(levels: Sequence[PlannedLevel]) -> float:
    """Return the total signal in standard deviations of the noise: Σ n·μ, if each person's weight is their μ.

    >>> signal([PlannedLevel("HIGH", 1.0, 10.0), PlannedLevel("LOW", 4.0, 5.0)])
    20.0
    """
    return math.fsum(level.holders * math.sqrt(level.cap) for level in levels)


def best_threshold(levels: Sequence[PlannedLevel]) -> float:
    """Return the cap, in μ², with the largest signal if everybody with at least this cap counts only by it.

    That is the cap with the largest n·μ, n the people with at least this cap (Cyffers, Ziani, "Limits of personalizing
    differential privacy budgets", 2026, show how much more personal budgets can bring).

    >>> best_threshold([PlannedLevel("HIGH", 1.0, 10.0), PlannedLevel("LOW", 4.0, 5.0)])
    1.0
    """
    return max(sorted({level.cap for level in levels}), key=lambda cap: signal(at_threshold(levels, cap)))


def at_threshold(levels: Sequence[PlannedLevel], cap: float) -> list[PlannedLevel]:
    """Return the levels that allow at least ``cap``, each at this cap."""
    return [replace(level, cap=cap) for level in levels if level.cap >= cap]
