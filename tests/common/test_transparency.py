"""Merkle trees and signed notes, compared with RFC 6962, its reference implementation, C2SP, and a library."""

import hashlib
import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ipate_client.checkpoints import (
    Checkpoint,
    CheckpointError,
    _signed_by,
    verify_checkpoint,
    verify_consistency,
    verify_inclusion,
)

from common.transparency import (
    DEPTH,
    NoteError,
    PlaceTakenError,
    SigningKey,
    State,
    checkpoint_text,
    consistency_path,
    hiding,
    inclusion_path,
    leaf_hash,
    note_in,
    note_text,
    public_check,
    root,
    roots,
)

#: Leaves of the tests of Certificate Transparency's reference implementation, and its root over all of them.
LEAVES = [bytes.fromhex(leaf) for leaf in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
LEAVES.append(bytes.fromhex("606162636465666768696a6b6c6d6e6f"))
REFERENCE = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def defined_root(leaves: list[bytes]) -> bytes:
    """Compute the root by the definition in RFC 6962, section 2.1, from raw leaves."""
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


def test_roots_are_as_defined_and_those_of_the_reference_implementation() -> None:
    assert root([leaf_hash(leaf) for leaf in LEAVES]).hex() == REFERENCE
    assert root([]) == defined_root([])
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
    """Compute the root by definition: a subtree with rows hashes its halves, and an empty half depends on the other."""
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


@pytest.mark.exhaustive
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


def test_proofs_of_different_moments_share_no_hash() -> None:
    """Two proofs of a person, or two roots, do not reveal whether anything was recorded in between."""
    hashes = []
    for key in (KEY, KEY[::-1]):
        state = State.of(key, rows(20))
        hashes.append({state.root(), *state.path(hiding(key, b"row 3")[0])})
    assert len(hashes[0]) == len(hashes[1]) == DEPTH + 1
    assert not hashes[0] & hashes[1]


SIGNER = SigningKey("log.example/checkpoints", bytes(range(32)))
OTHER = SigningKey("log.example/checkpoints", bytes(32))
ROOT = hashlib.sha256(b"root").digest()
NOTE = SIGNER.signed(checkpoint_text(SIGNER.name, 12, ROOT))


def test_signatures_of_a_library_verify_and_changed_ones_fail() -> None:
    for seed in range(6):
        key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(bytes([seed])).digest())
        public, message = key.public_key().public_bytes_raw(), bytes([seed]) * seed
        signature = key.sign(message)
        assert _signed_by(public, message, signature)
        for place in (0, 31, 32, 63):
            changed = bytearray(signature)
            changed[place] ^= 1
            assert not _signed_by(public, message, bytes(changed))
        assert not _signed_by(public[::-1], message, signature)
        assert not _signed_by(public, message, signature[:-1])


def test_a_note_has_the_c2sp_format() -> None:
    lines = NOTE.split("\n")
    assert lines[:2] == ["log.example/checkpoints", "12"]
    assert lines[3] == "" and lines[5:] == [""]
    assert lines[4].startswith("\u2014 log.example/checkpoints ")
    name, number, _encoded = SIGNER.public.split("+", 2)
    assert name == SIGNER.name
    raw = Ed25519PrivateKey.from_private_bytes(SIGNER.secret).public_key().public_bytes_raw()
    assert number == hashlib.sha256(name.encode() + b"\n\x01" + raw).hexdigest()[:8]


def test_the_example_of_the_specification_of_signed_notes_is_verified() -> None:
    """The note and its keys are from the documentation of Go's golang.org/x/mod/sumdb/note."""
    key = SigningKey.parsed("PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")
    assert key.public == "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    text = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    signature = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    signed = f"\u2014 PeterNeumann {signature}\n"
    assert key.signed(text) == f"{text}\n{signed}"
    assert note_text(f"{text}\n{signed}", [key.public]) == text


def test_a_checkpoint_is_read_out_of_a_mail() -> None:
    mail = f"Dear Anna,\r\n\r\nkeep this.\n\nold 11\n\n{NOTE}\n-- \nHospital\n".replace("\n", "\r\n")
    found = verify_checkpoint(mail, SIGNER.public)
    assert (found.origin, found.size, found.root) == (SIGNER.name, 12, ROOT)
    assert note_text(note_in(mail), [SIGNER.public]) == checkpoint_text(SIGNER.name, 12, ROOT)


def test_a_changed_checkpoint_is_refused() -> None:
    other = NOTE.replace("log.example/checkpoints\n12", "log.example/other\n12")
    for changed in (NOTE.replace("12", "13"), other, "", "12\n\n\u2014 x y"):
        with pytest.raises(CheckpointError):
            verify_checkpoint(changed, SIGNER.public)
        with pytest.raises(NoteError):
            note_text(note_in(changed), [SIGNER.public])
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        verify_checkpoint(SIGNER.signed("Pay 100 to Mallory.\n"), SIGNER.public)
    assert verify_checkpoint(NOTE, [OTHER.public, SIGNER.public]).size == 12, "keys before and after a change"
    with pytest.raises(CheckpointError, match="not signed with this key"):
        verify_checkpoint(NOTE, OTHER.public)
    with pytest.raises(NoteError, match="not signed"):
        note_text(NOTE, [OTHER.public])


def test_invalid_keys_and_key_names_are_refused() -> None:
    assert SigningKey.parsed(SIGNER.text) == SIGNER
    for text in ("", "PRIVATE+KEY+a+b+c", SIGNER.text.replace("checkpoints", "others"), SIGNER.public):
        with pytest.raises(NoteError):
            SigningKey.parsed(text)
    for text in ("", "a+b", SIGNER.public.replace("log", "dog"), SIGNER.public[:-4]):
        with pytest.raises(NoteError):
            public_check(text)
        with pytest.raises(CheckpointError):
            verify_checkpoint(NOTE, text)
    for name in ("", "a b", "a+b"):
        with pytest.raises(NoteError):
            SigningKey.made(name)
