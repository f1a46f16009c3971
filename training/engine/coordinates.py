"""Coordinates of holders' records in the representation of a round. They are secret."""

from contextlib import suppress
from zipfile import BadZipFile

import numpy as np

from common.artifacts import arrays_load, arrays_save
from learning.mechanisms.base import Records
from learning.representations import FittedRepresentation
from training.engine.records import records_load
from training.engine.vectors import records_key
from training.models import Run


def records_of(run: Run, fitted: FittedRepresentation | None, holders: np.ndarray, cache: str = "") -> Records:
    """Records of ``holders`` (H,), ids in rising order, as coordinates of a representation; as they are without one.

    Coordinates are computed once in a round for each shard, and kept in the file ``cache``, if it is named. Only of
    those who take part: a file that lacks somebody is made anew, and one that knows others is stored again without.
    """
    x, classes, owners = _coordinates(run, fitted, holders, cache)
    return Records(x, classes, np.searchsorted(holders, owners))


def _coordinates(
    run: Run, fitted: FittedRepresentation | None, holders: np.ndarray, cache: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if fitted is not None and cache:
        cached = _kept(cache)
        if cached is not None and np.isin(holders, cached["holder"]).all():
            mine = np.isin(cached["owner"], holders)
            coordinates, classes, owners = cached["coordinates"][mine], cached["class"][mine], cached["owner"][mine]
            if len(cached["holder"]) > len(holders):
                _keep(cache, holders, coordinates, classes, owners)
            return coordinates, classes, owners
    key = records_key(run.encoder)
    private = records_load(run.private_dataset, key, "y", "holder", holders=holders)
    x, classes, owners = private[key], private["y"], private["holder"]
    if fitted is None:
        return x, classes, owners
    coordinates = fitted.transform(x)
    if cache:
        _keep(cache, holders, coordinates, classes, owners)
    return coordinates, classes, owners


def _keep(cache: str, holders: np.ndarray, coordinates: np.ndarray, classes: np.ndarray, owners: np.ndarray) -> None:
    with suppress(OSError):  # another worker, whose claim this one has taken over, writes it too
        arrays_save(cache, coordinates=coordinates, owner=owners, holder=holders, **{"class": classes})


def _kept(cache: str) -> dict[str, np.ndarray] | None:
    """Content of the file; None where there is none, or its writer died over it."""
    try:
        return arrays_load(cache)
    except (OSError, EOFError, ValueError, BadZipFile):
        return None
