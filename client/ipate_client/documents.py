"""Typed versions of the site's documents. ``document`` contains all fields by their API names."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ipate_client import charts
from ipate_client.frames import frame
from ipate_client.proposals import Proposals

if TYPE_CHECKING:
    import pandas as pd

    from ipate_client.connection import Connection
    from ipate_client.local_model import LocalModel
    from ipate_client.site import Site

ENDED = ("finished", "failed", "cancelled", "withdrawn")
"""States of runs that no longer change."""


@dataclass(frozen=True)
class Dataset:
    """Dataset of a study: private, public (points to be labelled) or test."""

    id: int
    name: str
    kind: str
    classes: list[str]
    shape: tuple[int, ...]
    document: dict[str, Any]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Dataset:
        """Return the dataset that a document describes."""
        shape = tuple(document["shape"])
        return cls(document["id"], document["name"], document["kind"], document["classes"], shape, document)


@dataclass(frozen=True)
class Study(Proposals):
    """Study whose runs you may see. Methods such as `propose_pate` propose a run, and `plan_pate` only plans it."""

    slug: str
    title: str
    delta: float
    rehearsal: bool
    document: dict[str, Any] = field(repr=False, compare=False)
    connection: Connection | None = field(default=None, repr=False, compare=False)

    @property
    def site(self) -> Site:
        """The site that this object was fetched from. Raises ValueError if there is none."""
        return _site(self.connection)

    def budget(self) -> pd.DataFrame:
        """Return the budget that each privacy group has used in all runs; see `Site.budget`."""
        return self.site.budget(self)

    def budget_plot(self) -> BudgetPlot:
        """Return a bar chart, for notebooks, of each privacy group's used, reserved and remaining budget."""
        return BudgetPlot(self.title, self.site.budget_groups(self))

    def runs(self, **filters: str) -> list[Run]:
        """Return the study's runs, newest first; see `Site.runs`."""
        return self.site.runs(study=self.slug, **filters)

    @property
    def datasets(self) -> list[Dataset]:
        """The study's datasets. A study that came from a list is fetched again."""
        if "datasets" not in self.document and self.connection is not None:
            return self.site.study(self.slug).datasets
        return [Dataset.of(each) for each in self.document.get("datasets", [])]

    def dataset(self, kind: str) -> int:
        """Return the id of the study's first dataset of a kind, for use in proposals.

        Raises:
            LookupError: the study has no such dataset.
        """
        for each in self.datasets:
            if each.kind == kind:
                return each.id
        raise LookupError(f"The study “{self.slug}” has no {kind} dataset.")

    def _repr_html_(self) -> str:
        sets = [(each.kind, each.name, each.document["rows"], each.id) for each in self.datasets]
        levels = [(each["level"], each["epsilon"]) for each in self.document.get("levels", [])]
        parts = [charts.table(("Level", "ε"), levels), charts.table(("Dataset", "Name", "Rows", "Id"), sets)]
        return charts.block(self.title, f"{self.slug}, δ = {self.delta:g}{', rehearsal' * self.rehearsal}", *parts)


@dataclass(frozen=True, eq=False)
class BudgetPlot:
    """Stacked bar chart of the budgets of a study's groups, as an SVG image."""

    title: str
    groups: list[dict[str, Any]]

    @property
    def svg(self) -> str:
        """SVG source, showing the used, reserved and remaining parts of each group's cap, and the promised ε."""
        return charts.budget_bars(self.title, self.groups)

    def _repr_svg_(self) -> str:
        return self.svg


def right_ones(accuracy: float, majority: float | None) -> str:
    """Return an accuracy with its baseline, such as "91.1 % right (most frequent class: 88.5 %)"."""
    beside = "" if majority is None else f" (most frequent class: {100 * majority:.4g} %)"
    return f"{100 * accuracy:.4g} % right{beside}"


def forecasts(document: dict[str, Any]) -> pd.DataFrame:
    """Return the forecasts of a plan or a run, one per row, with the baseline.

    Columns: ``of``, ``measure`` (by default “share right”), ``value``, ``low``, ``high``, ``majority`` (the result of
    always predicting the most frequent class), ``noiseless``; for a run also ``came`` (the measured result) and
    ``inside`` (whether the result lies in the interval).
    """
    columns = ["of", "measure", "value", "low", "high", "majority", "noiseless"]
    columns += [name for name in ("came", "inside") if "status" in document]
    rows = [{**each, "measure": each["measure"] or "share right"} for each in document["forecasts"]]
    return frame(rows, columns=columns)


