"""Masks of pairs of sites: one adds what the other subtracts, so that they cancel in the total and nowhere else.

X25519 (RFC 7748) between keys made for one run, HKDF-SHA256 (RFC 5869) over everything that distinguishes the question,
ChaCha20 (RFC 8439) as a stream of 64-bit numbers. A key is used for one stream: a site answers a question at most once.
"""

from __future__ import annotations

import json

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.sentences import gettext_noop
from learning.sites.documents import DOMAIN, JointQuestion, Refused, Roster
from learning.sites.lattice import Units

_NONCE = bytes(16)  # block counter and nonce: the key is used once


def mask(site: str, own: X25519PrivateKey, roster: Roster, question: JointQuestion, count: int) -> Units:
    """What a site adds to ``count`` numbers of its answer.

    Args:
        site: Its name.
        own: Its agreement key of the run.
        roster: With the public agreement keys of the others.
        question: Names the participants.
        count: Of numbers.
    """
    total = np.zeros(count, np.uint64)
    for other in question.participants:
        if other != site:
            pair = (site, other) if site < other else (other, site)
            stream = keystream(pair_key(own, roster.agreements[other], pair_info(question, pair)), count)
            total += stream if site < other else np.negative(stream)
    return total


def pair_info(question: JointQuestion, pair: tuple[str, str]) -> bytes:
    """What the key of a pair is for: run, question, participants, pair."""
    parts = [DOMAIN, "mask", question.roster, question.digest(), question.participants, pair]
    return json.dumps(parts, separators=(",", ":")).encode()


def pair_key(own: X25519PrivateKey, other: str, info: bytes) -> bytes:
    """Key of 32 bytes that both sites of a pair arrive at.

    Raises:
        Refused: The other's public key is none.
    """
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))
    except ValueError as error:  # of the wrong length, or of small order
        raise Refused(gettext_noop("The agreement key of a site is none: it has to approve the run anew.")) from error
    return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared)


def keystream(key: bytes, count: int) -> Units:
    """Pseudorandom numbers of 64 bits, ``(count,)``."""
    stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor().update(bytes(8 * count))
    return np.frombuffer(stream, "<u8").astype(np.uint64)
