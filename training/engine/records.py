"""Private rows as workers read them, and as they are stored anew without some of their owners."""

from uuid import uuid4

import numpy as np

from common.artifacts import arrays_load, arrays_save
from training.models import Dataset


def records_load(dataset: Dataset, *keys: str) -> dict[str, np.ndarray]:
    """Arrays of a private dataset, all or those named by ``keys``.

    Between a row that was read and the file that it named, somebody's records may have been erased: then the row names
    another file by now. Nobody may notice from the outside that a worker met with that. Raises FileNotFoundError.
    """
    while True:
        try:
            return arrays_load(dataset.artifact, *keys)
        except FileNotFoundError:
            newer = Dataset.objects.filter(pk=dataset.pk).values_list("artifact", flat=True).first()
            if newer is None or newer == dataset.artifact:
                raise
            dataset.artifact = newer


def owners_of(dataset: Dataset) -> np.ndarray:
    """Ids in rising order of the holders who own rows of a private dataset."""
    return np.unique(records_load(dataset, "holder")["holder"])


def records_first(owners: np.ndarray, most: int) -> np.ndarray:
    """(N,) whether each row is among the first ``most`` of its owner.

    >>> records_first(np.array([7, 5, 7, 7, 5]), 2).tolist()
    [True, True, True, False, True]
    """
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    first = np.empty(len(owners), dtype=bool)
    first[order] = np.arange(len(owners)) - np.searchsorted(ordered, ordered) < most
    return first


def records_store(arrays: dict[str, np.ndarray]) -> tuple[str, str]:
    """Store arrays of a dataset under a new name, which is returned with their digest."""
    artifact = f"datasets/{uuid4()}.npz"
    return artifact, arrays_save(artifact, **arrays)
