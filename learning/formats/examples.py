"""Invented rows of a schema, for writing programs before seeing any data.

They depend on the schema, which is public, and a seed. They reveal nothing about people, not even which values are
frequent, because all declared values are equally likely.
"""

import re
from typing import Any

import numpy as np

from learning.formats.columns import CategoricalColumn, CodeColumn, FeatureColumn, NumericColumn
from learning.formats.schema import Schema, TabularSchema
from learning.outcomes import Target

_WHOLE = (2, 1e15)
"""Ranges with integer ends from which numbers are drawn as integers."""


def example_rows(schema: Schema, count: int, seed: int) -> tuple[list[Any], list[str]]:
    """Return ``count`` invented rows in the form used for predictions, and the outcome of each in the usual notation.

    >>> from learning.formats.columns import CategoricalColumn
    >>> schema = TabularSchema((NumericColumn("age", 0, 100), CategoricalColumn("sex", ("f", "m"))), ("no", "yes"))
    >>> example_rows(schema, 2, seed=1)
    ([{'age': 47, 'sex': 'm'}, {'age': 51, 'sex': 'm'}], ['no', 'no'])
    """
    rng = np.random.default_rng(seed)
    rows: list[Any]
    if isinstance(schema, TabularSchema):
        values = {column.name: _values(column, count, rng) for column in schema.features}
        rows = [{name: drawn[place] for name, drawn in values.items()} for place in range(count)]
    else:
        rows = np.round(rng.random((count, *schema.shape)), 2).tolist()
    outcome = schema.outcome
    if isinstance(outcome, Target):
        codes = outcome.drawn(np.zeros((count, outcome.outputs)), rng)
    else:
        codes = rng.integers(len(outcome.categories), size=count)
    return rows, [outcome.written(int(code)) for code in codes]


def _values(column: FeatureColumn, count: int, rng: np.random.Generator) -> list[Any]:
    """Return values of a column."""
    if isinstance(column, NumericColumn):
        low, high = column.minimum, column.maximum
        if float(low).is_integer() and float(high).is_integer() and _WHOLE[0] <= high - low < _WHOLE[1]:
            drawn: list[Any] = rng.integers(int(low), int(high), endpoint=True, size=count).tolist()
            return drawn
        between = [low * (1 - part) + high * part for part in rng.random(count).tolist()]
        return [min(max(float(f"{each:.4g}"), low), high) for each in between]
    if isinstance(column, CategoricalColumn):
        known = list(column.values)
    elif isinstance(column, CodeColumn):
        words = re.findall(r"[^\s,]+", column.codes.examples)
        known = [word for word in words if column.codes.place(word) is not None]
    else:
        return [f"An invented text, number {place}." for place in rng.integers(1000, size=count)]
    return [known[place] for place in rng.integers(len(known), size=count)]
