"""Tests of image augmentation."""

import numpy as np
import pytest
from scipy.ndimage import rotate

from learning.learners.augmentation import augment


def _bar(size=21):
    image = np.zeros((size, size))
    image[3 : size - 3, size // 2 - 1 : size // 2 + 2] = 1.0
    return image


def test_rounds_repeat_the_images_in_order_and_all_channels_move_together():
    images = np.random.default_rng(1).random((3, 5, 6)).astype(np.float32)
    augmented = augment(images, copies=2, rotation=0, shift=0, seed=1)
    np.testing.assert_allclose(augmented, np.tile(images, (3, 1, 1)), atol=1e-6)
    squares = np.zeros((4, 9, 9, 3))
    squares[:, 3:6, 3:6] = np.arange(1, 5)[:, None, None, None]
    augmented = augment(squares, copies=3, rotation=5, shift=0.05, seed=1)
    assert augmented.shape == (16, 9, 9, 3)
    np.testing.assert_allclose(augmented[:, 4, 4, 0], np.tile([1, 2, 3, 4], 4), rtol=1e-5)
    assert (augmented[..., 0] == augmented[..., 2]).all()
    assert not (augmented[4:8] == augmented[8:12]).all()


def test_shifts_move_the_centre_of_mass_by_at_most_the_limit_either_way():
    images = np.zeros((1, 21, 21))
    images[0, 8:13, 8:13] = 1.0
    augmented = augment(images, copies=300, rotation=0, shift=0.1, seed=1)[1:]
    weights = augmented.sum(axis=(1, 2))
    moved = [(augmented.sum(axis=axis) * (np.arange(21) - 10)).sum(axis=1) / weights for axis in (1, 2)]
    for offsets in moved:
        assert -2.1 <= offsets.min() < -1.9 and 1.9 < offsets.max() <= 2.1
    np.testing.assert_allclose(weights, 25, rtol=1e-5)


def test_rotations_turn_by_at_most_the_limit_either_way():
    """The axis of a bar, from its second moments, against an independent rotation of known angle."""

    def angle(image):
        y, x = np.mgrid[: image.shape[0], : image.shape[1]]
        y, x = y - (image * y).sum() / image.sum(), x - (image * x).sum() / image.sum()
        return np.rad2deg(0.5 * np.arctan2(2 * (image * x * y).sum(), (image * (y**2 - x**2)).sum()))

    limit = abs(angle(rotate(_bar(), 7.5, reshape=False, order=1)))
    assert limit == pytest.approx(7.5, abs=0.2)
    augmented = augment(_bar()[np.newaxis], copies=300, rotation=7.5, shift=0, seed=1)[1:]
    angles = np.array([angle(image) for image in augmented])
    assert -limit - 0.1 <= angles.min() < -0.9 * limit and 0.9 * limit < angles.max() <= limit + 0.1
