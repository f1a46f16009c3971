"""Rows of several splits or draws combined into one: mean, lowest and highest value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import numpy as np

Row = dict[str, Any]
_SAME = ("name", "public", "holders", "method", "epsilon")


def summary(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield a row for each model of each method and promise, over the measured splits or draws.

    test: accuracy on the test points.  seconds: processor time for the releases and for the student.
    """

    def same(row: Row) -> list[str]:
        return [str(row.get(name, "")) for name in _SAME]

    for _, group in groupby(sorted(rows, key=same), key=same):
        several = list(group)
        about = {name: several[0].get(name, "") for name in _SAME}
        models = {name for row in several for name in (*row["students"], *(["linear"] if "linear" in row else []))}
        for model in sorted(models):
            scores = [row["students"].get(model) or row.get(model) for row in several]
            scores = [score for score in scores if score]
            tests = [score["test"] for score in scores]
            yield about | {
                "labels": _mean(row.get("labels") for row in several),
                "labels_right": _mean(row.get("labels_right") for row in several),
                "model": model,
                "splits": len(scores),
                "test": float(np.mean(tests)),
                "lowest": min(tests),
                "highest": max(tests),
                **{name: _mean(score.get(name) for score in scores) for name in ("test_all", "auc", "auc_all")},
                "release_seconds": _mean(row.get("release_seconds") for row in several),
                "seconds": _mean(score.get("seconds") for score in scores),
            }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
