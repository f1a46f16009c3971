"""The public side of a run that asks every holder: its points, and the space that describes them."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from common.artifacts import arrays_load, arrays_save
from learning.learners import Model
from learning.mechanisms.choices import HolderChoices
from learning.representations import (
    FittedRepresentation,
    Representation,
    StudentLayer,
    layers_of_model,
    representation_create,
    representation_load,
    representation_save,
)
from training.engine.records import records_key
from training.models import Dataset


@dataclass(frozen=True, eq=False)
class Space:
    """A representation fitted on the public points, and their coordinates ``public`` (P, d).

    ``encoder``: the digest of the encoder whose vectors are represented; empty for the records themselves.
    """

    fitted: FittedRepresentation
    public: np.ndarray
    encoder: str = ""


def space_first(public_dataset: Dataset, choices: HolderChoices) -> Space:
    """Return the space of the first round. Raises ValueError if the points do not suit the representation."""
    points = points_of(public_dataset, choices.encoder)
    chosen = choices.space(points)
    return _space(public_dataset.artifact, choices.encoder, chosen.name, json.dumps(chosen.parameters()))


def points_of(dataset: Dataset, encoder: str = "") -> np.ndarray:
    """Return (n, *shape) the points of a dataset, or their vectors by the encoder with this digest."""
    return _from_file(dataset, lambda artifact: _points(artifact, encoder))


def _from_file(dataset: Dataset, load: Callable[[str], np.ndarray]) -> np.ndarray:
    with suppress(FileNotFoundError):
        return load(dataset.artifact)
    # another file has been written in the meantime, with the vectors of one more encoder
    dataset.artifact = Dataset.objects.values_list("artifact", flat=True).get(pk=dataset.pk)
    return load(dataset.artifact)


# Files of datasets never change under the same name; a plan is looked at, approved and carried out in turn.
@lru_cache(maxsize=4)
def _points(artifact: str, encoder: str) -> np.ndarray:
    key = records_key(encoder)
    return arrays_load(artifact, key)[key]


@lru_cache(maxsize=2)
def _space(artifact: str, encoder: str, name: str, parameters: str) -> Space:
    chosen = representation_create(name, json.loads(parameters))
    points = _points(artifact, encoder)
    described = " ".join(filter(None, (artifact, encoder, name, parameters)))
    fitted = _kept_or_fitted(chosen, points, described) if chosen.costly else chosen.fit(points)
    return Space(fitted, fitted.transform(points), encoder)


def _kept_or_fitted(chosen: Representation, points: np.ndarray, described: str) -> FittedRepresentation:
    """Return the representation, fitted once for both planning and carrying out, since it takes long."""
    name = f"spaces/{hashlib.sha256(described.encode()).hexdigest()[:32]}.npz"
    with suppress(FileNotFoundError):
        return representation_load(arrays_load(name)["representation"].tobytes())
    fitted = chosen.fit(points)
    with suppress(OSError):  # another process, which has fitted the same one, is writing it too
        arrays_save(name, representation=np.frombuffer(representation_save(fitted), dtype=np.uint8))
    return fitted


def space_of_student(student: Model, first: Space, points: np.ndarray, *, beside_wavelets: bool = False) -> Space:
    """Return the student's inner layer as a space, with wavelets if wanted; the ``first`` round's if it has none."""
    layers = layers_of_model(student)
    if not layers:
        return first
    fitted = StudentLayer(layers=layers, wavelets=beside_wavelets).fit(points)
    return Space(fitted, fitted.transform(points), first.encoder)


def labelled_points(test: Dataset, space: Space, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates (n, d) and codes (n,) of some evaluation data, which are public or given for this use."""
    codes = _from_file(test, lambda artifact: arrays_load(artifact, "y")["y"])
    chosen = np.linspace(0, len(codes) - 1, min(len(codes), most)).astype(np.int64)
    return space.fitted.transform(points_of(test, space.encoder)[chosen]), codes[chosen]
