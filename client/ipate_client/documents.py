"""Documents of the site, with types. ``document`` holds all fields, by the names of the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

if TYPE_CHECKING:
    from ipate_client.site import Site

ENDED = ("finished", "failed", "cancelled", "withdrawn")
"""States of runs that no longer change."""


@dataclass(frozen=True)
class Dataset:
    """A dataset of a study: private, public (put to the vote) or test."""

    id: int
    name: str
    kind: str
    classes: list[str]
    shape: tuple[int, ...]
    document: dict[str, Any]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Dataset:
        """Return the dataset from its document."""
        shape = tuple(document["shape"])
        return cls(document["id"], document["name"], document["kind"], document["classes"], shape, document)


@dataclass(frozen=True)
class Study:
    """A study whose runs you may see."""

    slug: str
    title: str
    delta: float
    rehearsal: bool
    document: dict[str, Any]
    site: Site | None = field(default=None, repr=False, compare=False)

    def budget(self) -> pd.DataFrame:
        """Return how much each privacy group has used over all runs: see `Site.budget`."""
        if self.site is None:
            raise ValueError("This study was not fetched from a site: use Site.study.")
        return self.site.budget(self)

    def budget_plot(self) -> BudgetPlot:
        """Return bars of each privacy group's used, reserved and remaining budget; a notebook shows them."""
        return BudgetPlot(self.title, self.budget())

    @property
    def datasets(self) -> list[Dataset]:
        """Its datasets, if it was fetched individually (`Site.study`)."""
        return [Dataset.of(each) for each in self.document.get("datasets", [])]

    def dataset(self, kind: str) -> int:
        """Return the id of its first dataset of a kind, for use in proposals.

        Raises:
            LookupError: it has none.
        """
        for each in self.datasets:
            if each.kind == kind:
                return each.id
        raise LookupError(f"The study “{self.slug}” has no {kind} dataset.")


@dataclass(frozen=True, eq=False)
class BudgetPlot:
    """Stacked bars of the groups of a study's budget, as an SVG image."""

    title: str
    frame: pd.DataFrame

    @property
    def svg(self) -> str:
        """The image: used, reserved and left of each group's cap from left to right, with the promised ε at the end."""
        height = 30 + 34 * len(self.frame)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" font-family="sans-serif" '
            f'font-size="13"><title>{escape(self.title)}</title>'
            '<text x="0" y="15">used (dark), reserved (outlined), left (light)</text>'
        ]
        for place, group in enumerate(self.frame.to_dict("records")):
            top, start = 30 + 34 * place, 170.0
            parts.append(f'<text x="0" y="{top + 17}">{escape(group["level"])}, policy {group["policy"]}</text>')
            looks = (("used", "#0b6073", "none"), ("reserved", "#ffffff", "#0b6073"), ("left", "#d5e3e6", "none"))
            for part, fill, stroke in looks:
                width = 450.0 * min(1.0, group[f"share_{part}"])
                words = f"{part}: {100 * group[f'share_{part}']:.1f} %, ε {group[f'epsilon_{part}']:.3g}"
                parts.append(
                    f'<rect x="{start:.1f}" y="{top}" width="{width:.1f}" height="24" fill="{fill}" stroke="{stroke}" '
                    f'stroke-dasharray="4 3"><title>{words}</title></rect>'
                )
                start += width
            parts.append(f'<text x="630" y="{top + 17}">ε {group["epsilon"]:g}</text>')
        return "".join([*parts, "</svg>"])

    def _repr_svg_(self) -> str:
        return self.svg


def right_ones(accuracy: float, majority: float | None) -> str:
    """Return an accuracy with its baseline, as in "91.1 % right (most frequent class: 88.5 %)"."""
    beside = "" if majority is None else f" (most frequent class: {100 * majority:.4g} %)"
    return f"{100 * accuracy:.4g} % right{beside}"


