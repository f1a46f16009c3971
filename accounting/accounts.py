"""A study's accounts: recorded charges and slacks, their files, and charges that may be missing after a restore.

After a restore it is unknown who was charged, consented or raised their level since the backup was made. The release
that settles this gap states ``reached``, an upper bound on the share of its cap that any account had used by then. It
is a public floor for every account, including those of holders missing from the backup. The amount in an account is

    charges + max over gaps of (reached · cap − its amount when the gap was settled, at least 0),

where the cap is the largest that the holder is now known to have had. A level or consent that is discovered later
therefore raises the floor. See "Restored backups" in docs/gaussian-accounts.md.
"""

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from uuid import uuid4

import numpy as np

from accounting.caps import SLACKS, caps_of, slack_of
from accounting.models import AccountBook, Release
from common.artifacts import arrays_load, arrays_save
from common.journal import note
from consent.models import Study
from consent.selectors import epsilons_largest


@dataclass(frozen=True, eq=False)
class Balances:
    """Amounts spent by holders: ``holders`` (H,) ascending ids, ``spent`` (H,) μ². Unlisted holders have spent 0.

    Balances are secret: the only permitted use of an account is to exclude its own holder from contributing. Raises
    ValueError if the ids are not strictly ascending, because a charge would then be lost.
    """

    holders: np.ndarray
    spent: np.ndarray

    def __post_init__(self) -> None:
        if self.holders.shape != self.spent.shape or not (self.holders[1:] > self.holders[:-1]).all():
            raise ValueError("Give one amount per holder, with the holders' ids in ascending order.")

    @classmethod
    def empty(cls) -> "Balances":
        return cls(np.empty(0, dtype=np.int64), np.empty(0))

    def of(self, holders: np.ndarray) -> np.ndarray:
        """Return the amount (N,) spent by each of ``holders`` (N,), in μ²."""
        place, known = self._places(holders)
        spent = np.zeros(len(holders))
        spent[known] = self.spent[place[known]]
        return spent

    def charged(self, charges: "Balances") -> "Balances":
        """Return the accounts after adding ``charges``."""
        place, known = self._places(charges.holders)
        new = ~known
        # Both lists are sorted, so new holders are inserted without sorting.
        holders = np.insert(self.holders, place[new], charges.holders[new])
        spent = np.insert(self.spent, place[new], 0.0)
        spent[np.searchsorted(holders, charges.holders) if new.any() else place] += charges.spent
        return Balances(holders, spent)

    def _places(self, holders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each holder's position or insertion point (N,), and whether the holder is listed (N,)."""
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
    return _loaded(name, "spent")


def _loaded(name: str, amounts: str) -> Balances:
    arrays = arrays_load(name, "holder", amounts)
    for array in arrays.values():
        array.setflags(write=False)
    return Balances(arrays["holder"], arrays[amounts])


#: Cached because a batch reads the accounts several times. A name always refers to the same content.
_book_load = lru_cache(maxsize=2)(balances_load)


def balances_store(study: Study, prefix: str, content: Balances, **more: np.ndarray) -> tuple[str, str]:
    """Write accounts or charges, with further arrays ``more`` (H,), into a new file; return its name and digest.

    A salt in the file prevents guesses about its content from being checked against the digest.
    """
    name = f"accounts/{study.pk}/{prefix}-{uuid4().hex}.npz"
    salt = np.frombuffer(secrets.token_bytes(32), dtype=np.uint8)
    return name, arrays_save(name, holder=content.holders, spent=content.spent, salt=salt, **more)


def charges_of(release: Release) -> Balances:
    """Return each holder's charge for a release."""
    return balances_load(release.charges) if release.charges else Balances.empty()


@dataclass(frozen=True, eq=False)
class Floor:
    """Floor of all accounts after a gap.

    Attributes:
        settled_at: when the gap was settled.
        reached: the floor, as a share of every cap.
        epsilon: the largest ε promised up to then, including by policies that were lost.
    """

    settled_at: datetime
    reached: float
    epsilon: float
    before: Balances

    def missing(self, holders: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Return the difference (H,) between the floor and accounts with these caps when the gap was settled, in μ²."""
        return np.maximum(self.reached * caps - self.before.of(holders), 0.0)


def floors(study: Study) -> Iterator[Floor]:
    """Yield the floor of every gap of a study, oldest first."""
    gaps = Release.objects.filter(study=study, kind=Release.Kind.GAP, content__reached__gt=0).order_by("sequence")
    for settled_at, content, name in gaps.values_list("recorded_at", "content", "charges"):
        yield Floor(settled_at, content["reached"], content["epsilon"], _before(name))


def account_balances(study: Study, holders: np.ndarray) -> np.ndarray:
    """Return the current amounts (H,) of the accounts of ``holders`` (H,), including gaps, in μ². Secret.

    This is the only source of these values, so all code that charges or verifies must call it.
    """
    return balances(study).of(holders) + gap_surcharges(study, holders)


def gap_surcharges(study: Study, holders: np.ndarray) -> np.ndarray:
    """Return the amounts (H,) that gaps add to the accounts of ``holders`` beyond their charges, in μ². Secret."""
    raised, known = np.zeros(len(holders)), list(floors(study))
    if known:
        caps = caps_largest(study, holders)
        for floor in known:
            raised = np.maximum(raised, floor.missing(holders, caps))
    return raised


def caps_largest(study: Study, holders: np.ndarray) -> np.ndarray:
    """Return the largest cap that each of ``holders`` (H,) has ever had, in μ²; 0 for holders who never consented."""
    largest = epsilons_largest(study)
    epsilons = np.array([largest.get(holder, 0.0) for holder in holders.tolist()])
    caps = np.zeros(len(holders))
    caps[epsilons > 0] = caps_of(epsilons[epsilons > 0], study.delta)
    return caps


@lru_cache(maxsize=8)
def _before(name: str) -> Balances:
    """Return the accounts at the time of a gap. Cached because a name always refers to the same content."""
    return _loaded(name, "before")


#: Tolerance for rounding when slacks are added, relative to the δ that is reserved for them.
_ROUNDING = 1e-9


def charged_slack(study: Study) -> float:
    """Return the sum of δ′ over all releases of a study that have a slack."""
    with_slack = Release.objects.filter(study=study, content__has_key="slack")
    return math.fsum(float(content["slack"]) for content in with_slack.values_list("content", flat=True))


def slack_fits(study: Study, slack: float) -> bool:
    """Return whether the δ reserved for slacks suffices for another one. The caller holds the study's lock."""
    return charged_slack(study) + slack <= SLACKS * slack_of(study.delta) * (1 + _ROUNDING)


def slack_note(study: Study) -> None:
    """Record charged slacks in the journal, because a restored backup may lack them."""
    note(study.pk, facts={"slack": charged_slack(study)})


def slack_faults(study: Study) -> Iterator[str]:
    """Check that the slacks of all releases do not exceed the δ reserved for slacks."""
    if not slack_fits(study, 0.0):
        yield (
            f"The slacks of sampled runs add up to {charged_slack(study):g}, which is more of the study's δ than the "
            "caps leave."
        )
