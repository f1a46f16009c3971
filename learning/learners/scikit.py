"""Learners from scikit-learn: random forest, logistic regression, nearest neighbour."""

from __future__ import annotations

import io
import re
import zipfile
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from common.progress import Progress
from common.sentences import gettext_noop
from learning.learners.learner import Augmenting, Labels, Learner, Model, Records, parameter

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression as ScikitLogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    from learning.exports.graph import Graph

_SCHEMA = "schema.json"


class ScikitModel(Model):
    """Fitted scikit-learn classifier that flattens images and returns the probabilities of all classes."""

    def __init__(self, estimator: Any, classes: int, shape: tuple[int, ...]) -> None:
        super().__init__(classes, shape)
        self.estimator = estimator

    def to_bytes(self) -> bytes:
        from skops.io import dumps

        content = {"estimator": self.estimator, "classes": self.classes, "shape": list(self.shape)}
        return _plain(dumps(content))

    def to_graph(self, graph: Graph, records: str) -> str:
        from learning.exports.estimators import estimator_probabilities

        return estimator_probabilities(graph, records, self.estimator, self.classes)

    def _probabilities(self, x: Records) -> npt.NDArray[np.float64]:
        probabilities = np.zeros((len(x), self.classes))
        probabilities[:, self.estimator.classes_] = self.estimator.predict_proba(x.reshape(len(x), -1))
        return probabilities


def _plain(archive: bytes) -> bytes:
    """Return the compressed archive without timestamps and memory addresses, so equal models give identical files."""
    numbers: dict[bytes, int] = {}
    content = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(content, "w") as target:
        schema = source.read(_SCHEMA)
        for match in re.findall(rb'"__id__": (\d+)', schema):
            numbers.setdefault(match, len(numbers))

        def numbered(text: bytes) -> bytes:
            return re.sub(rb"\d+", lambda match: b"%d" % numbers.get(match[0], int(match[0])), text)

        schema = re.sub(rb'"__id__": \d+|"file": "\d+\.np[yz]"', lambda match: numbered(match[0]), schema)
        for info in source.infolist():
            name, member = info.filename, source.read(info)
            if name == _SCHEMA:
                member = schema
            else:
                name = numbered(name.encode()).decode()
            # Every member gets the earliest date that the zip format supports.
            target.writestr(zipfile.ZipInfo(name), member, compress_type=zipfile.ZIP_DEFLATED)
    return content.getvalue()


def scikit_model(data: bytes, estimator: type, name: str, trusted_types: Sequence[str] = ()) -> ScikitModel:
    """Return a stored model whose estimator has this class. Only listed types, and those trusted by skops, are loaded.

    Raises:
        ValueError: The bytes are not such a model; the message describes the expected model as `name`.
    """
    from sklearn.dummy import DummyClassifier
    from skops.io import loads
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        content = loads(data, trusted=list(trusted_types))
        core, classes, shape = content["estimator"], content["classes"], tuple(content["shape"])
    except UntrustedTypesFoundException as error:
        raise ValueError(f"The stored model was refused, because it contains untrusted types. {error}") from error
    except (zipfile.BadZipFile, KeyError, TypeError) as error:
        raise ValueError("The stored model cannot be read; train it again.") from error
    if not isinstance(core, estimator | DummyClassifier):
        raise ValueError(f"The stored model is a {type(core).__name__}, not one of {name}.")
    return ScikitModel(core, classes, shape)


@dataclass(frozen=True)
class ScikitLearner(Learner):
    """Learner that wraps a scikit-learn estimator. Given data of a single class, it always predicts that class.

    scikit-learn is loaded when a model is trained or read, and skops when a model is stored or read, because they take
    seconds to load and most processes never need them.

    Attributes:
        estimator: scikit-learn class of a stored model, as ``module.Class``.
        trusted_types: Types in a stored model in addition to those that skops trusts.
    """

    model_format: ClassVar[str] = "skops"
    estimator: ClassVar[str]
    trusted_types: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def model_from_bytes(cls, data: bytes) -> ScikitModel:
        module, _, name = cls.estimator.rpartition(".")
        return scikit_model(data, getattr(import_module(module), name), cls.name, cls.trusted_types)

    def _fit(self, x: Records, y: Labels, *, classes: int, seed: int, progress: Progress) -> ScikitModel:
        from sklearn.dummy import DummyClassifier

        flat = x.reshape(len(x), -1)
        unfitted = DummyClassifier() if (y == y[0]).all() else self._estimator(len(x), seed)
        return ScikitModel(unfitted.fit(flat, y), classes, x.shape[1:])

    @abstractmethod
    def _estimator(self, records: int, seed: int) -> Any: ...


