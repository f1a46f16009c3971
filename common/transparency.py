"""Transparency logs: Merkle trees (RFC 6962, RFC 9162), and signed notes and checkpoints (C2SP), without Django.

The state at each moment has a separate tree with 2^48 leaves and a separate random key. A keyed hash of a row's name
gives its place in the tree and the nonce that hides its content. A subtree without rows has a keyed hash instead of a
root. Roots and proofs of inclusion therefore look the same for ten rows and for ten million: a proof has 48 hashes,
only the key shows which of them represent rows, and no two moments share a hash.
"""

import base64
import hashlib
import hmac
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: Height of the tree.
DEPTH = 48
#: Number of levels below the root whose hashes are kept, so that a proof does not have to recompute half of the tree.
_KEPT_BELOW = 12
_HASH = 32


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def roots(leaves: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the root hash over the first leaf, the first two leaves, and so on, one for each size of the log."""
    complete: list[tuple[int, bytes]] = []  # the complete subtrees from left to right: number of leaves, root hash
    for leaf in leaves:
        complete.append((1, leaf))
        while len(complete) > 1 and complete[-2][0] == complete[-1][0]:
            (size, left), (_, right) = complete[-2:]
            complete[-2:] = [(2 * size, node_hash(left, right))]
        node = complete[-1][1]
        for _, left in reversed(complete[:-1]):
            node = node_hash(left, node)
        yield node


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root hash over leaf hashes or, if there are no leaves, the hash of the empty string."""
    *_, last = hashlib.sha256().digest(), *roots(leaves)
    return last


def _split(size: int) -> int:
    """Return the largest power of two below ``size``."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return a proof that the tree contains the leaf at ``index``, from its sibling upwards (RFC 9162, 2.1.3.1)."""
    if len(leaves) == 1:
        return []
    middle = _split(len(leaves))
    left, right = leaves[:middle], leaves[middle:]
    if index < middle:
        return [*inclusion_path(left, index), root(right)]
    return [*inclusion_path(right, index - middle), root(left)]


def consistency_path(leaves: Sequence[bytes], earlier: int) -> list[bytes]:
    """Return a proof that the tree extends its first ``earlier`` leaves, at least 1 (RFC 9162, section 2.1.4.1)."""
    return _subproof(leaves, earlier, whole=True)


def _subproof(leaves: Sequence[bytes], earlier: int, *, whole: bool) -> list[bytes]:
    if earlier == len(leaves):
        return [] if whole else [root(leaves)]
    middle = _split(len(leaves))
    left, right = leaves[:middle], leaves[middle:]
    if earlier <= middle:
        return [*_subproof(left, earlier, whole=whole), root(right)]
    return [*_subproof(right, earlier - middle, whole=False), root(left)]


class PlaceTakenError(Exception):
    """Raised if two rows have the same place under a key. Another key must then be drawn."""


def hiding(key: bytes, name: bytes) -> tuple[int, bytes]:
    """Return the place and nonce of the row with this name, under the key of a moment."""
    drawn = hmac.digest(key, b"row:" + name, "sha512")
    return int.from_bytes(drawn[32 : 32 + DEPTH // 8], "big"), drawn[:32]


@dataclass(frozen=True)
class State:
    """Merkle tree of the rows at one time.

    Attributes:
        key: 32 secret bytes of the moment.
        places: (n,) places of the rows, strictly ascending.
        leaves: (n, 32) hashes of the leaves at these places.
        kept: hashes of inner nodes, by the common leading bits of their places.
    """

    key: bytes
    places: npt.NDArray[np.uint64]
    leaves: npt.NDArray[np.uint8]
    kept: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, key: bytes, rows: Iterable[tuple[bytes, bytes]]) -> "State":
        """Return the tree of ``rows``, which are pairs (name, content).

        Raises:
            PlaceTakenError: two rows have the same place.
        """
        places, leaves = [], bytearray()
        for name, content in rows:
            place, nonce = hiding(key, name)
            places.append(place)
            leaves += leaf_hash(nonce + content)
        unordered = np.array(places, dtype=np.uint64)
        order = np.argsort(unordered)
        ordered = unordered[order]
        if (ordered[1:] == ordered[:-1]).any():
            raise PlaceTakenError
        return cls(key, ordered, np.frombuffer(bytes(leaves), np.uint8).reshape(-1, _HASH)[order])

    def root(self) -> bytes:
        """Return the root hash and fill ``kept``."""
        if not len(self.places):
            return self._fillers(0)[:_HASH]
        return self._node(DEPTH, 0, len(self.places), self.places.tolist())

    def path(self, place: int) -> list[bytes]:
        """Return a proof that a row is at ``place``, from its sibling upwards. Raises LookupError if there is none."""
        low, high, siblings = 0, len(self.places), []
        for level in range(DEPTH - 1, -1, -1):
            middle = self._middle(level, low, high, self.places)
            inside, other = (
                ((low, middle), (middle, high)) if not place >> level & 1 else ((middle, high), (low, middle))
            )
            if inside[0] == inside[1]:
                raise LookupError(place)
            if other[0] == other[1]:
                siblings.append(self._filler(int(self.places[inside[0]]), level))
            else:
                siblings.append(self._node(level, *other, self.places))
            low, high = inside
        return siblings[::-1]

    def _middle(self, level: int, low: int, high: int, places: object) -> int:
        """Return the index of the first row from ``low`` to ``high`` that is in the right half of their subtree."""
        begin = int(places[low]) >> (level + 1)  # type: ignore[index]
        return bisect_left(places, (2 * begin + 1) << level, low, high)  # type: ignore[call-overload]

    def _fillers(self, place: int) -> bytes:
        return hashlib.shake_256(self.key + b"empty:" + place.to_bytes(8, "big")).digest(_HASH * DEPTH)

    def _filler(self, beside: int, level: int) -> bytes:
        """Return the hash of an empty subtree of height ``level`` whose sibling's first row is at ``beside``."""
        return self._fillers(beside)[_HASH * level : _HASH * (level + 1)]

    def _node(self, level: int, low: int, high: int, places: object) -> bytes:
        """Return the root hash of the subtree of height ``level`` with at least one row, from ``low`` to ``high``."""
        first = int(places[low])  # type: ignore[index]
        begin = first >> level
        if level == DEPTH - _KEPT_BELOW and begin in self.kept:
            return self.kept[begin]
        if high - low == 1:
            node = self._lone(level, low, first)
        else:
            middle = self._middle(level - 1, low, high, places)
            if middle == low:
                node = node_hash(self._filler(first, level - 1), self._node(level - 1, low, high, places))
            elif middle == high:
                node = node_hash(self._node(level - 1, low, high, places), self._filler(first, level - 1))
            else:
                left = self._node(level - 1, low, middle, places)
                node = node_hash(left, self._node(level - 1, middle, high, places))
        if level == DEPTH - _KEPT_BELOW:
            self.kept[begin] = node
        return node

    def _lone(self, level: int, row: int, place: int) -> bytes:
        """Return the root hash of a subtree with one row."""
        node, fillers = self.leaves[row].tobytes(), self._fillers(place)
        for height in range(level):
            filler = fillers[_HASH * height : _HASH * (height + 1)]
            node = node_hash(filler, node) if place >> height & 1 else node_hash(node, filler)
        return node


_TYPE = b"\x01"
_PRIVATE = "PRIVATE+KEY"


class NoteError(ValueError):
    """Raised if a key or note cannot be read or is not signed correctly."""


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _key_id(name: str, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _TYPE + public).digest()[:4]


@dataclass(frozen=True)
class SigningKey:
    """Private key of a log: ``name``, which is the log's origin, and 32 secret bytes."""

    name: str
    secret: bytes

    @classmethod
    def made(cls, name: str) -> "SigningKey":
        """Return a new key. Raises NoteError if the name contains spaces or a plus sign."""
        if not name or "+" in name or any(letter.isspace() for letter in name):
            raise NoteError(
                "A key's name cannot contain spaces or plus signs. Choose one such as ipate.example/checkpoints."
            )
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def parsed(cls, text: str) -> "SigningKey":
        """Return the key in a text in the format of Go's ``golang.org/x/mod/sumdb/note``. Raises NoteError."""
        try:
            word, other, name, number, encoded = text.strip().split("+", 4)
            material = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise NoteError("This is not a private key from ipate checkpoint_key.") from None
        if f"{word}+{other}" != _PRIVATE or len(material) != 33 or material[:1] != _TYPE:
            raise NoteError("This is not a private key from ipate checkpoint_key.")
        key = cls(name, material[1:])
        if _key_id(name, key._public).hex() != number:
            raise NoteError("The private key was changed: its id does not match.")
        return key

    @property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @property
    def _public(self) -> bytes:
        return self._private.public_key().public_bytes_raw()

    @property
    def text(self) -> str:
        """The private key as a line of text."""
        return f"{_PRIVATE}+{self.name}+{_key_id(self.name, self._public).hex()}+{_base64(_TYPE + self.secret)}"

    @property
    def public(self) -> str:
        """The public key as a line of text (C2SP “vkey”)."""
        return f"{self.name}+{_key_id(self.name, self._public).hex()}+{_base64(_TYPE + self._public)}"

    def signed(self, text: str) -> str:
        """Return a note: ``text``, which must end with a line feed, and its signature."""
        signature = _key_id(self.name, self._public) + self._private.sign(text.encode())
        return f"{text}\n\u2014 {self.name} {_base64(signature)}\n"


def public_check(key: str) -> None:
    """Raise NoteError unless ``key`` is a complete Ed25519 public key."""
    _public_bytes(key)


def _public_bytes(key: str) -> tuple[str, bytes]:
    try:
        name, number, encoded = key.split("+", 2)
        material = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise NoteError("A public key has the form NAME+ID+KEY.") from None
    if len(material) != 33 or material[:1] != _TYPE or _key_id(name, material[1:]).hex() != number:
        raise NoteError("The public key is incomplete or not an Ed25519 key.")
    return name, material[1:]


def checkpoint_text(origin: str, size: int, root: bytes) -> str:
    """Return the text of a checkpoint, ready to be signed."""
    return f"{origin}\n{size}\n{_base64(root)}\n"


def note_text(note: str, keys: Iterable[str]) -> str:
    """Return the text of a note if one of the public keys has signed it. Raises NoteError otherwise."""
    text, _, signatures = note.rpartition("\n\n")
    text += "\n"
    for key in keys:
        name, public = _public_bytes(key)
        for line in signatures.splitlines():
            parts = line.split(" ")
            if len(parts) != 3 or parts[1] != name:
                continue
            try:
                signature = base64.b64decode(parts[2], validate=True)
                if signature[:4] == _key_id(name, public):
                    Ed25519PublicKey.from_public_bytes(public).verify(signature[4:], text.encode())
                    return text
            except (ValueError, InvalidSignature):
                raise NoteError("The signature is wrong.") from None
    raise NoteError("It is not signed with a key in the settings.")


def note_in(text: str) -> str:
    """Return the first note in a text, such as an email; a note's body has no empty line. May raise NoteError."""
    blocks = [block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n")]
    for body, signatures in pairwise(blocks):
        if signatures.startswith("\u2014 "):
            return f"{body}\n\n{signatures}\n"
    raise NoteError("It contains no signed checkpoint.")


def log_proof(index: int, path: Sequence[bytes], note: str) -> str:
    """Return a proof that an entry is in the log, with its checkpoint (C2SP tlog-proof)."""
    return "".join(
        ["c2sp.org/tlog-proof@v1\n", f"index {index}\n", *(f"{_base64(each)}\n" for each in path), "\n", note]
    )


def extension(earlier: int, path: Sequence[bytes], note: str) -> str:
    """Return a checkpoint with a proof that it extends the first ``earlier`` entries (C2SP tlog-witness body)."""
    return "".join([f"old {earlier}\n", *(f"{_base64(each)}\n" for each in path), "\n", note])
