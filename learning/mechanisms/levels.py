"""Levels as planners see them: a cap and a public head count."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """Holders with the same cap.

    name: of the level.  cap: μ² of their promise.  holders: a noisy or public head count.  records: per holder, a
    public figure.  used: the share of the cap that earlier rounds are forecast to have used.
    """

    name: str
    cap: float
    holders: float
    records: float = 1.0
    used: float = 0.0
