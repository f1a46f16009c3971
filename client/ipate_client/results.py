"""Results of runs: labels, tables, synthetic rows, models, and student versions."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ipate_client.charts import Svg, bars
from ipate_client.connection import at
from ipate_client.documents import Card, Predictions, PublicPoints, Run, id_of
from ipate_client.frames import frame, of_schema, pandas
from ipate_client.local_model import LocalModel
from ipate_client.problems import ProblemError, RowsError
from ipate_client.rows import Rows, features_of, sendable
from ipate_client.runs import Runs

if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_ONCE = 1000
"""Maximum number of rows that the site accepts in a request."""


class Results(Runs):
    """Requests about the results of runs."""

    def labels(self, run: Run | str) -> pd.DataFrame:
        """Return the released labels, indexed by row of the public dataset.

        If noisy counts were released, there is a column count_… for each class. If any labels are the student's own
        predictions, the column ``reinforced`` is 1 for them.

        The study's release register records this download.
        """
        content = self._download(at("runs", id_of(run), "labels"), {"format": "csv"})
        return _read(content, index_col="row", dtype={"label": str})

    def public_points(self, run: Run | str) -> PublicPoints:
        """Return all public points of a run, with the released labels and counts for some of them."""
        content = self._download(at("runs", id_of(run), "labels"), {"format": "npz"})
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            points = {name: arrays[name] for name in arrays.files}
        classes = points["classes"].tolist()
        return PublicPoints(
            points.get("x"), points["row"], points["label"], points.get("counts"), classes, points["reinforced"]
        )

    def counts(self, run: Run | str) -> pd.DataFrame:
        """Return the table of a *counts* run: values of its columns, people, intervals, and sums of weights.

        The interval from least_95 to most_95 is valid for every distribution of levels among the cells. If people are
        weighted by their promise, the interval from low_95 to high_95 assumes a random distribution.

        The study's release register records this download.
        """
        table = _read(self._download(at("runs", id_of(run), "table"), {"format": "csv"}), dtype=str)
        numbers = ["people", "low_95", "high_95", "weighted", "least_95", "most_95"]
        return table.astype(dict.fromkeys(numbers, np.float64))

    def counts_plot(self, run: Run | str) -> Svg:
        """Return an image of the table of a *counts* run: the number of people in each cell, with intervals."""
        cells = self._json("GET", at("runs", id_of(run), "table"))["cells"]
        rows = [(", ".join(map(str, each["values"])), each["people"], each["least"], each["most"]) for each in cells]
        return Svg(bars("People", rows))

    def synthetic_rows(self, run: Run | str) -> pd.DataFrame:
        """Return the rows drawn by a *synthesis* run, with the columns of the schema and the class column last.

        Columns have the types of the schema: numbers, string categories, strings. The study's release register records
        this download.
        """
        row = self.run(run)
        read = _read(self._download(at("runs", row.id, "rows"), {"format": "csv"}), dtype=str)
        datasets = self._json("GET", at("studies", row.study))["datasets"]
        schemas = [each["schema"] for each in datasets if each["id"] == row.document["private_dataset"]]
        return of_schema(read, schemas[0] if schemas else None)

    def summaries(self, run: Run | str) -> pd.DataFrame:
        """Return the mean and quartiles of the numeric column of a *counts* run, with intervals; one row per group."""
        summaries = self._json("GET", at("runs", id_of(run), "table"))["summaries"]
        rows = []
        for each in summaries:
            row = {"column": each["column"], "group": each["group"]}
            for name, estimate in zip(("mean", "q25", "median", "q75"), [each["mean"], *each["quantiles"]]):
                known = estimate or dict.fromkeys(("value", "low", "high"), float("nan"))
                row |= {name: known["value"], f"{name}_low": known["low"], f"{name}_high": known["high"]}
            rows.append(row)
        return frame(rows)

    def withdraw_table(self, run: Run | str, *, reason: str) -> dict[str, Any]:
        """Withdraw a run's table or synthetic rows permanently, as an operator.

        Args:
            run: A finished run of *counts* or *synthesis*.
            reason: Shown to everyone who has downloaded the data or requests it.
        """
        return self._json("POST", at("runs", id_of(run), "table", "withdraw"), json={"reason": reason})

    def models(self, **filters: str) -> list[dict[str, Any]]:
        """Return the published models that you may use, newest first, optionally filtered by ``study`` or ``stage``."""
        return list(self._pages("models", filters))

    def stage(self, run: Run | str, stage: str) -> dict[str, Any]:
        """Set the stage of a run's published model: candidate, production or archived. For operators."""
        return self._json("POST", at("models", id_of(run), "stage"), json={"stage": stage})

    def card(self, run: Run | str, *, version: int | None = None) -> Card:
        """Return the document of a run's model: its card, the schema of a row, and its files."""
        return Card(self._json("GET", at("models", id_of(run)), params=version_of(version)))

    def model(self, run: Run | str, *, version: int | None = None) -> LocalModel:
        """Return the model of a run as a fitted scikit-learn estimator for predictions on this machine.

        Args:
            run: A finished run.
            version: Version of the student; by default the published one.

        Raises:
            ValueError: the file does not match the site's digest.
        """
        return LocalModel.of(self._download(at("models", id_of(run), "onnx"), version_of(version)))

    def model_file(self, run: Run | str, *, version: int | None = None) -> bytes:
        """Return the weights of a run's model as a skops (scikit-learn) or safetensors (networks) file."""
        return self._download(at("models", id_of(run), "file"), version_of(version))

    def statement(self, run: Run | str, *, version: int | None = None) -> str:
        """Return a JSON Web Signature of a model's card and digests, which you can check with the public `keys`."""
        return str(self._json("GET", at("models", id_of(run), "statement"), params=version_of(version))["statement"])

    def keys(self) -> list[dict[str, Any]]:
        """Return the site's public keys as JSON Web Keys and as PEM, starting with the current key."""
        return list(self._json("GET", "keys")["keys"])

    def set_threshold(self, run: Run | str, class_name: str, **costs: float) -> dict[str, Any]:
        """Set the minimum probability for predicting a class, as an operator; return the model's document.

        Args:
            run: A finished run.
            class_name: The class. If empty, the model predicts the likeliest class again.
            **costs: ``missed`` and ``false_alarm``, the costs of the two kinds of mistake; or ``sensitivity``, the
                share of the class's records to find.
        """
        return self._json("POST", at("models", id_of(run), "threshold"), json={"class_name": class_name, **costs})

    def students(self, run: Run | str) -> dict[str, Any]:
        """Return the ``versions`` of a run's student with their evaluations, and any ``training`` in progress."""
        return self._json("GET", at("runs", id_of(run), "students"))

    def train_student(
        self, run: Run | str, student_learner: str, student_parameters: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Train the student of a finished run again on its releases, at no privacy cost; return all versions.

        Args:
            run: A finished run.
            student_learner: Name of a student, see `student_learners`.
            student_parameters: Parameters of the student; parameters that are left out take their default values.
        """
        sent = {"student_learner": student_learner, "student_parameters": dict(student_parameters or {})}
        return self._once(at("runs", id_of(run), "students"), json=sent)

    def publish_version(self, run: Run | str, *, version: int, reason: str = "") -> list[dict[str, Any]]:
        """Make a version of a run's student its published model, as an operator; return all versions.

        Args:
            run: A finished run.
            version: Version of its student.
            reason: Shown on the card; required for a version that the run would not publish automatically.
        """
        path = at("runs", id_of(run), "students", version, "publish")
        return list(self._json("POST", path, json={"reason": reason} if reason else {})["versions"])

    def predict(self, run: Run | str, rows: Rows, *, version: int | None = None) -> Predictions:
        """Return the site's predictions for any number of rows. Raises RowsError, with the row, if one is invalid."""
        names = None
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            names = [column["name"] for column in features_of(self.card(run, version=version)["schema"])] or None
        sent, parts = sendable(rows, names), []
        for start in range(0, max(len(sent), 1), ROWS_AT_ONCE):
            question = {"rows": sent[start : start + ROWS_AT_ONCE]}
            try:
                path, asked = at("models", id_of(run), "predict"), version_of(version)
                parts.append(self._asked(path, json=question, params=asked))
            except ProblemError as problem:
                raise RowsError.by_site(problem, before=start) or problem from None
        labels = [label for part in parts for label in part["predictions"]]
        columns, values = ("classes", "probabilities") if "classes" in parts[0] else ("columns", "values")
        probabilities = np.concatenate([np.asarray(part[values], np.float64) for part in parts])
        outside = [names for part in parts for names in part["outside"]]
        answers = np.empty(len(labels), object)
        answers[:] = labels
        return Predictions(parts[0][columns], answers, probabilities, outside)

    def withdraw_version(self, run: Run | str, *, version: int, reason: str) -> list[dict[str, Any]]:
        """Withdraw a version of a run's student permanently, as an operator; return all its versions afterwards.

        Args:
            run: A finished run.
            version: Version of its student.
            reason: Shown to everyone who has downloaded the model or requests it.
        """
        path = at("runs", id_of(run), "students", version, "withdraw")
        return list(self._json("POST", path, json={"reason": reason})["versions"])


def version_of(version: int | None) -> dict[str, Any]:
    """Return the query parameter for a version of a model."""
    return {} if version is None else {"version": version}


def _read(content: bytes, **options: Any) -> pd.DataFrame:
    read: pd.DataFrame = pandas().read_csv(io.BytesIO(content), keep_default_na=False, **options)
    return read
