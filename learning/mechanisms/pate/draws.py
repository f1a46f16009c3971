"""Balanced random draws."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray


def balanced_draws(sizes: Iterable[int], items: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """For each size, that many different items: those drawn least often so far, ties at random.

    So at any time no item has been drawn more than once more than any other. Each size must be at most `items`.

    >>> draws = list(balanced_draws([2, 2, 2], 3, np.random.default_rng(0)))
    >>> np.bincount(np.concatenate(draws))
    array([2, 2, 2])
    """
    drawn = np.zeros(items)
    for size in sizes:
        # a tie-break below 1 never reorders different counts
        chosen = np.argsort(drawn + rng.random(items))[:size]
        drawn[chosen] += 1.0
        yield chosen
