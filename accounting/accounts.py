"""Amounts of accounts: recorded charges, and those that a restored backup may have forgotten.

After a restore it is unknown who was charged between the backup and the restore, and who consented or raised their
level. The release of the gap states the largest share of its cap that any account can have reached, ``reached``: a
public floor of every account, whether or not the backup knows its holder. An account stands at

    charges + max over gaps of (reached · cap − its amount when the gap was settled, at least 0),

with the largest cap that the holder is known to have had, now: a level or a consent that comes to light later raises
the floor. See "Restored backups" in docs/gaussian-accounts.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import numpy as np

from accounting.book import Balances, balances
from accounting.caps import caps_of
from accounting.models import Release
from common.artifacts import arrays_load
from consent.models import Study
from consent.selectors import epsilons_largest


@dataclass(frozen=True, eq=False)
class Floor:
    """Floor of all accounts after a gap.

    Attributes:
        settled_at: when the gap was settled.
        reached: the floor, as a share of every cap.
        epsilon: the largest ε that was ever promised until then, including policies that were lost.
        before: the charges until then.
    """

    settled_at: datetime
    reached: float
    epsilon: float
    before: Balances

    def missing(self, holders: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Return how much accounts (H,) with these caps were below the floor when the gap was settled, (H,) μ²."""
        return np.maximum(self.reached * caps - self.before.of(holders), 0.0)


def floors(study: Study) -> Iterator[Floor]:
    """Yield the floor of every gap of a study, oldest first."""
    gaps = Release.objects.filter(study=study, kind=Release.Kind.GAP, content__reached__gt=0).order_by("sequence")
    for settled_at, content, name in gaps.values_list("recorded_at", "content", "charges"):
        yield Floor(settled_at, content["reached"], content["epsilon"], _before(name))


def accounts_stand(study: Study, holders: np.ndarray) -> np.ndarray:
    """Return the amounts that the accounts of ``holders`` (H,) stand at, with gaps, (H,) μ². Secret.

    This is the only source of this value: all code that charges or verifies must call it.
    """
    return balances(study).of(holders) + gap_surcharges(study, holders)


def gap_surcharges(study: Study, holders: np.ndarray) -> np.ndarray:
    """Return how much gaps raise the accounts of ``holders`` (H,) above their charges, (H,) μ². Secret."""
    raised, known = np.zeros(len(holders)), list(floors(study))
    if known:
        caps = caps_largest(study, holders)
        for floor in known:
            raised = np.maximum(raised, floor.missing(holders, caps))
    return raised


def caps_largest(study: Study, holders: np.ndarray) -> np.ndarray:
    """Return the largest cap that each of ``holders`` (H,) ever had, (H,) μ²; 0 for holders who never consented."""
    largest = epsilons_largest(study)
    epsilons = np.array([largest.get(holder, 0.0) for holder in holders.tolist()])
    caps = np.zeros(len(holders))
    caps[epsilons > 0] = caps_of(epsilons[epsilons > 0], study.delta)
    return caps


@lru_cache(maxsize=8)
def _before(name: str) -> Balances:
    """Return the accounts at a gap; a name always refers to the same content."""
    arrays = arrays_load(name, "holder", "before")
    for array in arrays.values():
        array.setflags(write=False)
    return Balances(arrays["holder"], arrays["before"])
