"""Merkle tree of a log as in RFC 6962 and RFC 9162: root hashes, proofs of inclusion and of consistency."""

import hashlib
from collections.abc import Iterator, Sequence


def leaf_hash(data: bytes) -> bytes:
    """Hash of a leaf (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def roots(leaves: Sequence[bytes]) -> Iterator[bytes]:
    """Root hash of the first leaf hash, of the first two, and so on: one for each size of the log."""
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
    """Root hash over leaf hashes; of none, the hash of nothing."""
    *_, last = hashlib.sha256().digest(), *roots(leaves)
    return last


def _split(size: int) -> int:
    """The largest power of two below ``size``."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Proof that the leaf at ``index`` is in the tree, from its sibling upwards (RFC 9162, section 2.1.3.1)."""
    if len(leaves) == 1:
        return []
    middle = _split(len(leaves))
    left, right = leaves[:middle], leaves[middle:]
    if index < middle:
        return [*inclusion_path(left, index), root(right)]
    return [*inclusion_path(right, index - middle), root(left)]


def consistency_path(leaves: Sequence[bytes], earlier: int) -> list[bytes]:
    """Proof that the tree of the first ``earlier`` leaves, 1 or more, has only grown (RFC 9162, section 2.1.4.1)."""
    return _subproof(leaves, earlier, whole=True)


def _subproof(leaves: Sequence[bytes], earlier: int, *, whole: bool) -> list[bytes]:
    if earlier == len(leaves):
        return [] if whole else [root(leaves)]
    middle = _split(len(leaves))
    left, right = leaves[:middle], leaves[middle:]
    if earlier <= middle:
        return [*_subproof(left, earlier, whole=whole), root(right)]
    return [*_subproof(right, earlier - middle, whole=False), root(left)]
