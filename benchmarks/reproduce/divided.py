"""Data divided at random into private, public and test records, as in Individualized PATE and the thesis."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.folders import data_dir
from benchmarks.sgd.study import splits_load
from learning.formats import catalogue_files
from learning.formats.files import open_content

SIZES = {"mnist": (60_000, 9_000, 1_000), "adult": (37_222, 7_000, 1_000)}
"""Numbers of private, public and test records, as printed."""


@dataclass(frozen=True, eq=False)
class Part:
    """Images `(n, 28, 28)` or columns `(n, 14)`, and their classes `(n,)`."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Divided:
    """Private, public and test records of one division."""

    private: Part
    public: Part
    test: Part


@cache
def divided(name: str, division: int = 0) -> Divided:
    """Return one division of all images of MNIST, or of all records of Adult without missing values."""
    x, y = _adult() if name == "adult" else _images(name)
    order = np.random.default_rng(division).permutation(len(x))
    return Divided(*(Part(x[rows], y[rows]) for rows in np.split(order, np.cumsum(SIZES[name])[:2])))


def _images(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    splits = splits_load(name)
    x, y = (np.concatenate([getattr(part, of) for part in (splits.private, splits.public, splits.test)]) for of in "xy")
    return x, y


def _adult() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return all 14 columns, scaled to [0, 1], and the labels: 1 means an income above 50K.

    Categories are numbered in the order of their names.
    """
    lines: list[list[str]] = []
    for path, file in zip(catalogue_files("adult", data_dir()), ("adult.data", "adult.test"), strict=True):
        with open_content(path, file) as content:
            lines += csv.reader(io.TextIOWrapper(content.stream), skipinitialspace=True)
    *columns, income = np.array([cells for cells in lines if len(cells) > 1 and "?" not in cells]).T
    numbers = [
        column.astype(float) if np.char.isdigit(column).all() else np.unique(column, return_inverse=True)[1]
        for column in columns
    ]
    x = np.stack([(column - column.min()) / np.ptp(column) for column in numbers], axis=1)
    return x.astype(np.float32), np.char.startswith(income, ">").astype(np.int64)
