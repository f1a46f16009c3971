"""Label spreading, beside its closed form."""

import numpy as np

from learning.students.spreading import similarities, spread


def test_spreading_is_the_fixed_point_of_its_equation():
    """F = (1 − α)(I − αS)⁻¹ Y of Zhou et al. 2004, with the graph written down point by point."""
    rng = np.random.default_rng(2)
    points, probabilities = rng.normal(size=(30, 3)), rng.dirichlet([1, 1, 1], 30)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    weights, near = np.zeros((30, 30)), np.argsort(distances, axis=1)[:, :10]
    scale = np.median(np.take_along_axis(distances, near, axis=1))
    for row in range(30):
        weights[row, near[row]] = np.exp(-((distances[row, near[row]] / scale) ** 2))
    weights = (weights + weights.T) / 2
    roots = np.sqrt(weights.sum(axis=1))
    similar = weights / roots[:, None] / roots[None]
    solved = 0.05 * np.linalg.solve(np.eye(30) - 0.95 * similar, probabilities - 1 / 3)
    shares = np.maximum(solved, 0)
    # sixty steps leave 0.95 ** 60 = 5 % of the way
    np.testing.assert_allclose(
        spread(similarities(points), probabilities, 0.95), shares / shares.sum(axis=1, keepdims=True), atol=0.1
    )
    assert (spread(similarities(points), probabilities, 0.95).argmax(axis=1) == shares.argmax(axis=1)).mean() > 0.9


def test_few_right_labels_reach_the_points_that_lie_with_them():
    rng = np.random.default_rng(3)
    truth = np.repeat([0, 1], 50)
    points = rng.normal(size=(100, 2)) + 8 * truth[:, None]
    probabilities = np.full((100, 2), 0.5)
    probabilities[[0, 1, 2]], probabilities[[60, 70]] = [0.9, 0.1], [0.1, 0.9]
    assert (spread(similarities(points), probabilities, 0.95).argmax(axis=1) == truth).all()


def test_points_that_are_alike_and_a_single_point_are_no_trouble():
    probabilities = np.array([[0.7, 0.3]] * 5)
    np.testing.assert_allclose(spread(similarities(np.ones((5, 2))), probabilities, 0.8).sum(axis=1), 1)
    alone = similarities(np.ones((1, 2)))
    assert spread(alone, probabilities[:1], 0.8).argmax() == 0
    assert spread(alone, probabilities[:1], 0.0).tolist() == [[0.7, 0.3]]
