"""Sharing a number of teachers out among groups of holders."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def largest_remainder(holders: Sequence[int], teachers: int) -> NDArray[np.int64]:
    """Teachers per group, in proportion to `holders` and exactly `teachers` in all.

    The method of largest remainders (Hamilton): every group gets its share rounded down, and what is left goes one by
    one to the largest fractions; equal fractions to the earlier group. Integer arithmetic throughout.

    >>> largest_remainder([50, 30, 21], 10)
    array([5, 3, 2])
    """
    size = np.asarray(holders, dtype=np.int64)
    share, remainder = np.divmod(size * teachers, size.sum())
    left = teachers - int(share.sum())
    share[np.argsort(-remainder, kind="stable")[:left]] += 1
    return share
