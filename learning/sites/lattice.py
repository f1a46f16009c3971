"""Numbers sent by sites: integer multiples of a public unit, modulo 2⁶⁴, including the site's own noise and masks.

The unit h is so fine (a site's noise is 2³³ to 2³⁴ units) that the sum of the sites' rounded normals is, within a
negligible distance, the same as a single rounded normal (`JOINT_NORMAL_DISTANCE` in `common.noise`, docs/sites.md).

In each pair of sites, one adds the mask that the other subtracts, so masks cancel only in the total. Masks are derived
by X25519 (RFC 7748) between keys made for one run, HKDF-SHA256 (RFC 5869) over everything that identifies the question,
and ChaCha20 (RFC 8439) as a stream of 64-bit numbers. A key is used for only one stream, because a site answers each
question only once.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from common.noise import LARGEST_ROUNDED_SCALE, Noise, Shape
from common.sentences import gettext_noop
from learning.sites.documents import DOMAIN, QuestionDocument, Refused, Roster

Numbers = NDArray[Any]
Units = NDArray[np.uint64]

_NONCE = bytes(16)  # block counter and nonce; the key is used only once


@dataclass(frozen=True)
class Lattice:
    """Integer multiples of ``grain`` / 2^``shift``.

    Attributes:
        grain: Unit of the sums without noise.
        shift: Number of additional binary digits of the unit.
        spread: Standard deviation of a site's noise, in the units of the sums.
    """

    grain: float
    shift: int
    spread: float

    @classmethod
    def finest(cls, spread: float, grain: float) -> Lattice:
        """Return the lattice for a site's noise of this standard deviation.

        Raises:
            Refused: The noise is so large that the unit would be coarser than the sums.

        >>> Lattice.finest(50.0, 2.0**-16)
        Lattice(grain=1.52587890625e-05, shift=12, spread=50.0)
        """
        _, above = math.frexp(spread / grain)  # the power of 2 above the noise, in grains
        shift = int(math.log2(LARGEST_ROUNDED_SCALE)) - above
        if shift < 0:
            raise Refused(
                gettext_noop(
                    "Noise of %(spread)g is too large to be drawn in units of %(grain)g. Plan for less noise."
                ),
                spread=spread,
                grain=grain,
            )
        return cls(grain, shift, spread)

    def most(self, sites: int) -> float:
        """Return the largest absolute value of a site's sums at which the total of this many sites cannot overflow."""
        return float(self._room(sites)) * self.grain

    def encode(self, sums: Numbers, sites: int) -> Units:
        """Return exact sums in units, modulo 2⁶⁴.

        Raises:
            Refused: The sums are not multiples of the grain, or are so large that the total of all sites could
                overflow.
        """
        grains = np.asarray(sums) / self.grain if self.grain != 1 else np.asarray(sums)
        if (grains != np.rint(grains)).any():
            raise Refused(
                gettext_noop("The sums are not whole multiples of %(grain)g, so they must have been rounded."),
                grain=self.grain,
            )
        if (np.abs(grains) > self._room(sites)).any():
            raise Refused(
                gettext_noop(
                    "With so little noise, %(number)s sites cannot add up sums above %(most)g. Plan for more noise "
                    "or fewer people."
                ),
                most=self.most(sites),
                number=sites,
            )
        return grains.astype(np.int64).view(np.uint64) << np.uint64(self.shift)

    def noise(self, source: Noise, shape: Shape) -> Units:
        """Return a site's own noise, in units."""
        return source.rounded_normal(self.spread / self.grain * 2.0**self.shift, shape).view(np.uint64)

    def decode(self, total: Units) -> Numbers:
        """Return the total of all sites, rounded to the grain: int64 if the grain is 1, else float64."""
        units = total.view(np.int64)
        half = np.int64(1 << self.shift >> 1)
        grains = (units + half) >> np.int64(self.shift)
        return grains if self.grain == 1 else grains * self.grain

    def _room(self, sites: int) -> int:
        """Return the largest sum for each site, in grains. Half of its equal part of 63 bits is reserved for noise."""
        return (2**62 // sites) >> self.shift


class IncludedNoise:
    """Source of noise that adds nothing, for a total that already includes the noise.

    It can be used once, and only for Gaussian noise with exactly the standard deviation that the sites have added.

    >>> IncludedNoise(40.0).normal(40.0, 3)
    array([0., 0., 0.])
    """

    is_simulation: ClassVar[bool] = False

    def __init__(self, spread: float) -> None:
        self._spread: float | None = spread

    def normal(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        self._use(scale)
        return np.zeros(shape)

    def rounded_normal(self, scale: float, shape: Shape) -> NDArray[np.int64]:
        self._use(scale)
        return np.zeros(shape, np.int64)

    def laplace(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        raise Refused(gettext_noop("Sites add Gaussian noise. Choose an aggregator that needs no other noise."))

    def _use(self, scale: float) -> None:
        if scale != self._spread:
            raise Refused(
                gettext_noop(
                    "This release needs noise of %(needed)g, but only %(left)g of the noise in the sites' total is "
                    "still unused. The total can be released only as a single noisy sum."
                ),
                needed=scale,
                left=self._spread or 0,
            )
        self._spread = None


def mask(site: str, own: X25519PrivateKey, roster: Roster, question: QuestionDocument, count: int) -> Units:
    """Return the mask that a site adds to ``count`` numbers of its answer.

    Args:
        site: Name of the site.
        own: The site's agreement key for the run.
        roster: Roster with the public agreement keys of the other sites.
        question: Question with the names of the participants.
        count: Number of masked numbers.
    """
    total = np.zeros(count, np.uint64)
    for other in question.participants:
        if other != site:
            pair = (site, other) if site < other else (other, site)
            stream = keystream(pair_key(own, roster.agreements[other], pair_info(question, pair)), count)
            total += stream if site < other else np.negative(stream)
    return total


def pair_info(question: QuestionDocument, pair: tuple[str, str]) -> bytes:
    """Return the data to which a pair's key is bound: run, question, participants, pair."""
    parts = [DOMAIN, "mask", question.roster, question.digest(), question.participants, pair]
    return json.dumps(parts, separators=(",", ":")).encode()


def pair_key(own: X25519PrivateKey, other: str, info: bytes) -> bytes:
    """Return the 32-byte key shared by both sites of a pair.

    Raises:
        Refused: The other site's public key is invalid.
    """
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))
    except ValueError as error:  # wrong length, or small order
        raise Refused(
            gettext_noop("A site's agreement key is invalid. The site has to approve the run again.")
        ) from error
    return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared)


def keystream(key: bytes, count: int) -> Units:
    """Return pseudorandom numbers of 64 bits, ``(count,)``."""
    stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor().update(bytes(8 * count))
    return np.frombuffer(stream, "<u8").astype(np.uint64)
