"""Holders with few and many records, and the plainest calculation of what they contribute."""

import numpy as np

from learning.mechanisms.steps.linear import CLIP_STEPS
from learning.mechanisms.steps.records import INTERCEPT, OwnedRecords, owned_records

DIMENSIONS, CLASSES = 12, 4


def some_records(counts, seed: int = 0, dimensions: int = DIMENSIONS) -> OwnedRecords:
    """Holders with `counts` records each, of random coordinates and classes."""
    rng, total = np.random.default_rng(seed), int(np.sum(counts))
    coordinates = rng.integers(-127, 128, (total, dimensions)).astype(np.int8)
    holder = np.repeat(np.arange(len(counts)), counts)
    return owned_records(coordinates, rng.integers(0, CLASSES, total), holder, np.arange(len(counts)))


def only(records: OwnedRecords, kept: np.ndarray) -> OwnedRecords:
    """The same records, of these holders alone, numbered anew."""
    mine = np.isin(records.holder, kept)
    numbers = np.searchsorted(kept, records.holder[mine])
    return owned_records(records.x[mine], records.y[mine], numbers, records.identity[kept])


def plain_gradient(coordinates, labels, weights) -> np.ndarray:
    """The mean gradient of the cross entropy over one holder's records, in floating point."""
    features = np.hstack([coordinates.astype(float), np.full((len(coordinates), 1), float(INTERCEPT))])
    logits = features @ weights
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    probabilities[np.arange(len(labels)), labels] -= 1
    return features.T @ probabilities / len(labels)


def plain_contribution(gradient: np.ndarray, clip_norm: float, weight: float = 1.0) -> np.ndarray:
    """The gradient, clipped and weighted, in steps."""
    return gradient * (weight * min(1.0, clip_norm / np.linalg.norm(gradient)) * CLIP_STEPS / clip_norm)
