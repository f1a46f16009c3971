"""Choice among several students by releases that none of them has learned from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from learning.learners.learner import Model
from learning.students.releases import Releases

_HELD_OUT = 0.2

Teach = Callable[[npt.NDArray[np.floating], Releases], Model]


def choose(
    candidates: Mapping[str, Teach], points: npt.NDArray[np.floating], releases: Releases, *, seed: int
) -> tuple[str, dict[str, float]]:
    """The candidate with the best score on a fifth of the releases, when it learns from the others.

    Neither private records nor test points are looked at, so it costs nothing.

    Args:
        candidates: What lets each learn from all public points `(P, …)` and releases.
        points: All public points.
        releases: About them.
        seed: Of the split.

    Returns:
        Its name, and the scores of all (`Releases.score`).
    """
    learned, held_out = releases.split(_HELD_OUT, seed)
    scores = {name: held_out.score(teach(points, learned).predict_proba(points)) for name, teach in candidates.items()}
    return max(scores, key=lambda name: scores[name]), scores
