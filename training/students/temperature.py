"""Calibration of probabilities by releases that a student has not learned from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.students.releases import Releases

_TEMPERATURES = np.exp(np.linspace(np.log(0.4), np.log(4.0), 24))


def tempered(probabilities: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Probabilities whose logarithms are divided by a temperature (Guo et al. 2017); above 1 they say less.

    >>> tempered(np.array([[0.9, 0.1]]), 1e9).round(2).tolist()
    [[0.5, 0.5]]
    """
    with np.errstate(divide="ignore"):
        powers = np.exp((np.log(probabilities) - np.log(probabilities.max(axis=1, keepdims=True))) / temperature)
    return powers / powers.sum(axis=1, keepdims=True)


def fitted_temperature(probabilities: NDArray[np.float64], held_out: Releases) -> float:
    """The temperature from 0.4 to 4 with the best score.

    Args:
        probabilities: `(P, C)` of all public points.
        held_out: Releases that they do not come from, see `Releases.score`.
    """
    scores = [held_out.score(tempered(probabilities, temperature)) for temperature in _TEMPERATURES]
    return float(_TEMPERATURES[int(np.argmax(scores))])
