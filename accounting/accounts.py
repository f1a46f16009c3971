"""Standing of accounts: charges on record, and those that a restored backup may have forgotten.

After a restore nobody knows who was charged what between the backup and then, nor who consented or raised their level.
The release of the gap names the share of every cap that anybody can have come to, ``reached``: a public floor of every
account, of holders whom the backup knows and of those it does not. An account stands at

    charges + max over gaps of (reached · cap − what it stood at when the gap was settled, at least 0),

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
        reached: the share of every cap that it is.
        epsilon: the largest ε that was ever promised until then, by policies that were lost, too.
        before: what was charged until then.
    """

    settled_at: datetime
    reached: float
    epsilon: float
    before: Balances

    def missing(self, holders: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Amount that accounts (H,) with these caps lacked of the floor when the gap was settled, (H,) μ²."""
        return np.maximum(self.reached * caps - self.before.of(holders), 0.0)


def floors(study: Study) -> Iterator[Floor]:
    """The floor of every gap of a study, oldest first."""
    gaps = Release.objects.filter(study=study, kind=Release.Kind.GAP, content__reached__gt=0).order_by("sequence")
    for settled_at, content, name in gaps.values_list("recorded_at", "content", "charges"):
        yield Floor(settled_at, content["reached"], content["epsilon"], _before(name))


def accounts_stand(study: Study, holders: np.ndarray) -> np.ndarray:
    """Standing of the accounts of ``holders`` (H,), (H,) μ². Secret.

    The only place that says so: whatever asks, charges or verifies asks here.
    """
    return balances(study).of(holders) + gap_surcharges(study, holders)


def gap_surcharges(study: Study, holders: np.ndarray) -> np.ndarray:
    """By how much gaps raise the accounts of ``holders`` (H,) above what they were charged, (H,) μ². Secret."""
    raised, known = np.zeros(len(holders)), list(floors(study))
    if known:
        caps = caps_largest(study, holders)
        for floor in known:
            raised = np.maximum(raised, floor.missing(holders, caps))
    return raised


def caps_largest(study: Study, holders: np.ndarray) -> np.ndarray:
    """The largest cap that each of ``holders`` (H,) ever had, (H,) μ²; 0 of whoever never consented."""
    largest = epsilons_largest(study)
    epsilons = np.array([largest.get(holder, 0.0) for holder in holders.tolist()])
    caps = np.zeros(len(holders))
    caps[epsilons > 0] = caps_of(epsilons[epsilons > 0], study.delta)
    return caps


@lru_cache(maxsize=8)
def _before(name: str) -> Balances:
    """Accounts at a gap; under one name there is always the same content."""
    arrays = arrays_load(name, "holder", "before")
    for array in arrays.values():
        array.setflags(write=False)
    return Balances(arrays["holder"], arrays["before"])
