"""Models on this machine that behave like fitted scikit-learn and scikit-survival estimators.

An ONNX file takes the values of a row as they are, so these classes do not need scikit-learn. `LocalModel.of` chooses
the class that fits the model's target.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from ipate_client import charts
from ipate_client.documents import Predictions
from ipate_client.problems import RowsError
from ipate_client.rows import Inputs, Rows, features_of, model_inputs, outside, padded, text_contents, token_inputs

if TYPE_CHECKING:
    from sklearn.utils import Tags

    Self = TypeVar("Self", bound="LocalModel")

Floats = npt.NDArray[np.float64]


class LocalModel(ABC):
    """Model that makes predictions without the site, so that its inputs never leave this machine.

    It is a fitted scikit-learn estimator, which can be cloned, pickled, and put at the end of a pipeline. `fit` has no
    effect, because the model was trained at the site.

    Args:
        content: The ONNX file.
    """

    _estimator_type: ClassVar[str]

    def __init__(self, content: bytes) -> None:
        self.content = content

    @staticmethod
    def of(content: bytes) -> LocalModel:
        """Return the model stored in an ONNX file from the site."""
        target = LocalClassifier(content).schema.get("target") or {}
        return _KINDS[target.get("kind", "classes")](content)

    @staticmethod
    def load(path: str | Path) -> LocalModel:
        """Return a model from a file written by `save`."""
        return LocalModel.of(Path(path).read_bytes())

    def save(self, path: str | Path) -> None:
        """Write the model as an ONNX file, which any ONNX runtime can read."""
        Path(path).write_bytes(self.content)

    def to_hub_folder(self, folder: str | Path, *, licence: str, title: str = "") -> Path:
        """Write the model as a Hugging Face Hub repository; see `exports.hub_folder`."""
        from ipate_client.exports import hub_folder

        return hub_folder(self, folder, licence=licence, title=title)

    def to_mlflow(self, path: str | Path) -> Path:
        """Write the model in MLflow's ONNX flavour; see `exports.mlflow_model`."""
        from ipate_client.exports import mlflow_model

        return mlflow_model(self, path)

    def to_skops(self, path: str | Path) -> Path:
        """Write the model in the skops format; see `exports.skops_file`."""
        from ipate_client.exports import skops_file

        return skops_file(self, path)

    # --- Content of the file

    @cached_property
    def _session(self) -> Any:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # from 1.32 on, it would otherwise send telemetry
        try:
            import onnxruntime
        except ImportError:
            raise ImportError("Models on this machine need onnxruntime: pip install ipate-client[models]") from None
        return onnxruntime.InferenceSession(self.content, providers=["CPUExecutionProvider"])

    @cached_property
    def _documents(self) -> dict[str, str]:
        return dict(self._session.get_modelmeta().custom_metadata_map)

    @cached_property
    def columns(self) -> list[str]:
        """Names of the classes; for another kind of target, names of the values predicted for a row."""
        return list(json.loads(self._documents.get("classes") or self._documents["columns"]))

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Schema of a row."""
        return dict(json.loads(self._documents["schema"]))

    @cached_property
    def card(self) -> dict[str, Any]:
        """Information for users of the model."""
        return dict(json.loads(self._documents["card"]))

    # --- Predictions

    def predictions(self, rows: Rows) -> Predictions:
        """Return predictions for rows, identical to those of the site's `predict`.

        Raises:
            RowsError: a row is invalid; the site gives the same error message.
            ValueError: the file does not contain the model's encoder.
        """
        inputs = self._inputs(rows)
        *labels, values = self._session.run(None, inputs)
        refused = np.flatnonzero(np.isnan(values).any(axis=1))
        if len(refused):  # the file does not list the codes that the schema needs
            raise RowsError("The model cannot use this row.", "Correct its codes.", row=int(refused[0]) + 1)
        answers = labels[0] if labels else self._answers(values)
        return Predictions(self.columns, answers, values, outside(self.schema, inputs, len(values)))

    @abstractmethod
    def predict(self, X: Rows) -> npt.NDArray[Any]:  # noqa: N803
        """Return a prediction for each row."""

    @abstractmethod
    def score(self, X: Rows, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return a score for the predictions of these rows, using the usual measure for this kind of model."""

    @abstractmethod
    def _answers(self, values: Floats) -> npt.NDArray[np.object_]:
        """Return the same predictions as the site, computed from the values that a file without labels outputs."""

    def _inputs(self, rows: Rows) -> Inputs:
        names = {each.name for each in self._session.get_inputs()}
        if self.card.get("encoder") and "vectors" in names:
            raise ValueError(
                f"The file does not contain its encoder, {self.card['encoder']['name']} (SHA-256 "
                f"{self.card['encoder']['file_digest']}): encode the rows with it, and give the session “vectors”."
            )
        if not any(column["role"] == "text" for column in features_of(self.schema)):
            return model_inputs(self.schema, json.loads(self._documents.get("codes", "{}")), rows)
        contents = text_contents(self.schema, rows)
        if "text" in names:
            return {"text": padded([np.frombuffer(content, np.uint8) for content in contents])}
        length = self.card["encoder"]["takes"]["length"]
        return token_inputs(self._documents.get("tokenizer", ""), length, contents)

    # --- A scikit-learn estimator

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the input columns; images have none."""
        if self.schema["kind"] == "image":
            raise AttributeError("Images have no feature names.")
        return np.array([column["name"] for column in features_of(self.schema)], object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns of a row, or of pixels and channels of an image."""
        if self.schema["kind"] == "image":
            return int(self.schema["height"] * self.schema["width"] * self.schema["channels"])
        return len(self.feature_names_in_)

    def fit(self: Self, X: Any = None, y: Any = None) -> Self:  # noqa: N803
        """Return the model unchanged, because it was trained at the site."""
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the content of the file, which is the only parameter that scikit-learn needs to clone the model."""
        return {"content": self.content}

    def set_params(self: Self, **params: Any) -> Self:
        """Replace the file with that of another model of the same kind."""
        if unknown := sorted(params.keys() - {"content"}):
            raise ValueError(
                f"Invalid parameter {unknown[0]!r} for {type(self).__name__}: its only parameter is “content”."
            )
        if params:
            self.__dict__.clear()  # including cached values from the previous file
            self.content = params["content"]
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        is_classifier = self._estimator_type == "classifier"
        columns = features_of(self.schema)
        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=False, multi_output=isinstance(self, LocalLabeller)),
            classifier_tags=ClassifierTags() if is_classifier else None,
            regressor_tags=None if is_classifier else RegressorTags(),
            input_tags=InputTags(
                two_d_array=bool(columns),
                three_d_array=not columns,
                categorical=any(column.get("type") == "categorical" for column in columns),
                string=any(column.get("type") not in ("numeric", "date") for column in columns),
            ),
            requires_fit=False,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"content": self.content}

    def _repr_html_(self) -> str:
        return charts.block(type(self).__name__, ", ".join(self.columns[:8]), charts.card(self.card))

    def __repr__(self) -> str:
        learned = f" of run {self.card['run']}" if "run" in self.card else ""
        return f"<{type(self).__name__}{learned}: {', '.join(self.columns[:8])}{', …' * (len(self.columns) > 8)}>"


class LocalClassifier(LocalModel):
    """Model that predicts classes."""

    _estimator_type = "classifier"

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """Names of the classes, in the order of `predict_proba`."""
        return np.array(self.columns)

    def predict(self, X: Rows) -> npt.NDArray[np.str_]:  # noqa: N803
        """Return the class (n,) of each row: the likeliest, or the one that the card's threshold selects."""
        return self.predictions(X).labels.astype(str)

    def predict_proba(self, X: Rows) -> Floats:  # noqa: N803
        """Return the probability (n, classes) of each class."""
        return self.predictions(X).probabilities

    def predict_log_proba(self, X: Rows) -> Floats:  # noqa: N803
        """Return the logarithms (n, classes) of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def score(self, X: Rows, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the share of rows with the correct class."""
        return float(np.average(self.predict(X) == np.asarray(y).astype(str), weights=sample_weight))

    def _answers(self, values: Floats) -> npt.NDArray[np.object_]:
        return _objects([self.columns[place] for place in values.argmax(axis=1)])