class Plan(dict[str, Any]):
    """Plan of a run: its document, and the forecasts as a table."""

    @property
    def forecasts(self) -> pd.DataFrame:
        """Forecasts of the plan; see `forecasts`."""
        return forecasts(self)

    def plot(self) -> charts.Svg:
        """Return an image of the forecasts with their intervals and the baseline."""
        return charts.Svg(charts.intervals("Forecast", self["forecasts"]))

    def _repr_html_(self) -> str:
        drawn = charts.intervals("Forecast", self["forecasts"]) if self["forecasts"] else ""
        notes = [note for note in self["notes"] if note not in self["outlook"]["doubts"]]
        return charts.block("Plan", "", drawn, charts.outlook(self["outlook"]), charts.items(notes))


class Card(dict[str, Any]):
    """Document of a model: its ``card``, the ``schema`` of a row, and its ``files``."""

    def plot(self) -> charts.Svg:
        """Return an image of the model's measures on the test dataset, with their intervals."""
        return charts.Svg(charts.measures(self["measures"] or {}))

    def _repr_html_(self) -> str:
        beside = f"{self['study']}, version {self['version']}, {self['stage']}{', rehearsal' * self['rehearsal']}"
        gone = [f"Withdrawn. {self['withdrawal_reason']}"] if self["withdrawn_at"] else []
        return charts.block(self["title"], beside, charts.items(gone), charts.card(self["card"]))


@dataclass(frozen=True, repr=False)
class Run:
    """Run as of the time when it was fetched. `refresh` fetches it again."""

    id: str
    study: str
    title: str
    status: str
    summary: dict[str, Any] = field(compare=False)
    connection: Connection | None = field(default=None, compare=False)

    @property
    def site(self) -> Site:
        """The site that this object was fetched from. Raises ValueError if there is none."""
        return _site(self.connection)

    @cached_property
    def document(self) -> dict[str, Any]:
        """All fields by their API names. Fields that lists omit are fetched on first access."""
        if "progress" in self.summary or self.connection is None:
            return self.summary
        return self.site.run(self.id).summary

    def refresh(self) -> Run:
        """Return the run in its current state."""
        return self.site.run(self.id)

    def wait(self, *, every: float = 5.0, timeout: float | None = None, progress: bool = True) -> Run:
        """Wait until the run is finished; see `Site.wait`."""
        return self.site.wait(self.id, every=every, timeout=timeout, progress=progress)

    def model(self, *, version: int | None = None) -> LocalModel:
        """Return the run's model for predictions on this machine; see `Site.model`."""
        return self.site.model(self.id, version=version)

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def method(self) -> str:
        """Name of the run's method: neighbours, pate, sgd, counts or synthesis."""
        return str(self.summary["method"])

    @property
    def variant(self) -> str:
        """Variant of the method; empty if the method has only one."""
        return str(self.summary["variant"])

    @property
    def rehearsal(self) -> bool:
        """Whether the run's study is a rehearsal, which promises no privacy."""
        return bool(self.summary["rehearsal"])

    @property
    def labels(self) -> int:
        """Number of queries that were answered with a label."""
        return int(self.summary["labels"])

    @property
    def created_by(self) -> str | None:
        """Name of the user who proposed the run."""
        return cast("str | None", self.summary["created_by"])

    @property
    def created_at(self) -> datetime:
        """Time of the proposal."""
        return cast(datetime, _time(self.summary["created_at"]))

    @property
    def approved_at(self) -> datetime | None:
        """Time of the approval; None before that."""
        return _time(self.document["approved_at"])

    @property
    def started_at(self) -> datetime | None:
        """Time when a worker started the run; None before that."""
        return _time(self.document["started_at"])

    @property
    def ended_at(self) -> datetime | None:
        """Time when the run ended; None before that."""
        return _time(self.summary["ended_at"])

    @property
    def purpose(self) -> str:
        return str(self.document["purpose"])

    @property
    def choices(self) -> dict[str, Any]:
        """The choices for the run's method, by name."""
        return dict(self.document["choices"])

    @property
    def share(self) -> float | None:
        """Share of every holder's cap that the run may use; None before the approval."""
        return cast("float | None", self.document["share"])

    @property
    def revision(self) -> int:
        """Revision of the proposal, to be passed to `Site.approve`."""
        return int(self.document["revision"])

    @property
    def reason(self) -> str:
        """Reason why the run ended, or why the last approval of a draft failed; otherwise empty."""
        return str(self.document.get("reason") or "")

    @property
    def done(self) -> float:
        """Completed share of the run's stages, from 0 to 1."""
        if self.has_ended:
            return 1.0
        stages = self.document.get("progress", {}).get("stages", [])
        return float(sum(stage["share"] for stage in stages)) / len(stages) if stages else 0.0

    @property
    def without_model(self) -> str:
        """Reason why a finished run has no published model; empty if it has one or its method does not produce one."""
        return str(self.document.get("without_model", ""))

    @property
    def accuracy(self) -> float | None:
        """Rounded share of the test data that the published model classifies correctly; None if unknown."""
        return self.summary.get("accuracy")

    @property
    def majority(self) -> float | None:
        """Share of the test points that belong to the most frequent class: the baseline for `accuracy`."""
        return self.summary.get("majority")

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean of the accuracies within each class of the test data; low if the model misses rare classes."""
        return self.summary.get("balanced_accuracy")

    @property
    def forecasts(self) -> pd.DataFrame:
        """Forecasts of the approved plan with the measured results; see `forecasts`."""
        return forecasts(self.document)

    def plot(self) -> charts.Svg:
        """Return an image of the plan's forecasts and, once available, the results."""
        return charts.Svg(charts.intervals("Forecast and result", self.document["forecasts"]))

    def __repr__(self) -> str:
        right = "" if self.accuracy is None else f", {right_ones(self.accuracy, self.majority)}"
        return f"<Run {self.id} “{self.title}” of {self.study}: {self.status_text}{right}>"

    def _repr_html_(self) -> str:
        right = "" if self.accuracy is None else right_ones(self.accuracy, self.majority)
        facts: list[tuple[str, Any]] = [
            ("Status", self.status_text),
            ("Method", f"{self.method} {self.variant}".strip()),
            ("Result", right),
        ]
        facts += [("Labels", self.labels), ("Proposed by", self.created_by), ("Id", self.id)]
        known = self.document.get("forecasts")
        drawn = charts.intervals("Forecast and result", known) if known else ""
        expected = charts.outlook(self.document["outlook"]) if self.document.get("outlook") else ""
        bar = "" if self.has_ended else charts.progress(self.done)
        return charts.block(self.title, self.study, bar, charts.facts(facts), drawn, expected)

    @property
    def status_text(self) -> str:
        """The run's status in words. For a run in the queue, this includes its place and expected start."""
        if self.status == "draft":
            return f"draft: {self.reason or 'an operator has to approve it'}"
        if self.status == "planning":
            return "approved: its plan is being calculated"
        place, start = self.document.get("place"), _time(self.document.get("expected_start"))
        if place is None:
            return f"{self.status}, no model" if self.without_model else self.status
        begins = f", expected to begin at {start.astimezone():%Y-%m-%d %H:%M}" if start else ""
        return f"{self.status}: place {place} in the queue{begins}"


