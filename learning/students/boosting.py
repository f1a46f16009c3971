"""Gradient boosting on labels weighted by their reliability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from common.progress import Progress
from common.sentences import gettext_noop
from learning.learners.learner import Model, Records, parameter
from learning.learners.scikit import ScikitModel, scikit_model
from learning.students.releases import Releases
from learning.students.shares import Shares
from learning.students.student import Student, TrainingCheckpoint

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier


@dataclass(frozen=True)
class Boosting(Student):
    """Boosted trees (Ke et al. 2017) on class probabilities.

    If releases are votes of neighbourhoods, these probabilities are the predictions of `Shares` for all points, and
    trees with few large leaves smooth them. Otherwise, they are the probabilities that each class leads a point's
    counts, and the point's weight is how far the most likely class is above chance, or 0 if noise hides the leading
    class.
    """

    name: ClassVar[str] = "boosting"
    label: ClassVar[str] = gettext_noop("Gradient boosting")
    help: ClassVar[str] = gettext_noop("Suits tables with labels or probabilities that are mostly correct.")
    model_format: ClassVar[str] = "skops"
    iterations: int = parameter(100, gettext_noop("number of trees for each class"), minimum=1, maximum=10_000)
    leaves: int = parameter(15, gettext_noop("maximum number of leaves per tree"), minimum=2, maximum=1000)
    leaf: int = parameter(40, gettext_noop("minimum number of records in a leaf"), minimum=1)
    learning_rate: float = parameter(
        0.06, gettext_noop("weight of each tree (learning rate)"), minimum=1e-4, maximum=1.0
    )

    @classmethod
    def model_from_bytes(cls, data: bytes) -> Model:
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = scikit_model(data, HistGradientBoostingClassifier, cls.name, _TRUSTED)
        if isinstance(model.estimator, HistGradientBoostingClassifier):
            _check_trees(model.estimator, int(np.prod(model.shape)))
        return model

    def _learn(
        self, x: Records, releases: Releases, *, seed: int, progress: Progress, checkpoint: TrainingCheckpoint
    ) -> ScikitModel:
        from sklearn.dummy import DummyClassifier

        points, chosen = x.reshape(len(x), -1), {}
        if releases.reach is None:
            believed = releases.among(releases.weights > 0) if (releases.weights > 0).any() else releases
            points, weights = points[believed.rows], believed.leading * np.maximum(believed.weights, 1e-9)[:, None]
        else:
            shares = Shares().learn(points, releases, seed=seed, progress=progress)
            weights, chosen = shares.predict_proba(points), shares.chosen
        row, label = np.nonzero(weights > 0)
        several = len(np.unique(label)) > 1
        unfitted = self._estimator(seed) if several else DummyClassifier()
        fitted = unfitted.fit(points[row], label, sample_weight=weights[row, label])
        progress(1, 1)
        model = ScikitModel(fitted, releases.classes, x.shape[1:])
        model.chosen = chosen
        return model

    def _estimator(self, seed: int) -> HistGradientBoostingClassifier:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(
            max_iter=self.iterations,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.leaf,
            early_stopping=False,
            random_state=seed,
        )


# scikit-learn does not check the numbers in tree nodes, so they are checked when a model is read
_TRUSTED = ("sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",)


def _check_trees(estimator: HistGradientBoostingClassifier, columns: int) -> None:
    """Raise ValueError if a split leads out of its tree, back into it, or to a column that records do not have."""
    for tree in (tree for trees in estimator._predictors for tree in trees):
        nodes = tree.nodes
        splits = np.flatnonzero(nodes["is_leaf"] == 0)
        inside = nodes["feature_idx"][splits] < columns
        for side in ("left", "right"):
            inside &= (nodes[side][splits] > splits) & (nodes[side][splits] < len(nodes))
        if not inside.all() or nodes["is_categorical"].any() or len(nodes) == 0:
            raise ValueError("The stored model cannot be read; train it again.")
