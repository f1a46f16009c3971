"""Merkle trees as in RFC 6962 and RFC 9162: of a log, and of one moment's rows without revealing their number.

The tree of a moment has 2^48 leaves. A row's place is derived from its name by a keyed hash, and so is the nonce that
hides its content; a subtree that holds no row has a keyed hash instead of a root. The key is drawn for each moment. So
every root and every proof of inclusion looks the same, whether there are ten rows or ten million: a proof has 48
hashes; without the key it is impossible to tell which of them represent rows, and none is shared with another moment.
"""

import hashlib
import hmac
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

#: Height of the tree.
DEPTH = 48
#: Number of levels below the root whose hashes are kept, so that a proof need not compute half of the tree.
_KEPT_BELOW = 12
_HASH = 32


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def roots(leaves: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the root hash of the first leaf hash, of the first two, and so on: one for each size of the log."""
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
    """Return the root hash over leaf hashes; for none, the hash of nothing."""
    *_, last = hashlib.sha256().digest(), *roots(leaves)
    return last


def _split(size: int) -> int:
    """Return the largest power of two below ``size``."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Prove that the leaf at ``index`` is in the tree, from its sibling upwards (RFC 9162, section 2.1.3.1)."""
    if len(leaves) == 1:
        return []
    middle = _split(len(leaves))
    left, right = leaves[:middle], leaves[middle:]
    if index < middle:
        return [*inclusion_path(left, index), root(right)]
    return [*inclusion_path(right, index - middle), root(left)]


def consistency_path(leaves: Sequence[bytes], earlier: int) -> list[bytes]:
    """Prove that the tree of the first ``earlier`` leaves, 1 or more, only grew (RFC 9162, section 2.1.4.1)."""
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
    """Two rows fall on the same place under this key; another key is to be drawn."""


def hiding(key: bytes, name: bytes) -> tuple[int, bytes]:
    """Return place and nonce of the row with this name, under the key of a moment."""
    drawn = hmac.digest(key, b"row:" + name, "sha512")
    return int.from_bytes(drawn[32 : 32 + DEPTH // 8], "big"), drawn[:32]


@dataclass(frozen=True)
class State:
    """Tree of one moment.

    Attributes:
        key: 32 secret bytes of the moment.
        places: sorted, all different.
        leaves: (n, 32) hashes of the leaves there.
        kept: hashes of the inner nodes that are kept, by the beginning of their places.
    """

    key: bytes
    places: npt.NDArray[np.uint64]
    leaves: npt.NDArray[np.uint8]
    kept: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, key: bytes, rows: Iterable[tuple[bytes, bytes]]) -> "State":
        """Return the tree of rows, each with its name and content.

        Raises:
            PlaceTakenError: two rows fall on the same place.
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
        """Return the root hash, and fill ``kept``."""
        if not len(self.places):
            return self._fillers(0)[:_HASH]
        return self._node(DEPTH, 0, len(self.places), self.places.tolist())

    def path(self, place: int) -> list[bytes]:
        """Prove that a row is at ``place``, from its sibling upwards. Raises LookupError if there is none."""
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
        """Return the index of the first of the rows ``low`` to ``high``, all in one subtree, in its right half."""
        begin = int(places[low]) >> (level + 1)  # type: ignore[index]
        return bisect_left(places, (2 * begin + 1) << level, low, high)  # type: ignore[call-overload]

    def _fillers(self, place: int) -> bytes:
        return hashlib.shake_256(self.key + b"empty:" + place.to_bytes(8, "big")).digest(_HASH * DEPTH)

    def _filler(self, beside: int, level: int) -> bytes:
        """Return the hash of an empty subtree of height ``level`` whose sibling's first row is at ``beside``."""
        return self._fillers(beside)[_HASH * level : _HASH * (level + 1)]

    def _node(self, level: int, low: int, high: int, places: object) -> bytes:
        """Return the root hash of the subtree of height ``level`` with the rows ``low`` to ``high``, at least one."""
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
