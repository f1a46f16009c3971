"""A point's coordinates depend only on the point and on public statistics, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.signal import correlate2d

from learning.learners.cnn import CNN
from learning.representations import (
    Embedding,
    Evened,
    Interactions,
    LearnedNetwork,
    Patches,
    Standardised,
    Thresholds,
    Wavelets,
    Whitened,
)
from learning.representations.catalogue import StudentLayer, default_representation, representation_create
from learning.representations.images import PatchEncoder, WaveletEncoder
from learning.representations.network import NetworkEncoder, layers_of, layers_of_model
from learning.representations.representation import Representation
from learning.representations.storage import representation_load, representation_save
from tests.learning.lazily import nn, torch


def images(seed: int, count: int, shape: tuple[int, ...] = (8, 8)) -> np.ndarray:
    """Return smooth random images in [0, 1]."""
    rng = np.random.default_rng(seed)
    points = rng.random((count, *shape)).astype(np.float32)
    return (points + np.roll(points, 1, axis=1) + np.roll(points, 1, axis=2)) / 3


def table(seed: int, count: int) -> np.ndarray:
    """Return numbers, one-hot columns and a constant column."""
    rng = np.random.default_rng(seed)
    kind = np.eye(4)[rng.choice(4, count, p=[0.6, 0.3, 0.08, 0.02])]
    return np.hstack([rng.random((count, 3)), kind, np.zeros((count, 1))]).astype(np.float32)


def network(shape: tuple[int, ...]) -> nn.Sequential:
    """Return a small network in evaluation mode, with nontrivial statistics and all exactly evaluated layers."""
    torch.manual_seed(0)
    channels = shape[2] if len(shape) == 3 else 1
    inner = nn.Sequential(
        nn.Conv2d(channels, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(), nn.LazyLinear(10), nn.BatchNorm1d(10), nn.ReLU(),
    )  # fmt: skip
    batch = torch.rand(64, channels, *shape[:2])
    inner(batch)
    return inner.eval()


CASES: list[tuple[Representation, object]] = [
    (Standardised(exponent=0.5, cosine=True), table),
    (Thresholds(), table),
    (Evened(thresholds=4), table),
    (Interactions(thresholds=4, features=20), table),
    (Whitened(), table),
    (Whitened(components=5, exponent=0.5, cosine=True), images),
    (Wavelets(), images),
    (Wavelets(components=7), lambda seed, count: images(seed, count, (11, 9, 3))),
    (Patches(filters=30), images),
    (Patches(components=7, filters=20, threshold=0.0), lambda seed, count: images(seed, count, (11, 9, 3))),
    (Embedding(), table),
    (LearnedNetwork(steps=3), table),
    (LearnedNetwork(steps=3, exponent=0.5), lambda seed, count: images(seed, count, (11, 9, 3))),
    (StudentLayer(wavelets=True), images),
]


@pytest.mark.parametrize(("representation", "draw"), CASES, ids=lambda case: getattr(case, "name", ""))
def test_a_point_does_not_depend_on_other_points(representation, draw, monkeypatch) -> None:
    """Threads do not matter, either, nor whether the representation was stored in between."""
    monkeypatch.setattr("learning.representations.representation._BATCH", 64)
    if isinstance(representation, StudentLayer):
        representation = replace(representation, layers=layers_of(network((8, 8))))
    fitted = representation.fit(draw(0, 120))
    points = draw(1, 150)
    whole, features = fitted.transform(points), fitted.encoder.encode(points)
    assert whole.dtype == np.int8 and whole.shape == (150, fitted.dimensions) and whole.min() >= -127
    assert len(np.unique(whole, axis=0)) > 100  # the images do differ
    assert (features == np.rint(features)).all() and np.abs(features).max() <= fitted.encoder.bound
    order = np.random.default_rng(2).permutation(150)
    everyone = np.arange(150)
    tails = [part for tail in (1, 2, 3, 7, 64, 65, 73) for part in (everyone[:tail], everyone[-tail:])]
    for chosen in (order, *tails, *(np.delete(everyone, gone) for gone in (0, 63, 149)), *everyone[::30, None]):
        np.testing.assert_array_equal(fitted.transform(points[chosen]), whole[chosen])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        np.testing.assert_array_equal(fitted.encoder.encode(points), features)
    finally:
        torch.set_num_threads(before)
    again = representation_load(representation_save(fitted))
    np.testing.assert_array_equal(again.transform(points), whole)
    assert again.representation.parameters() == representation.parameters()


@pytest.mark.parametrize(
    "shape", [(4, 4), (5, 9, 3), (28, 28), pytest.param((12, 12, 12), marks=pytest.mark.exhaustive)]
)
def test_images_of_any_size_become_bounded_whole_numbers_of_known_width(shape) -> None:
    extreme = np.stack([np.ones(shape), np.zeros(shape), np.indices(shape).sum(axis=0) % 2, images(1, 1, shape)[0]])
    encoders = [PatchEncoder.fit(images(0, 5, shape), filters=12, threshold=0.1, seed=1)]
    if len(shape) == 2 or shape[2] == 3:
        encoders.append(WaveletEncoder(shape))
    for encoder in encoders:
        features = encoder.encode(extreme)
        assert features.shape == (4, len(encoder.units)) and np.abs(features).max() <= encoder.bound
        assert (features == np.rint(features)).all() and features[2:].any()
        if isinstance(encoder, WaveletEncoder):
            assert not features[1].any(), "black"
        else:
            assert features.min() >= 0 and (features[0] == features[1]).all(), "uniform"


def test_wavelets_equal_plain_arithmetic() -> None:
    """Correlation, modulus, root and sums are recomputed in integers of any length."""
    encoder = WaveletEncoder((28, 28))
    image = images(3, 1, (28, 28))
    pixels = np.rint(image[0].astype(np.float64) * 255).astype(np.int64)
    expected = []
    for even, odd in zip(encoder._filters[0::2].astype(np.int64), encoder._filters[1::2].astype(np.int64), strict=True):
        assert abs(np.linalg.norm(even) / np.linalg.norm(odd) - 1) < 0.01
        pair = [np.rint(correlate2d(pixels, part, mode="same")[::2, ::2] / 4096) for part in (even, odd)]
        roots = np.rint(64 * np.hypot(*pair) ** 0.5)
        expected.append(roots.reshape(7, 2, 7, 2).sum(axis=(1, 3)).ravel())
    expected.append(pixels.reshape(7, 4, 7, 4).sum(axis=(1, 3)).ravel())
    assert np.abs(encoder.encode(image)[0] - np.concatenate(expected)).max() <= 2  # roots on the border of two steps


@pytest.mark.parametrize("shape", [(12, 14), (15, 12, 3)])
def test_patches_equal_plain_arithmetic(shape) -> None:
    """Each patch is cut out, normalised, whitened and compared separately, in double precision."""
    public = np.rint(images(0, 60, shape) * 255) / 255
    encoder = PatchEncoder.fit(public, filters=9, threshold=0.25, seed=1)
    image = (public[7] * 255).reshape(*shape[:2], -1)
    likeness = np.empty((9, shape[0] - 5, shape[1] - 5))
    filters = encoder._filters.reshape(9, -1) / encoder._power
    for row, column in np.ndindex(likeness.shape[1:]):
        patch = image[row : row + 6, column : column + 6].transpose(2, 0, 1).ravel()
        even = (patch - patch.mean()) / np.sqrt(patch.var() + 10)
        likeness[:, row, column] = filters @ even - encoder._offsets
    expected = []
    for sign in (likeness, -likeness):
        beyond = np.maximum(sign - 0.25, 0)
        rows, columns = (-(-side // 3) for side in beyond.shape[1:])
        expected += [
            beyond[:, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].sum(axis=(1, 2)) / (rows * columns)
            for i, j in np.ndindex(3, 3)
        ]
    expected = np.array(expected).reshape(2, 9, 9).transpose(0, 2, 1).ravel()
    found = encoder.encode(public[7:8])[0] * encoder.units
    np.testing.assert_allclose(found, expected, atol=2 / encoder._steps)


def test_filters_are_whitened_public_patches() -> None:
    """Their similarities to public patches have the same spread in all directions except those of little variance."""
    rng = np.random.default_rng(0)
    public = np.repeat(np.repeat(rng.random((300, 8, 8)), 2, axis=1), 2, axis=2)
    encoder = PatchEncoder.fit(public, filters=200, threshold=0.0, seed=1)
    patches = np.stack([public[:, i : i + 6, j : j + 6] for i in range(11) for j in range(11)]).reshape(-1, 36) * 255
    even = (patches - patches.mean(axis=1, keepdims=True)) / np.sqrt(patches.var(axis=1, keepdims=True) + 10)
    filters = encoder._filters.reshape(200, -1) / encoder._power
    assert np.abs(filters.sum(axis=1)).max() < 1e-9
    likeness = even @ filters.T - encoder._offsets
    assert likeness.std(axis=0).max() < 1.1 and likeness.std(axis=0).min() > 0.6
    plain = even @ (even[rng.integers(0, len(even), 200)] / 6).T
    assert plain.std(axis=0).max() / plain.std(axis=0).min() > likeness.std(axis=0).max() / likeness.std(axis=0).min()


@pytest.mark.parametrize(
    ("kind", "draw"),
    [(partial(Patches, filters=10), images), *((partial(LearnedNetwork, steps=5), d) for d in (table, images))],
)
def test_the_same_public_points_and_seed_give_the_same_representation(kind, draw) -> None:
    points = draw(0, 80)
    one, same, other = (kind(seed=seed).fit(points).state() for seed in (1, 1, 2))
    for name, array in one.items():
        np.testing.assert_array_equal(same[name], array)
    assert any(not np.array_equal(other[name], array) for name, array in one.items())


@pytest.mark.parametrize("shape", [(8, 8), (9, 12, 3)])
def test_a_network_in_whole_numbers_is_the_network(shape) -> None:
    inner, points = network(shape), images(0, 90, shape)
    channels_first = points[..., None] if len(shape) == 2 else points
    with torch.no_grad():
        expected = inner.double()(torch.from_numpy(channels_first.transpose(0, 3, 1, 2).astype(np.float64))).numpy()
    encoder = NetworkEncoder.fit(layers_of(inner), points)
    found = encoder.encode(points) * encoder.units
    assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max()
    # The inner layer of a student determines its predictions.
    student = CNN(epochs=2).fit(points, np.arange(90) % 3, classes=3, seed=1)
    encoder = NetworkEncoder.fit(layers_of_model(student), points.astype(np.float32))
    inner_layer = torch.from_numpy((encoder.encode(points) * encoder.units).astype(np.float32))
    with torch.no_grad():
        expected = student.network.output(inner_layer).softmax(1).numpy()
    np.testing.assert_allclose(student.predict_proba(points), expected, atol=5e-3)


def test_whitening_gives_public_directions_the_same_spread() -> None:
    rng = np.random.default_rng(0)
    public = rng.normal(size=(5000, 3)) @ np.array([[5.0, 1, 0], [0, 1, 0.5], [0, 0, 0.8]])
    fitted = Whitened(floor=1e-6).fit(public)
    covariance = np.cov(fitted.transform(public).astype(float), rowvar=False)
    np.testing.assert_allclose(covariance / covariance[0, 0], np.eye(3), atol=0.03)
    principal = Whitened(exponent=0.0).fit(public).transform(public).astype(float)
    ratios = np.sort(np.linalg.eigvalsh(np.cov(public, rowvar=False)))[::-1]
    np.testing.assert_allclose(principal.var(axis=0) / principal[:, 0].var(), ratios / ratios[0], rtol=0.05, atol=0.002)


def test_standardising_is_by_public_points_and_leaves_out_what_never_varies() -> None:
    public, points = table(0, 2000), table(1, 50)
    fitted = Standardised(floor=1e-6).fit(public)
    expected = ((points - public.mean(axis=0)) / np.where(public.std(axis=0) > 0, public.std(axis=0), 1))[:, :-1]
    assert fitted.dimensions == 7
    scale = fitted.transform(points) / expected
    inside = (np.abs(fitted.transform(points)) < 127) & (np.abs(expected) > 1)
    np.testing.assert_allclose(scale[inside], np.median(scale[inside]), rtol=0.04)


def test_thresholds_are_public_values_that_records_exceed_or_not() -> None:
    """Most values are 0, and the thresholds are still spread evenly over the others."""
    rng = np.random.default_rng(0)
    amount = np.where(rng.random(20_000) < 0.9, 0.0, rng.integers(1, 100, 20_000))
    public = np.column_stack([amount, rng.integers(0, 2, 20_000), np.ones(20_000)]).astype(np.float32)
    fitted = Thresholds(thresholds=9).fit(public)
    assert fitted.dimensions == 2 + 9, "two values need no threshold, and constant columns are left out"
    records = np.array([[value, 0, 1] for value in range(100)], np.float32)
    exceeded = fitted.encoder.encode(records)[:, 3:]
    assert (np.diff(exceeded, axis=0) >= 0).all() and not exceeded[0].any() and exceeded[-1].all()
    steps = np.flatnonzero(np.diff(exceeded.sum(axis=1))) + 1
    np.testing.assert_allclose(steps, np.arange(10, 100, 10), atol=1.0)


def test_a_few_wrong_public_values_spoil_no_spread_and_rare_columns_stay_small() -> None:
    """A blood pressure of 16,000 among those around 120 is clipped, both in public points and in records."""
    rng = np.random.default_rng(0)
    pressure, amount = rng.normal(120, 20, 5000), np.where(rng.random(5000) < 0.98, 0.0, rng.integers(1, 9, 5000))
    pressure[:3] = 16_000.0
    public = np.column_stack([pressure, amount]).astype(np.float32)
    encoder = Evened().fit(public).encoder.parts[0]
    low, high = (limit * encoder.units for limit in encoder.limits)
    assert 300 < high[0] < 400 and low[0] == pytest.approx(pressure.min(), abs=0.02)
    assert (low[1], high[1]) == pytest.approx((0, 8), abs=1e-3), "a value that is mostly 0 is not clipped"
    wrong = np.array([[9e9, 3.0], [-9e9, 3.0], [np.nan, 3.0]], np.float32)
    assert encoder.encode(wrong)[:, 0].tolist() == [encoder.limits[1, 0], encoder.limits[0, 0], encoder.limits[0, 0]]
    # Common directions have the same spread, and a column that is 1 once in a thousand is not inflated to it.
    public = np.column_stack([rng.normal(0, 30, 8000), rng.random(8000) < 0.5, rng.random(8000) < 0.001])
    coordinates = Evened(thresholds=1, floor=0.01).fit(public).transform(public).astype(float)
    spreads = np.sort(coordinates.std(axis=0))
    assert spreads[-2] > 0.9 * spreads[-1] and spreads[0] < 0.4 * spreads[-1]


def test_interactions_are_cosines_of_ranks_among_public_points() -> None:
    """Columns have few distinct values, and ranks are in double precision.

    Constants and flags are left out; ties share a rank.
    """
    rng = np.random.default_rng(0)
    numbers = np.column_stack([rng.integers(0, 9, 400), np.where(rng.random(400) < 0.7, 0, rng.integers(1, 8, 400))])
    public = np.column_stack([numbers, np.ones(400), rng.random(400) < 0.5, rng.integers(3, 40, 400)])
    points = np.vstack([public[:30], [[-5.0, 1e9, 0, 0, 20.5], [8, 0, 9, 9, 40]]])
    fitted = Interactions(features=200, frequency=1.3, seed=7).fit(public)
    encoder, drawn = fitted.encoder.parts[-1], np.random.default_rng(7)
    weights, starts = drawn.normal(0, 1.3, (3, 200)), drawn.random(200)
    ranks = np.empty((32, 3))
    for place, column in enumerate([0, 1, 4]):
        known = np.unique(public[:, column])
        # between public values, a point has the rank of the next one; beyond them, that of the first or last
        nearest = known[np.minimum(np.searchsorted(known, points[:, column]), len(known) - 1)]
        ranks[:, place] = [
            ((public[:, column] < value).mean() + (public[:, column] <= value).mean()) / 2 for value in nearest
        ]
    expected = np.cos(ranks @ weights + 2 * np.pi * starts)
    np.testing.assert_allclose(encoder.encode(points) * encoder.units, expected, atol=0.02)


def test_a_linear_model_on_interactions_follows_a_product_of_columns() -> None:
    """Without interactions it cannot; the number of coordinates is the same, and a single number has none."""
    rng = np.random.default_rng(1)
    public, points = rng.random((2, 3000, 4))
    errors = []
    for kind in (Evened(thresholds=8), Interactions(thresholds=8, features=100)):
        fitted = kind.fit(public)
        f, g = (fitted.transform(each).astype(float) / 127 for each in (public, points))
        truth, wanted = ((each[:, 0] - 0.5) * (each[:, 1] - 0.5) for each in (public, points))
        weights = np.linalg.solve(f.T @ f + 0.1 * np.eye(f.shape[1]), f.T @ truth)
        errors.append(np.var(g @ weights - wanted) / np.var(wanted))
        assert fitted.dimensions == 4 + 4 * 8
    assert errors[0] > 0.9 and errors[1] < 0.15
    one = np.column_stack([rng.random(50), np.ones(50)])
    np.testing.assert_array_equal(Interactions().fit(one).transform(one), Evened().fit(one).transform(one))


def test_on_the_sphere_points_have_length_127_and_the_middle_stays() -> None:
    public = np.random.default_rng(0).normal(size=(400, 6))
    fitted = Embedding().fit(public)
    lengths = np.linalg.norm(fitted.transform(public).astype(float), axis=1)
    assert np.abs(lengths - 127).max() < 2
    nearer = fitted.transform((public + public.mean(axis=0)) / 2)
    assert np.abs(nearer.astype(int) - fitted.transform(public)).max() <= 1


def test_invalid_or_huge_private_values_do_not_affect_others() -> None:
    fitted, points = Whitened().fit(table(0, 200)), table(1, 20)
    clean, others = fitted.transform(points), np.delete(np.arange(20), [3, 7, 9])
    points[3], points[7, 0], points[9, 1] = np.nan, np.inf, 1e30
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(fitted.transform(points)[others], clean[others])


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        *((lambda kind=kind: kind().fit(table(0, 50)), "at least 4×4") for kind in (Wavelets, Patches)),
        (lambda: Patches().fit(np.ones((9, 8, 8, 3))), "are uniform"),
        (lambda: Whitened().fit(table(0, 1)), "at least 2 public"),
        (lambda: Whitened().fit(np.full((5, 2), np.nan)), "not finite"),
        (lambda: Whitened().fit(table(0, 50)).transform(images(0, 3)), "shape"),
        (lambda: Standardised().fit(np.ones((9, 2))), "are equal"),
        (lambda: Standardised().fit(np.random.default_rng(0).random((9, 1100))), "whitened"),
        (lambda: StudentLayer().fit(images(0, 30)), "no student yet"),
        (lambda: representation_create("pixels"), "choose one of"),
        (lambda: representation_create("whitened", {"rank": 3}), "no parameter rank"),
        (lambda: Whitened(components=0), "at least 1"),
        (lambda: representation_load(b"nothing"), "cannot be read"),
        (lambda: layers_of([nn.GELU()]), "GELU"),
        (lambda: layers_of([nn.BatchNorm1d(3, track_running_stats=False)]), "running statistics"),
        (lambda: layers_of([nn.Conv2d(4, 4, 3, groups=2)]), "plain convolutions"),
    ],
)
def test_invalid_input_is_named(attempt, message) -> None:
    with pytest.raises(ValueError, match=message):
        attempt()
    assert default_representation((8, 8)).images and not default_representation((8,)).images


def test_an_embedding_learns_what_its_points_have_in_common(monkeypatch) -> None:
    """Three groups of columns each express the same hidden value with much noise."""

    def draw(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        kinds = rng.integers(0, 3, count)
        signal = np.repeat(np.eye(3)[kinds], 10, axis=1)
        return np.clip(0.5 * signal + rng.normal(0.25, 0.35, signal.shape), 0, 1).astype(np.float32), kinds

    def purity(representation: Representation) -> float:
        (public, _), (points, kinds) = draw(0, 600), draw(1, 300)
        place = representation.fit(public).transform(points).astype(np.float64)
        apart = ((place[:, None] - place[None]) ** 2).sum(axis=2)
        nearest = np.argsort(apart, axis=1)[:, 1:11]
        return float((kinds[nearest] == kinds[:, None]).mean())

    assert purity(LearnedNetwork(steps=60)) > purity(LearnedNetwork(steps=1)) + 0.05
    monkeypatch.setattr("learning.representations.contrastive._MOST", 50)
    for draw_some, count in ((table, 2), (images, 90)):  # the minimum, and more than it needs
        assert LearnedNetwork(steps=2).fit(draw_some(0, count)).transform(draw_some(1, 5)).shape[0] == 5
