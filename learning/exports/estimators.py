"""Fitted scikit-learn classifiers as nodes of an ONNX graph, in double precision as in scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import numpy_helper
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from learning.exports.graph import DOUBLE, INT64, Graph

Floats = npt.NDArray[np.float64]


def estimator_probabilities(graph: Graph, records: str, estimator: Any, classes: int) -> str:
    """Return probabilities of all classes; classes missing from the estimator's training data have probability 0.

    Args:
        graph: Graph to which nodes are added.
        records: float `(rows, …)`, flattened.
        estimator: Fitted classifier of a kind used by `learning.learners` or `learning.students`.
    """
    x = graph.cast(graph.node("Flatten", records, axis=1), DOUBLE)
    match estimator:
        case DummyClassifier():
            known = _constant_probabilities(graph, x, estimator)
        case LogisticRegression():
            known = _softmax(graph, _linear(graph, x, estimator), len(estimator.intercept_))
        case RandomForestClassifier():
            known = _forest(graph, x, estimator)
        case HistGradientBoostingClassifier():
            known = _softmax(graph, _boosted(graph, x, estimator), estimator.n_trees_per_iteration_)
        case KNeighborsClassifier():
            known = _neighbours(graph, x, estimator)
        case _:
            raise ValueError(f"A {type(estimator).__name__} cannot be exported.")
    if np.array_equal(estimator.classes_, np.arange(classes)):
        return known
    return graph.node("MatMul", known, graph.constant(np.eye(classes)[estimator.classes_]))


def _constant_probabilities(graph: Graph, x: str, estimator: DummyClassifier) -> str:
    nothing = graph.constant(np.zeros((estimator.n_features_in_, len(estimator.classes_))))
    return graph.node("Add", graph.node("MatMul", x, nothing), graph.constant(estimator.class_prior_))


def _linear(graph: Graph, x: str, estimator: LogisticRegression) -> str:
    product = graph.node("MatMul", x, graph.constant(estimator.coef_.T.astype(np.float64)))
    return graph.node("Add", product, graph.constant(estimator.intercept_.astype(np.float64)))


def _softmax(graph: Graph, logits: str, count: int) -> str:
    """Return the softmax of one logit per class or, for two classes, of the second logit minus the first."""
    both = graph.node("MatMul", logits, graph.constant(np.array([[0.0, 1.0]]))) if count == 1 else logits
    return graph.node("Softmax", both, axis=1)


def _neighbours(graph: Graph, x: str, estimator: KNeighborsClassifier) -> str:
    """Return each class's share of the nearest points; among points at the same distance, the first are used."""
    points = estimator._fit_X
    stored = graph.cast(graph.constant(points), DOUBLE)
    products = graph.node("MatMul", x, graph.node("Transpose", stored, perm=[1, 0]))
    squares = graph.constant((points.astype(np.float64) ** 2).sum(axis=1))
    distances = graph.node("Sub", squares, graph.node("Mul", products, graph.constant(2.0)))
    count = graph.constant(np.array([estimator.n_neighbors], np.int64))
    nearest = graph.node("TopK", distances, count, outputs=2, place=1, axis=1, largest=0)
    votes = graph.constant(np.eye(len(estimator.classes_))[estimator._y])
    return graph.node("ReduceMean", graph.node("Gather", votes, nearest), _axis(graph), keepdims=0)


@dataclass(frozen=True, eq=False)
class _Tree:
    """Decision tree with root node 0. A record goes left if its feature is at most the threshold.

    Attributes:
        left, right: Node numbers.
        leaf: Whether nodes are leaves.
        values: `(nodes, numbers)`.
    """

    feature: npt.NDArray[np.int64]
    threshold: Floats
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    leaf: npt.NDArray[np.bool_]
    values: Floats


