"""Estimates of counts from noisy ones: drawn towards what is expected as far as noise demands it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_FITTINGS = 20


def shrunk(counts: Numbers, expected: Numbers, variance: Numbers | float) -> Numbers:
    """Counts drawn towards what is expected of them.

    As if the true ones were normal around e with variance τe: their mean given the noisy ones is
    e + τe/(τe + σ²)·(c − e). τ is the one for which Σ(c − e)² is as large as expected.

    Args:
        counts: c, with noise of the ``variance`` σ².
        expected: e, of at least 0; any shape, as the counts.
        variance: of the noise.
    """
    apart = counts - expected
    spread = float(expected.sum())
    tau = max(float((apart**2 - variance).sum()), 0.0) / spread if spread > 0 else 0.0
    if tau <= 0:
        return expected.copy()
    return expected + tau * expected / (tau * expected + variance) * apart


def fitted(table: Numbers, rows: Numbers, columns: Numbers) -> Numbers:
    """The table (R, C) of at least 0 with these margins that is nearest in relative entropy (Deming, Stephan 1940).

    Margins have one total; where a row or column holds nothing, it is filled as if the two were independent.
    """
    total = float(rows.sum())
    if total <= 0:
        return np.zeros_like(table)
    # A trace of independence, so that no margin above 0 stands before an empty row.
    table = np.maximum(table, 0.0) + 1e-9 * np.outer(rows, columns) / total
    for _ in range(_FITTINGS):
        table = table * _ratio(columns, table.sum(axis=0))
        table = table * _ratio(rows, table.sum(axis=1))[:, None]
    return table


def _ratio(wanted: Numbers, present: Numbers) -> Numbers:
    return np.divide(wanted, present, out=np.zeros_like(wanted), where=present > 0)
