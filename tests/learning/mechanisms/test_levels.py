"""What levels bring: signals of personal promises and of the best single one."""

import numpy as np
import pytest

from accounting.caps import caps_of
from learning.mechanisms.levels import Level, at_threshold, best_threshold, signal


def test_the_published_example() -> None:
    """60,000 people, 34, 43 and 23 % of them at ε 1, 2 and 3 (δ = 1e-5)."""
    caps = caps_of([1.0, 2.0, 3.0], 1e-5)
    levels = [Level(str(cap), cap, 60_000 * part) for cap, part in zip(caps, (0.34, 0.43, 0.23), strict=True)]
    assert signal(levels) == pytest.approx(28_330, rel=1e-3)
    assert best_threshold(levels) == caps[1]
    assert signal(at_threshold(levels, caps[1])) == pytest.approx(19_862, rel=1e-3)


def test_the_best_threshold_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for _study in range(200):
        number = int(rng.integers(1, 7))
        levels = [Level(str(each), *rng.uniform(0.01, 20, 2)) for each in range(number)]
        # Each person alone, at every cap that anybody has.
        people = [(level.cap, level.holders) for level in levels]
        found = {cap: sum(count for theirs, count in people if theirs >= cap) * cap**0.5 for cap, _count in people}
        best = best_threshold(levels)
        assert found[best] == max(found.values())
        assert signal(at_threshold(levels, best)) == pytest.approx(found[best])
        assert signal(levels) >= found[best], "personal promises never say less"