def _forest(graph: Graph, x: str, estimator: RandomForestClassifier) -> str:
    trees = []
    for each in estimator.estimators_:
        tree = each.tree_
        values = tree.value[:, 0, :]
        leaf = tree.children_left < 0
        trees.append(_Tree(tree.feature, tree.threshold, tree.children_left, tree.children_right, leaf, values))
    return graph.node("Div", _summed(graph, x, trees), graph.constant(float(len(trees))))


def _boosted(graph: Graph, x: str, estimator: HistGradientBoostingClassifier) -> str:
    outputs = estimator.n_trees_per_iteration_
    trees = []
    for iteration in estimator._predictors:
        for output, each in enumerate(iteration):
            nodes = each.nodes
            values = nodes["value"][:, None] * np.eye(outputs)[output]
            left, right, feature = (nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx"))
            trees.append(_Tree(feature, nodes["num_threshold"], left, right, nodes["is_leaf"].astype(bool), values))
    baseline = graph.constant(np.asarray(estimator._baseline_prediction, np.float64).reshape(1, -1))
    return graph.node("Add", _summed(graph, x, trees), baseline)


def _summed(graph: Graph, x: str, trees: list[_Tree]) -> str:
    """Return the sum over trees of the values of a record's leaf, `(rows, numbers)`.

    An ONNX ensemble can add only one number per leaf. To support several values per leaf, it therefore adds the leaf's
    index, with a separate target for each tree, and the values are looked up by index.
    """
    splits: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in ("feature", "threshold", *_SIDES)}
    roots, numbers, targets, values = [], [], [], []
    nodes = leaves = 0
    for target, tree in enumerate(trees):
        inner = np.flatnonzero(~tree.leaf)
        ends = np.flatnonzero(tree.leaf)
        place = np.empty(len(tree.leaf), np.int64)
        place[inner], place[ends] = nodes + np.arange(len(inner)), leaves + np.arange(len(ends))
        roots.append(nodes)
        columns: list[npt.NDArray[Any]]
        if len(inner):
            left, right = tree.left[inner], tree.right[inner]
            columns = [tree.feature[inner], tree.threshold[inner]]
            columns += [place[left], tree.leaf[left], place[right], tree.leaf[right]]
        else:  # a tree with a single leaf: both branches lead to it
            columns = [np.array([each]) for each in (0, 0.0, leaves, True, leaves, True)]
        for name, column in zip(splits, columns, strict=True):
            splits[name].append(column)
        numbers.append(leaves + np.arange(len(ends)))
        targets.append(np.full(len(ends), target))
        values.append(tree.values[ends])
        nodes, leaves = nodes + max(len(inner), 1), leaves + len(ends)
    joined = {name: np.concatenate(parts) for name, parts in splits.items()}
    summed = graph.node(
        "TreeEnsemble",
        x,
        domain="ai.onnx.ml",
        aggregate_function=_SUM,
        post_transform=0,
        n_targets=len(trees),
        tree_roots=roots,
        nodes_featureids=joined["feature"].tolist(),
        nodes_splits=numpy_helper.from_array(joined["threshold"].astype(np.float64)),
        nodes_modes=numpy_helper.from_array(np.full(nodes, _AT_MOST, np.uint8)),
        leaf_targetids=np.concatenate(targets).tolist(),
        leaf_weights=numpy_helper.from_array(np.concatenate(numbers).astype(np.float64)),
        **{f"nodes_{name}": joined[name].astype(np.int64).tolist() for name in _SIDES},
    )
    rows = graph.node("Gather", graph.constant(np.concatenate(values)), graph.cast(summed, INT64))
    return graph.node("ReduceSum", rows, _axis(graph), keepdims=0)


_SIDES = ("truenodeids", "trueleafs", "falsenodeids", "falseleafs")
_SUM, _AT_MOST = 1, 0
"""ONNX codes for addition, and for a split by ≤."""


def _axis(graph: Graph) -> str:
    return graph.constant(np.array([1], np.int64))
