"""Curvature of a loss at public points: a bound of its Hessian, with a matrix of its own for each score of a model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learning.outcomes import CROSS_ENTROPY, Loss

Floats = NDArray[np.float64]


def curvatures(features: Floats, weights: Floats, loss: Loss = CROSS_ENTROPY) -> Floats:
    """`(outputs, F, F)`, or `(1, F, F)` where all outputs have the same: mean over points of h_c·f fᵀ.

    Args:
        features: `(P, F)` of public points.
        weights: `(F, outputs)` at which it is taken.
        loss: whose second derivatives h bounds.
    """
    bounds = loss.curvature(features @ weights) / len(features)
    return np.stack([(features * bound[:, None]).T @ features for bound in bounds.T])
