"""Releases: what they contain, how labels spread from them, and forecasts of students."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import truncnorm

from learning.forecasts import MODEL
from learning.mechanisms.neighbours.released_counts import read_counts
from learning.mechanisms.neighbours.surrogates import Sample
from learning.mechanisms.neighbours.votes import radii
from learning.representations.representation import similarities, spread
from learning.students import (
    Releases,
    counted,
    joined,
    labelled,
    neighbourhoods,
    predicted,
    refine,
    smooth,
    with_labelled_rows,
)
from learning.students.forecasts import student_forecast
from learning.students.releases import leading_probabilities


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("counts", "sigma"), [([60, 40], 10), ([5, -3, 2], 4), ([-20, -30], 10), ([100, 90, 80, 0, -15], 20)]
)
def test_the_posterior_of_the_leading_class_is_that_of_a_simulation(counts, sigma):
    """Counts leaders among draws from the posterior, a normal distribution truncated at 0."""
    counts, how = np.array(counts, float), {"scale": sigma, "random_state": np.random.default_rng(1)}
    drawn = truncnorm.rvs(-counts / sigma, np.inf, loc=counts, size=(100_000, len(counts)), **how)
    shares = np.bincount(drawn.argmax(axis=1), minlength=len(counts)) / 100_000
    np.testing.assert_allclose(leading_probabilities([counts], sigma)[0], shares, atol=0.008)


@pytest.mark.parametrize(("counts", "sigma"), [([30.0, 12.0], 10.0), ([4.0, -6.0], 5.0)])
def test_the_posterior_of_two_classes_is_that_of_brute_force_integration(counts, sigma):
    grid = np.linspace(0, max(counts) + 12 * sigma, 2001)
    first, second = (np.exp(-((grid - count) ** 2) / (2 * sigma**2)) for count in counts)
    leads = np.triu(np.ones((len(grid), len(grid))), 1) + np.eye(len(grid)) / 2  # the second count is the larger one
    joint = np.outer(first, second)
    expected = (joint * leads).sum() / joint.sum()
    assert leading_probabilities([counts], sigma)[0, 1] == pytest.approx(expected, abs=1e-3)


def test_extreme_counts_have_a_posterior_and_labels_below_the_noise_weigh_nothing():
    posterior = leading_probabilities([[1e6, -1e6, 0], [-500, -500, -500]], [1.0, 1.0])
    np.testing.assert_allclose(posterior[0], [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(posterior[1], 1 / 3, rtol=1e-6)
    assert leading_probabilities([[1, 3], [0, 0]], 0).tolist() == [[0.25, 0.75], [0.5, 0.5]], "without noise: shares"
    releases = counted([0, 1, 2], [[100, 95], [100, 80], [100, 0]], 10.0)
    assert releases.weights[0] == 0
    assert 0 < releases.weights[1] < releases.weights[2] <= 1
    assert labelled([0, 1], [1, 0], classes=3).weights.tolist() == [1, 1]
    assert predicted([0, 1], [[0.5, 0.5], [0.8, 0.2]]).weights == pytest.approx([0, 0.6])


def test_labels_and_margins_are_those_of_the_vote():
    rng = np.random.default_rng(3)
    counts, guesses = rng.integers(-50, 90, (40, 4)), rng.integers(0, 4, 40)
    read = read_counts(counts, 12.0, predicted=guesses, voters=30.0)
    releases = counted(np.arange(40), counts, 12.0, predicted=guesses, voters=30.0)
    assert (releases.labels == read.labels).all()
    np.testing.assert_allclose(releases.margins, read.margins)


def test_rounds_are_joined_and_split_by_points():
    first, second = counted([4, 1], [[5, 0], [0, 7]], 1.0), counted([2], [[3, 3]], 2.0)
    both = joined([first, second])
    assert both.rows.tolist() == [1, 2, 4] and both.sigma.tolist() == [1, 2, 1]
    assert both.counts.tolist() == [[0, 7], [3, 3], [5, 0]]
    with pytest.raises(ValueError, match="listed twice"):
        joined([first, first])
    with pytest.raises(ValueError, match="cannot be combined"):
        joined([first, counted([3], [[1, 0]], 1.0, reach=neighbourhoods([0], np.array([[0]]), [1]))])
    with pytest.raises(ValueError, match="one row of counts"):
        Releases(np.arange(3), np.zeros((2, 2)), np.zeros(3))
    learned, held_out = labelled(np.arange(50), np.arange(50) % 3, classes=3).split(0.2, seed=1)
    assert (len(learned), len(held_out)) == (40, 10)
    assert sorted([*learned.rows, *held_out.rows]) == list(range(50)), "no point is in both"


def test_labelled_rows_stand_after_the_points_and_count_as_much_as_a_vote():
    reach = csr_array(np.array([[0.5, 0.5, 0.0]]))
    both = with_labelled_rows(counted([1], [[30, 10]], 4.0, reach=reach), 3, [1, 0])
    assert both.rows.tolist() == [1, 3, 4] and both.labels.tolist() == [0, 1, 0]
    assert both.counts.sum(axis=1).tolist() == [40, 40, 40] and both.sigma.tolist() == [4, 0, 0]
    shares = np.array([[0.8, 0.2], [0.6, 0.4], [0.0, 1.0], [0.1, 0.9], [1.0, 0.0]])
    np.testing.assert_allclose(both.averaged(shares), [[0.7, 0.3], [0.1, 0.9], [1.0, 0.0]])


def test_neighbourhoods_are_the_points_within_the_radius():
    rng = np.random.default_rng(5)
    public = rng.integers(-127, 128, (300, 4))
    rows = np.array([7, 0, 299])
    squared = radii(public[rows], public, 0.05)
    reach = neighbourhoods(rows, public, squared).toarray()
    for row, radius, weights in zip(rows, squared, reach, strict=True):
        near = ((public - public[row]) ** 2).sum(axis=1) <= radius
        near[row] = False
        np.testing.assert_allclose(weights, near / near.sum(), rtol=1e-6)
    many = neighbourhoods([5, 6], rng.integers(-127, 128, (12_000, 2)), [3000, 3000])
    np.testing.assert_allclose(many.sum(axis=1), 1, rtol=1e-5)
    assert many.shape == (2, 12_000) and len(np.unique(many.indices)) < 10_000, "a sample represents many points"


@pytest.mark.statistical
def test_scores_are_unbiased_and_best_for_the_true_shares():
    rng = np.random.default_rng(7)
    truth = rng.dirichlet([1, 2, 3], 30)
    clean = counted(np.arange(30), 200 * truth, 0.0)
    noisy = [200 * truth + rng.normal(0, 40, truth.shape) for _ in range(2000)]
    added = [counted(np.arange(30), counts, 40.0).score(truth) * counts.sum() for counts in noisy]
    error = np.std(added) / np.sqrt(len(added))
    assert np.mean(added) == pytest.approx(clean.score(truth) * 200 * 30, abs=3 * error)
    assert clean.score(truth) > clean.score(0.8 * truth + 0.2 / 3) > clean.score(np.full((30, 3), 1 / 3))
    assert clean.score(truth) == pytest.approx((truth**2).sum() / 30)
    reach = neighbourhoods([1], np.array([[0], [1], [2], [100]]), [1])
    split, classes = counted([1], [[50, 50]], 0.0, reach=reach), np.eye(2)[[0, 0, 1, 1]]
    assert split.score(classes) == pytest.approx(0.5), "votes are compared with averages over neighbourhoods"
    assert split.score(classes) > split.score(np.eye(2)[[0, 0, 0, 0]])


def test_spreading_is_the_fixed_point_of_its_equation():
    """F = (1 − α)(I − αS)⁻¹ Y in Zhou et al. 2004, with the graph built point by point."""
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
    found = spread(similarities(points), probabilities, 0.95)
    # after sixty steps, 0.95 ** 60 = 5 % of the distance remains
    np.testing.assert_allclose(found, shares / shares.sum(axis=1, keepdims=True), atol=0.1)
    assert (found.argmax(axis=1) == shares.argmax(axis=1)).mean() > 0.9


def test_a_few_correct_labels_spread_to_nearby_points():
    rng, truth = np.random.default_rng(3), np.repeat([0, 1], 50)
    points, probabilities = rng.normal(size=(100, 2)) + 8 * truth[:, None], np.full((100, 2), 0.5)
    probabilities[[0, 1, 2]], probabilities[[60, 70]] = [0.9, 0.1], [0.1, 0.9]
    assert (spread(similarities(points), probabilities, 0.95).argmax(axis=1) == truth).all()
    same, alone = np.array([[0.7, 0.3]] * 5), similarities(np.ones((1, 2)))
    np.testing.assert_allclose(spread(similarities(np.ones((5, 2))), same, 0.8).sum(axis=1), 1)
    assert spread(alone, same[:1], 0.8).argmax() == 0
    assert spread(alone, same[:1], 0.0).tolist() == [[0.7, 0.3]]


RADIUS = 0.1


@pytest.fixture(scope="module")
def world():
    """Return records, public points and a labelled sample around four centres, with their classes."""
    rng = np.random.default_rng(4)
    centres = rng.integers(-60, 60, (4, 8))

    def points(count):
        classes = rng.integers(4, size=count)
        return np.clip(centres[classes] + rng.normal(0, 22, (count, 8)), -127, 127).astype(np.int8), classes

    return points(2000), points(400), points(200)


@pytest.mark.parametrize("sigma", [5.0, 400.0, 20_000.0])
def test_the_forecast_is_near_what_a_vote_brings(world, sigma):
    """The forecast is compared with the share of correct refined labels in a vote of the records themselves."""
    (records, classes_of), (public, truth), (known, labels) = world
    reach = radii(public, public, RADIUS)
    distances = ((public[:, None].astype(np.int64) - records[None].astype(np.int64)) ** 2).sum(axis=2)
    counts = (distances <= reach[:, None]) @ np.eye(4)[classes_of]
    noisy = counts + np.random.default_rng(1).normal(0, sigma, counts.shape)
    released = counted(np.arange(400), noisy, sigma, reach=neighbourhoods(np.arange(400), public, reach))
    fixed = {"radius_share": RADIUS, "sigma": sigma, "n_classes": 4, "sample": Sample(known, labels)}
    forecast = student_forecast(np.arange(400), public, counts.sum(axis=1), **fixed)
    right = (refine(public, released, seed=0).labels == truth).mean()
    assert forecast.value == pytest.approx(right, abs=0.2) and forecast.of == MODEL and forecast.judged == 200


def test_noise_and_few_voters_are_distinguished_without_labels(world):
    _, (public, _), _ = world

    def best_forecast(voters, sigma, queries=400):
        fixed = {"radius_share": RADIUS, "n_classes": 4}
        made = student_forecast(np.arange(queries), public, np.full(queries, voters), sigma=sigma, **fixed)
        assert made.value is None and made.judged == 0, "clusters give only an upper bound"
        return made.high

    assert best_forecast(200.0, 10.0) > 0.9
    assert best_forecast(200.0, 20_000.0) < 0.6
    assert best_forecast(2.0, 200.0) < best_forecast(200.0, 200.0)
    assert best_forecast(200.0, 10.0, queries=100) > 0.8


@pytest.mark.parametrize("asked", [30, 100, 300])
def test_smoothing_works_for_few_clear_and_many_noisy_counts(asked: int) -> None:
    """Three rings of adjacent points, with the same total charge: number of queries times 1 / variance."""
    rng = np.random.default_rng(1)
    truth = np.arange(300) % 3
    angle = rng.uniform(0, 2 * np.pi, 300)
    points = (truth[:, None] + 1) * 30 * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0, 2, (300, 2))
    rows, sigma = np.sort(rng.permutation(300)[:asked]), 4.0 * asked**0.5
    expected = 60.0 * np.eye(3)[truth[rows]] + 20.0
    noisy = expected + rng.normal(0, sigma, expected.shape)
    smoothed = smooth(points, counted(rows, noisy, sigma), 120.0)
    right = smoothed.labels == truth
    assert right.mean() > 0.9
    if asked == 300:
        assert (counted(rows, noisy, sigma).labels == truth).mean() < 0.7, "single counts are lost in the noise"
    assert abs(smoothed.counts.max(axis=1).mean() - right.mean()) < 0.1, "its confidence matches its accuracy"