def forecasts(document: dict[str, Any]) -> pd.DataFrame:
    """Return the forecasts of a plan or a run, one in each row, with the baseline.

    Columns: ``of``, ``measure`` (share right, unless it is another), ``value``, ``low``, ``high``, ``majority`` (naming
    the most frequent class for every point), ``noiseless``; for a run also ``came`` and ``inside`` the interval.
    """
    columns = ["of", "measure", "value", "low", "high", "majority", "noiseless"]
    columns += [name for name in ("came", "inside") if "status" in document]
    rows = [{**each, "measure": each["measure"] or "share right"} for each in document["forecasts"]]
    return pd.DataFrame(rows, columns=columns)


class Plan(dict[str, Any]):
    """Plan of a run: its document, with the forecasts as a table."""

    @property
    def forecasts(self) -> pd.DataFrame:
        """Forecasts of the plan: see `forecasts`."""
        return forecasts(self)


@dataclass(frozen=True, repr=False)
class Run:
    """A run in its state when it was fetched."""

    id: str
    study: str
    title: str
    status: str
    document: dict[str, Any]

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def done(self) -> float:
        """The part of its stages that is done, 0 to 1."""
        stages = self.document.get("progress", {}).get("stages", [])
        if self.has_ended or not stages:
            return float(self.has_ended)
        return float(sum(stage["share"] for stage in stages)) / len(stages)

    @property
    def without_model(self) -> str:
        """Why a finished run has no published model; empty for a run that has one or leads to none."""
        return str(self.document.get("without_model", ""))

    @property
    def accuracy(self) -> float | None:
        """Share of the test data that its published model classifies right, rounded; None without one."""
        return self.document.get("accuracy")

    @property
    def majority(self) -> float | None:
        """Share that naming the most frequent class for every point gets right: the baseline of `accuracy`."""
        return self.document.get("majority")

    @property
    def forecasts(self) -> pd.DataFrame:
        """Forecasts of its approved plan with the measured results: see `forecasts`."""
        return forecasts(self.document)

    def __repr__(self) -> str:
        right = "" if self.accuracy is None else f", {right_ones(self.accuracy, self.majority)}"
        return f"<Run {self.id} “{self.title}” of {self.study}: {self.standing}{right}>"

    @property
    def standing(self) -> str:
        """Its status in words; for an approved run that waits, also its place and expected start."""
        place, start = self.document.get("place"), self.document.get("expected_start")
        if self.status == "draft":
            reason = self.document.get("reason")
            return f"draft: {reason}" if reason else "draft: an operator has to approve it"
        if self.status == "planning":
            return "approved: its plan is being calculated"
        if place is None:
            return f"{self.status}, no model" if self.without_model else self.status
        begins = f", expected to begin at {datetime.fromisoformat(start).astimezone():%Y-%m-%d %H:%M}" if start else ""
        return f"{self.status}: place {place} in the queue{begins}"


@dataclass(frozen=True, eq=False)
class PublicPoints:
    """All public points of a run, and the releases about some of them.

    Attributes:
        x: (P, ...) float32, encoded as described in the model's document; None if a run has no public points.
        row: (n,) positions of the labelled points in x.
        label: (n,) numbers of their classes.
        counts: (n, classes) noisy counts; None if none were released.
        classes: Names of the classes.
        reinforced: (n,) True if the label is the student's own, which the teachers did not contradict.
    """

    x: npt.NDArray[np.float32] | None
    row: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64] | None
    classes: list[str]
    reinforced: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of rows.

    Attributes:
        classes: Names of the classes; for a model of another target, names of the values that it predicts for a row.
        labels: (n,) the likeliest class of each row; "" if a model on this machine cannot take the row. For another
            target, the site's prediction of each row; None for a model on this machine.
        probabilities: (n, classes), or those values; NaN if the row cannot be taken.
        outside: For each row, the columns with values outside the range that the schema declares: the prediction for
            such a row is based on the end of the range.
    """

    classes: list[str]
    labels: npt.NDArray[np.object_]
    probabilities: npt.NDArray[np.float64]
    outside: list[list[str]]

    def frame(self) -> pd.DataFrame:
        """Return a column “label”, and one with the probability of each class."""
        frame = pd.DataFrame(self.probabilities, columns=self.classes)
        frame.insert(0, "label", self.labels, allow_duplicates=True)
        return frame
