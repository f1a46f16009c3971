"""Rows that passed the test, as records of their schema, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from learning.formats import TabularSchema
from learning.mechanisms.base import Arrays, content_digest
from learning.mechanisms.counts.columns import Column
from learning.mechanisms.deniability.question import ALIKE, LEAST, DeniabilityQuestion
from learning.mechanisms.synthesis.rows import SyntheticRows, cells_encode


@dataclass(frozen=True)
class Passing:
    """Share of rows that pass, of each k, for one γ and the numbers of columns that are drawn anew."""

    omegas: str
    gamma: float
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Parents:
    """Column of the network, and those that it depends on."""

    column: str
    parents: tuple[str, ...]


@dataclass(frozen=True)
class DeniableDescription:
    """What a page and a card say of released rows; no promise holds for any of it.

    Attributes:
        columns: names, that of the classes last.
        rows: how many.
        tried: rows that were made, of which ``passed`` were left by the test.
        least: the k of `passing`.
    """

    columns: tuple[str, ...]
    rows: int
    tried: int
    passed: int
    least: tuple[int, ...]
    passing: tuple[Passing, ...]
    network: tuple[Parents, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON with lists in place of tuples, as a database gives it back."""
        entry = asdict(self)
        return json.loads(json.dumps({name: entry.pop(name) for name in ("columns", "rows")} | {"deniability": entry}))


def deniable_rows(
    question: DeniabilityQuestion, schema: TabularSchema, released: Arrays
) -> SyntheticRows[DeniableDescription]:
    """The rows that a run released; where a bin is wide, the seed of the number within it follows from the release."""
    codes, columns = released["rows"], question.columns
    rng = np.random.default_rng(int(content_digest(released), 16))
    x = np.zeros((len(codes), *schema.shape), np.float32)
    for place, column in enumerate(columns[:-1]):
        cells_encode(x, column, codes[:, place], rng)
    tried, passed = released["tried"].tolist()
    description = DeniableDescription(
        tuple(column.name for column in columns),
        len(codes),
        tried,
        passed,
        LEAST,
        tuple(
            Passing(_numbers(omegas), gamma, tuple(shares))
            for omegas, tables in zip(question.tried, released["passing"].round(3).tolist(), strict=True)
            for gamma, shares in zip(ALIKE, tables, strict=True)
        ),
        tuple(_parents(columns, released)),
    )
    return SyntheticRows(schema, x, codes[:, -1], description)


def _numbers(omegas: Sequence[int]) -> str:
    return str(omegas[0]) if len(omegas) == 1 else f"{omegas[0]} – {omegas[-1]}"


def _parents(columns: Sequence[Column], released: Arrays) -> list[Parents]:
    names = np.array([column.name for column in columns])
    return [Parents(name, tuple(names[those].tolist())) for name, those in zip(names, released["parents"], strict=True)]
