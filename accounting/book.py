"""The accounts of a study as arrays, and the files that hold them."""

import secrets
from dataclasses import dataclass
from functools import lru_cache
from uuid import uuid4

import numpy as np

from accounting.models import AccountBook, Release
from common.artifacts import arrays_load, arrays_save
from consent.models import Study


@dataclass(frozen=True, eq=False)
class Balances:
    """Spending of holders: ``holders`` (H,) ids in rising order, ``spent`` (H,) μ². Who is not listed has spent 0.

    Secret. An account may do nothing but silence its own holder. Raises ValueError where a holder is listed twice or
    the ids do not rise: one of the charges would be lost.
    """

    holders: np.ndarray
    spent: np.ndarray

    def __post_init__(self) -> None:
        if self.holders.shape != self.spent.shape or not (self.holders[1:] > self.holders[:-1]).all():
            raise ValueError("Give one amount for each holder, the holders' ids in rising order and each once.")

    @classmethod
    def empty(cls) -> "Balances":
        return cls(np.empty(0, dtype=np.int64), np.empty(0))

    def of(self, holders: np.ndarray) -> np.ndarray:
        """Spending of each of ``holders`` (N,), (N,)."""
        place, known = self._places(holders)
        spent = np.zeros(len(holders))
        spent[known] = self.spent[place[known]]
        return spent

    def charged(self, charges: "Balances") -> "Balances":
        """These accounts after ``charges``."""
        place, known = self._places(charges.holders)
        new = ~known
        # Both lists are sorted: who is new is put in between, and nothing has to be sorted.
        holders = np.insert(self.holders, place[new], charges.holders[new])
        spent = np.insert(self.spent, place[new], 0.0)
        spent[np.searchsorted(holders, charges.holders) if new.any() else place] += charges.spent
        return Balances(holders, spent)

    def _places(self, holders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Place at which each of ``holders`` stands or would stand, and whether it is there: (N,) each."""
        place = np.searchsorted(self.holders, holders)
        known = place < len(self.holders)
        known[known] = self.holders[place[known]] == holders[known]
        return place, known


def balances(study: Study) -> Balances:
    """The accounts of a study as they stand."""
    artifact = _artifact(study)
    while artifact:
        try:
            return _book_load(artifact)
        except FileNotFoundError:
            # Whoever reads without the study's lock may find that a charge has just replaced the file.
            newer = _artifact(study)
            if newer == artifact:
                raise
            artifact = newer
    return Balances.empty()


def _artifact(study: Study) -> str | None:
    return AccountBook.objects.filter(study=study).values_list("artifact", flat=True).first()


def balances_load(name: str) -> Balances:
    """Accounts or charges as their file has them, which is never changed."""
    arrays = arrays_load(name, "holder", "spent")
    for array in arrays.values():
        array.setflags(write=False)
    return Balances(arrays["holder"], arrays["spent"])


#: A batch asks for the accounts more than once; under one name there is always the same content.
_book_load = lru_cache(maxsize=2)(balances_load)


def balances_store(study: Study, prefix: str, content: Balances, **more: np.ndarray) -> tuple[str, str]:
    """Write accounts or charges into a new file, with ``more`` (H,) of each holder; returns its name and digest.

    The salt keeps a digest from being tried against guesses of what the file holds.
    """
    name = f"accounts/{study.pk}/{prefix}-{uuid4().hex}.npz"
    salt = np.frombuffer(secrets.token_bytes(32), dtype=np.uint8)
    return name, arrays_save(name, holder=content.holders, spent=content.spent, salt=salt, **more)


def charges_of(release: Release) -> Balances:
    """Charges of a release, by holder."""
    return balances_load(release.charges) if release.charges else Balances.empty()
