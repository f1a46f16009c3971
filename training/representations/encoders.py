"""From points to whole-number features: columns of a table or of an embedding, and several encoders side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from training.representations.exact import Floats

Arrays = dict[str, NDArray[Any]]

GRID = 2.0**16
"""Columns are rounded to this many steps on either side of 0, half of them beyond the largest public value."""


class Encoder(Protocol):
    """Turns every point into whole numbers, each point by itself.

    kind: its name in stored files.  shape: of one point.  bound: no feature is ever larger in absolute value.  units:
    `(width,)`, what 1 stands for in each feature, for the statistics of the public points.
    """

    kind: ClassVar[str]
    shape: tuple[int, ...]
    bound: float
    units: Floats

    def encode(self, points: NDArray[np.floating]) -> Floats:
        """`(n, width)` whole numbers of points `(n, *shape)`; what is not finite counts as 0."""
        ...

    def state(self) -> Arrays:
        """State that `from_state` needs."""
        ...


class ColumnEncoder:
    """Numbers as they are (images laid flat), each column rounded to steps that its largest public value sets.

    A value beyond twice the largest public one is cut off.

    >>> encoder = ColumnEncoder.fit(np.array([[0.5, 2.0], [1.0, -4.0]]))
    >>> (encoder.encode(np.array([[0.25, 100.0]])) * encoder.units).tolist()
    [[0.25, 8.0]]
    """

    kind: ClassVar[str] = "columns"

    def __init__(self, shape: tuple[int, ...], units: Floats) -> None:
        self.shape, self.units, self.bound = shape, units, GRID

    @classmethod
    def fit(cls, public: NDArray[np.floating]) -> ColumnEncoder:
        flat = np.asarray(public, np.float64).reshape(len(public), -1)
        largest = np.abs(flat).max(axis=0)
        return cls(public.shape[1:], np.where(largest > 0, largest, 1.0) * 2.0 / GRID)

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> ColumnEncoder:
        return cls(tuple(state["shape"].tolist()), state["units"])

    def encode(self, points: NDArray[np.floating]) -> Floats:
        flat = finite(points).reshape(len(points), math.prod(self.shape))
        return np.clip(np.rint(flat / self.units), -self.bound, self.bound)

    def state(self) -> Arrays:
        return {"shape": np.array(self.shape), "units": self.units}


class JoinedEncoder:
    """The features of several encoders, side by side."""

    kind: ClassVar[str] = "joined"

    def __init__(self, *parts: Encoder) -> None:
        self.parts = parts
        self.shape = parts[0].shape
        self.bound = max(part.bound for part in parts)
        self.units = np.concatenate([part.units for part in parts])

    def encode(self, points: NDArray[np.floating]) -> Floats:
        return np.concatenate([part.encode(points) for part in self.parts], axis=1)

    def state(self) -> Arrays:
        stored: Arrays = {"parts": np.array([part.kind for part in self.parts])}
        for place, part in enumerate(self.parts):
            stored |= {f"{place}.{name}": array for name, array in part.state().items()}
        return stored


def finite(points: NDArray[np.floating]) -> Floats:
    """The points in double precision, 0 for what is no number: a bad record must not stop those of others."""
    return np.nan_to_num(np.asarray(points, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