@dataclass(frozen=True, eq=False)
class PublicPoints:
    """All public points of a run, with the releases for some of them.

    Attributes:
        x: (P, ...) float32, encoded as described in the model's document; None if a run has no public points.
        row: (n,) indices of the labelled points in x.
        label: (n,) class numbers of these points.
        counts: (n, classes) noisy counts; None if none were released.
        classes: Names of the classes.
        reinforced: (n,) True if the label is the student's own prediction, which the teachers did not contradict.
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
        classes: Names of the classes; for another kind of target, names of the values predicted for a row.
        labels: (n,) class of each row: the likeliest, or the one that the model's threshold selects. For another
            target, the prediction for each row: a number, a median time, or the names of labels.
        probabilities: (n, classes) probabilities; for another target, the predicted values.
        outside: For each row, the columns with values outside the range that the schema declares. The prediction uses
            the nearest value in the range instead.
    """

    classes: list[str]
    labels: npt.NDArray[np.object_]
    probabilities: npt.NDArray[np.float64]
    outside: list[list[str]]

    def frame(self) -> pd.DataFrame:
        """Return a data frame with a column “label” and a column of probabilities for each class."""
        table = frame(self.probabilities, self.classes)
        table.insert(0, "label", self.labels, allow_duplicates=True)
        return table


def id_of(run: Run | str) -> str:
    """Return the id of a run."""
    return run.id if isinstance(run, Run) else run


def slug_of(study: Study | str) -> str:
    """Return the slug of a study."""
    return study.slug if isinstance(study, Study) else study


def _site(connection: Connection | None) -> Site:
    if connection is None:
        raise ValueError("This object does not come from a site. Use Site.study or Site.run.")
    return cast("Site", connection)


def _time(text: str | None) -> datetime | None:
    """Return a time from the API. Replaces “Z”, which older Python versions cannot parse, with a numeric offset."""
    return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))