class LocalRegressor(LocalModel):
    """Model that predicts numbers."""

    _estimator_type = "regressor"

    def predict(self, X: Rows) -> Floats:  # noqa: N803
        """Return the predicted number (n,) for each row."""
        return np.asarray(self.predictions(X).probabilities[:, 0])

    def predict_interval(self, X: Rows) -> Floats:  # noqa: N803
        """Return an interval (n, 2) for each row. About 95 % of the intervals should contain the true number."""
        return np.asarray(self.predictions(X).probabilities[:, 1:3])

    def score(self, X: Rows, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return R²."""
        truth = np.asarray(y, np.float64)
        weights = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        spread = weights @ (truth - np.average(truth, weights=weights)) ** 2
        return float(1.0 - weights @ (truth - self.predict(X)) ** 2 / spread)

    def _answers(self, values: Floats) -> npt.NDArray[np.object_]:
        return _objects(values[:, 0].tolist())


class LocalLabeller(LocalModel):
    """Model that predicts any number of labels for a row."""

    _estimator_type = "classifier"

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """Names of the labels, in the order of `predict_proba`."""
        return np.array(self.columns)

    def predict(self, X: Rows) -> npt.NDArray[np.int64]:  # noqa: N803
        """Return an array (n, labels) with 1 for each label that is more likely than not and 0 otherwise."""
        return (self.predict_proba(X) > 0.5).astype(np.int64)

    def predict_proba(self, X: Rows) -> Floats:  # noqa: N803
        """Return the probability (n, labels) of each label."""
        return self.predictions(X).probabilities

    def score(self, X: Rows, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the share of rows for which all labels are correct; y is (n, labels)."""
        return float(np.average((self.predict(X) == np.asarray(y)).all(axis=1), weights=sample_weight))

    def _answers(self, values: Floats) -> npt.NDArray[np.object_]:
        return _objects([[name for name, value in zip(self.columns, row) if value > 0.5] for row in values])


class LocalSurvivalModel(LocalModel):
    """Model that predicts times to an event, following the conventions of scikit-survival."""

    _estimator_type = "regressor"

    @property
    def unique_times_(self) -> Floats:
        """Times (m,) at which the survival functions are known."""
        return np.array(self.schema["target"]["ends"], np.float64)

    def predict(self, X: Rows) -> Floats:  # noqa: N803
        """Return the risk (n,) of each row: the sum of its cumulative hazards, which is higher for earlier events."""
        return np.asarray(self._cumulative_hazards(X).sum(axis=1))

    def predict_survival_function(self, X: Rows, return_array: bool = False) -> npt.NDArray[Any]:  # noqa: N803
        """Return the probabilities that the event has not happened by the times in `unique_times_`.

        Args:
            X: Rows.
            return_array: Whether to return an array (n, m) instead of n scikit-survival step functions.
        """
        values = self.predictions(X).probabilities
        return values if return_array else self._step_functions(values)

    def predict_cumulative_hazard_function(
        self,
        X: Rows,  # noqa: N803
        return_array: bool = False,
    ) -> npt.NDArray[Any]:
        """Return the cumulative hazards, like `predict_survival_function`."""
        values = self._cumulative_hazards(X)
        return values if return_array else self._step_functions(values)

    def score(self, X: Rows, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return Harrell's concordance index.

        Args:
            X: Rows.
            y: Structured array: whether the event happened, and the time of the event or of the end of follow-up.
            sample_weight: Not used, as in scikit-survival.
        """
        happened, time = (np.asarray(y[name]) for name in y.dtype.names[:2])
        return concordance(happened.astype(bool), time.astype(np.float64), self.predict(X))

    def _cumulative_hazards(self, rows: Rows) -> Floats:
        return np.asarray(-np.log(np.maximum(self.predictions(rows).probabilities, 1e-12)))

    def _step_functions(self, values: Floats) -> npt.NDArray[np.object_]:
        try:
            from sksurv.functions import StepFunction
        except ImportError:
            raise ImportError("Step functions need scikit-survival; without it, pass return_array=True.") from None
        return _objects([StepFunction(self.unique_times_, row) for row in values])

    def _answers(self, values: Floats) -> npt.NDArray[np.object_]:
        """Return the median times, or None for each median beyond the last interval."""
        ends = np.append(0.0, self.unique_times_)
        answers: list[float | None] = []
        for left in np.hstack([np.ones((len(values), 1)), values]):
            after = int(np.searchsorted(-left, -0.5))
            if after >= len(left):
                answers.append(None)
                continue
            share = (left[after - 1] - 0.5) / max(left[after - 1] - left[after], 1e-12)
            answers.append(float(ends[after - 1] + share * (ends[after] - ends[after - 1])))
        return _objects(answers)


def concordance(happened: npt.NDArray[np.bool_], time: Floats, risk: Floats) -> float:
    """Return Harrell's concordance index: the share of pairs with the higher risk at the earlier event.

    A pair is included if an event happened at the earlier time; if the times are equal, one must be censored. A tie in
    risk counts as half.

    >>> concordance(np.array([True, True, False]), np.array([1.0, 2.0, 2.0]), np.array([3.0, 1.0, 1.0]))
    0.8333333333333334
    """
    right, pairs = 0.0, 0
    for place in np.flatnonzero(happened):
        later = risk[(time > time[place]) | ((time == time[place]) & ~happened)]
        tied = np.abs(later - risk[place]) <= 1e-8
        right += float(np.count_nonzero((later < risk[place]) & ~tied)) + 0.5 * float(np.count_nonzero(tied))
        pairs += len(later)
    return right / pairs if pairs else float("nan")


def _objects(values: list[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


_KINDS: dict[str, type[LocalModel]] = {
    "classes": LocalClassifier,
    "numbers": LocalRegressor,
    "labels": LocalLabeller,
    "times": LocalSurvivalModel,
}
