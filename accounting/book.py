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
    """Spending of holders: ``holders`` (H,) ids in rising order, ``spent`` (H,) μ². Unlisted holders have spent 0.

    Secret. An account may only silence its own holder. Raises ValueError if a holder is listed twice or
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
        """Return the spending of each of ``holders`` (N,), (N,)."""
        place, known = self._places(holders)
        spent = np.zeros(len(holders))
        spent[known] = self.spent[place[known]]
        return spent

    def charged(self, charges: "Balances") -> "Balances":
        """Return these accounts after ``charges``."""
        place, known = self._places(charges.holders)
        new = ~known
        # Both lists are sorted, so new holders are inserted without sorting.
        holders = np.insert(self.holders, place[new], charges.holders[new])
        spent = np.insert(self.spent, place[new], 0.0)
        spent[np.searchsorted(holders, charges.holders) if new.any() else place] += charges.spent
        return Balances(holders, spent)

    def _places(self, holders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each holder's position or insertion point, and whether the holder is there: (N,) each."""
        place = np.searchsorted(self.holders, holders)
        known = place < len(self.holders)
        known[known] = self.holders[place[known]] == holders[known]
        return place, known


def balances(study: Study) -> Balances:
    """Return the current accounts of a study."""
    artifact = _artifact(study)
    while artifact:
        try:
            return _book_load(artifact)
        except FileNotFoundError:
            # A reader without the study's lock may find that a charge has just replaced the file.
            newer = _artifact(study)
            if newer == artifact:
                raise
            artifact = newer
    return Balances.empty()


def _artifact(study: Study) -> str | None:
    return AccountBook.objects.filter(study=study).values_list("artifact", flat=True).first()


def balances_load(name: str) -> Balances:
    """Load accounts or charges from their file, which never changes."""
    arrays = arrays_load(name, "holder", "spent")
    for array in arrays.values():
        array.setflags(write=False)
    return Balances(arrays["holder"], arrays["spent"])


#: A batch reads the accounts more than once; a name always refers to the same content.
_book_load = lru_cache(maxsize=2)(balances_load)


def balances_store(study: Study, prefix: str, content: Balances, **more: np.ndarray) -> tuple[str, str]:
    """Write accounts or charges into a new file, with ``more`` (H,) of each holder; return its name and digest.

    The salt prevents testing guesses of the file's content against the digest.
    """
    name = f"accounts/{study.pk}/{prefix}-{uuid4().hex}.npz"
    salt = np.frombuffer(secrets.token_bytes(32), dtype=np.uint8)
    return name, arrays_save(name, holder=content.holders, spent=content.spent, salt=salt, **more)


def charges_of(release: Release) -> Balances:
    """Return the charges of a release, by holder."""
    return balances_load(release.charges) if release.charges else Balances.empty()
