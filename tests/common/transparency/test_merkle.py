"""Merkle trees against the roots of RFC 6962's reference implementation, and against its definition, written out."""

import hashlib
import random

import pytest
from ipate_client.checkpoints import Checkpoint, CheckpointError, verify_consistency, verify_inclusion

from common.transparency.logs import consistency_path, inclusion_path, leaf_hash, root, roots
from common.transparency.states import DEPTH, PlaceTakenError, State, hiding

#: The leaves of the tests of Certificate Transparency's reference implementation, and the roots that it gives.
LEAVES = [bytes.fromhex(leaf) for leaf in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
LEAVES.append(bytes.fromhex("606162636465666768696a6b6c6d6e6f"))
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def defined_root(leaves: list[bytes]) -> bytes:
    """The definition of RFC 6962, section 2.1, of leaves as they are."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    middle = max(2**n for n in range(20) if 2**n < len(leaves))
    return hashlib.sha256(b"\x01" + defined_root(leaves[:middle]) + defined_root(leaves[middle:])).digest()


def log(size: int) -> list[bytes]:
    return [leaf_hash(str(n).encode()) for n in range(size)]


def checkpoint(leaves: list[bytes]) -> Checkpoint:
    return Checkpoint("log.example", len(leaves), root(leaves))


def test_roots_are_those_of_the_reference_implementation() -> None:
    assert [found.hex() for found in roots([leaf_hash(leaf) for leaf in LEAVES])] == ROOTS
    assert root([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_roots_are_as_defined() -> None:
    contents = [str(n).encode() for n in range(40)]
    assert list(roots(log(40))) == [defined_root(contents[: n + 1]) for n in range(40)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13, 33])
def test_every_leaf_is_shown_to_be_there_and_no_other(size: int) -> None:
    leaves, top = log(size), root(log(size))
    for index in range(size):
        path = inclusion_path(leaves, index)
        verify_inclusion(leaves[index], index, size, path, top)
        wrong = [
            (leaf_hash(b"other"), index, size, path, top),
            (leaves[index], index, size, [*path, top], top),
            (leaves[index], index, size, path, leaves[index] if size > 1 else top[::-1]),
            (leaves[index], size, size, path, top),
        ]
        if path:
            wrong += [
                (leaves[index], index, size, path[:-1], top),
                (leaves[index], index, size, [path[0][::-1], *path[1:]], top),
                (leaves[index], index ^ 1, size, path, top),
            ]
        for each in wrong:
            with pytest.raises(CheckpointError):
                verify_inclusion(*each)


def test_a_log_that_only_grew_is_shown_to_have_grown() -> None:
    for later in range(1, 20):
        for earlier in range(1, later + 1):
            path = consistency_path(log(later), earlier)
            verify_consistency(checkpoint(log(earlier)), checkpoint(log(later)), path)
            rewritten = [leaf_hash(b"other"), *log(later)[1:]]
            for old, new, proof in (
                (log(earlier), rewritten, path),
                (log(earlier), rewritten, consistency_path(rewritten, earlier)),
                (log(earlier), log(later), [*path, root(LEAVES)]),
                (log(later + 1), log(later), path),
            ):
                with pytest.raises(CheckpointError):
                    verify_consistency(checkpoint(old), checkpoint(new), proof)


def state_root(state: State) -> bytes:
    """Root by the definition: of a subtree with rows the hash of its halves; an empty half follows from the other."""
    leaves = dict(zip(state.places.tolist(), (leaf.tobytes() for leaf in state.leaves), strict=True))

    def subtree(begin: int, height: int) -> bytes | None:
        inside = [place for place in leaves if place >> height == begin]
        if not inside:
            return None
        if height == 0:
            return leaves[inside[0]]
        halves = [subtree(2 * begin + side, height - 1) for side in (0, 1)]
        stream = hashlib.shake_256(state.key + b"empty:" + min(inside).to_bytes(8, "big")).digest(32 * DEPTH)
        left, right = (half or stream[32 * height - 32 : 32 * height] for half in halves)
        return hashlib.sha256(b"\x01" + left + right).digest()

    return subtree(0, DEPTH)


def rows(number: int) -> list[tuple[bytes, bytes]]:
    return [(f"row {n}".encode(), f"content {n}".encode()) for n in range(number)]


KEY = bytes(range(32))


@pytest.mark.parametrize("number", [1, 2, 3, 50])
def test_a_state_is_a_tree_of_2_to_the_48_leaves(number: int) -> None:
    state = State.of(KEY, rows(number))
    top = state.root()
    assert top == state_root(state)
    for name, content in rows(number):
        place, nonce = hiding(KEY, name)
        path = state.path(place)
        assert len(path) == DEPTH
        verify_inclusion(leaf_hash(nonce + content), place, 1 << DEPTH, path, top)
        with pytest.raises(CheckpointError):
            verify_inclusion(leaf_hash(nonce + content + b"."), place, 1 << DEPTH, path, top)


def test_the_order_of_rows_does_not_matter_and_each_row_does() -> None:
    shuffled = rows(30)
    random.Random(7).shuffle(shuffled)
    assert State.of(KEY, shuffled).root() == State.of(KEY, rows(30)).root()
    assert State.of(KEY, rows(29)).root() != State.of(KEY, rows(30)).root()
    with pytest.raises(PlaceTakenError):
        State.of(KEY, [*rows(3), rows(1)[0]])


@pytest.mark.slow
def test_proofs_by_the_kept_hashes_are_the_same() -> None:
    state = State.of(KEY, rows(1200))
    positions = state.places[::500].tolist()
    paths = [State(KEY, state.places, state.leaves).path(place) for place in positions]
    state.root()
    assert len(state.kept) > 100
    again = State(KEY, state.places, state.leaves, state.kept)
    assert [again.path(place) for place in positions] == paths
    for row in range(0, 1200, 60):
        path = again.path(int(state.places[row]))
        verify_inclusion(state.leaves[row].tobytes(), int(state.places[row]), 1 << DEPTH, path, state.root())
    with pytest.raises(LookupError):
        again.path(int(state.places[0]) ^ 1)


def test_nothing_of_a_proof_is_that_of_another_moment_though_no_row_came() -> None:
    """Whoever compares two proofs of theirs, or two roots, cannot tell whether anything was recorded between them."""
    hashes = []
    for key in (KEY, KEY[::-1]):
        state = State.of(key, rows(20))
        hashes.append({state.root(), *state.path(hiding(key, b"row 3")[0])})
    assert len(hashes[0]) == len(hashes[1]) == DEPTH + 1
    assert not hashes[0] & hashes[1]