@dataclass(frozen=True)
class RandomForest(ScikitLearner):
    """Random forest (Breiman 2001).

    >>> x = np.array([[0.0], [0.1], [0.9], [1.0]])
    >>> model = RandomForest(trees=20).fit(x, np.array([0, 0, 2, 2]), classes=3, seed=1)
    >>> model.predict(np.array([[0.05], [0.95]])).tolist(), model.predict_proba(x).shape
    ([0, 2], (4, 3))
    """

    name: ClassVar[str] = "random_forest"
    label: ClassVar[str] = gettext_noop("Random forest")
    help: ClassVar[str] = gettext_noop("Suits tables and needs hardly any tuning.")
    estimator: ClassVar[str] = "sklearn.ensemble.RandomForestClassifier"
    trusted_types: ClassVar[tuple[str, ...]] = ("sklearn.tree._tree.Tree",)
    trees: int = parameter(100, gettext_noop("number of trees"), minimum=1, maximum=10_000)
    depth: int = parameter(0, gettext_noop("maximum tree depth (0: no limit)"), minimum=0, maximum=100)
    leaf: int = parameter(1, gettext_noop("minimum number of records in a leaf"), minimum=1)
    balanced: bool = parameter(False, gettext_noop("give rare classes the same weight as frequent ones"))

    def quick(self) -> Learner:
        return LogisticRegression(balanced=self.balanced)

    def _estimator(self, records: int, seed: int) -> RandomForestClassifier:
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(
            n_estimators=self.trees,
            max_depth=self.depth or None,
            min_samples_leaf=self.leaf,
            class_weight="balanced" if self.balanced else None,
            random_state=seed,
        )


@dataclass(frozen=True)
class LogisticRegression(ScikitLearner):
    """Logistic regression with a ridge penalty.

    >>> x = np.array([[0.0], [0.1], [0.9], [1.0]])
    >>> LogisticRegression().fit(x, np.array([0, 0, 1, 1]), classes=2, seed=1).predict(x).tolist()
    [0, 0, 1, 1]
    """

    name: ClassVar[str] = "logistic_regression"
    label: ClassVar[str] = gettext_noop("Logistic regression")
    help: ClassVar[str] = gettext_noop("Suits tables with classes that a weighted sum of the columns can separate.")
    estimator: ClassVar[str] = "sklearn.linear_model.LogisticRegression"
    inverse_penalty: float = parameter(
        1.0, gettext_noop("weight of the data relative to the penalty"), minimum=1e-6, maximum=1e6
    )
    iterations: int = parameter(1000, gettext_noop("maximum number of iterations"), minimum=1, maximum=100_000)
    balanced: bool = parameter(False, gettext_noop("give rare classes the same weight as frequent ones"))

    def _estimator(self, records: int, seed: int) -> ScikitLogisticRegression:
        from sklearn.linear_model import LogisticRegression as ScikitLogisticRegression

        return ScikitLogisticRegression(
            C=self.inverse_penalty,
            max_iter=self.iterations,
            class_weight="balanced" if self.balanced else None,
            random_state=seed,
        )


@dataclass(frozen=True)
class NearestNeighbour(Augmenting, ScikitLearner):
    """Nearest neighbours; for images, the training points include rotated and shifted copies.

    >>> images = np.zeros((2, 4, 4)); images[1, 1:3, 1:3] = 1.0
    >>> model = NearestNeighbour(copies=3).fit(images, np.array([0, 1]), classes=2, seed=1)
    >>> model.predict(images).tolist()
    [0, 1]
    """

    name: ClassVar[str] = "nearest_neighbour"
    label: ClassVar[str] = gettext_noop("Nearest neighbour")
    help: ClassVar[str] = gettext_noop(
        "Suits small images. Rotated and shifted copies compensate for having few records."
    )
    estimator: ClassVar[str] = "sklearn.neighbors.KNeighborsClassifier"
    neighbours: int = parameter(1, gettext_noop("number of neighbours that vote"), minimum=1, maximum=1000)

    def quick(self) -> NearestNeighbour:
        return replace(self, copies=0)

    def _fit(self, x: Records, y: Labels, *, classes: int, seed: int, progress: Progress) -> ScikitModel:
        x, y = self.augmented(x, y, seed)
        return super()._fit(x, y, classes=classes, seed=seed, progress=progress)

    def _estimator(self, records: int, seed: int) -> KNeighborsClassifier:
        from sklearn.neighbors import KNeighborsClassifier

        return KNeighborsClassifier(n_neighbors=min(self.neighbours, records), algorithm="brute")
