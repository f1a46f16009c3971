"""What teachers say of public points from which they also learn."""

import numpy as np
import pytest

from learning.formats import catalogue_load
from learning.learners import learner_create
from learning.mechanisms.pate.teachers import PublicGraph, teacher_classes
from learning.representations import default_representation


@pytest.fixture(scope="module")
def graph() -> PublicGraph:
    points = catalogue_load("digits").public.x
    fitted = default_representation(points.shape[1:]).fit(points)
    return PublicGraph.of(fitted, fitted.transform(points))


@pytest.mark.parametrize("name", ["nearest_neighbour", "logistic_regression"])
def test_public_points_without_labels_make_teachers_better(graph: PublicGraph, name: str) -> None:
    splits, learner, right = catalogue_load("digits"), learner_create(name), []
    for number in range(12):
        mine = splits.private[number * 13 : (number + 1) * 13]
        about = {"classes": 10, "seed": number}
        said = [teacher_classes(learner, mine.x, mine.y, splits.public.x, one, **about) for one in (None, graph)]
        right.append([float((each == splits.public.y).mean()) for each in said])
    alone, beside = np.mean(right, axis=0)
    assert beside > alone + (0.08 if name == "nearest_neighbour" else 0.005)


def test_a_teacher_of_one_class_says_that_class(graph: PublicGraph) -> None:
    splits, learner = catalogue_load("digits"), learner_create("nearest_neighbour")
    mine = splits.private[:1]
    said = teacher_classes(learner, mine.x, mine.y, splits.public.x, graph, classes=10, seed=0)
    assert (said == mine.y[0]).mean() > 0.9, "all that its record reaches"
