"""Signed notes: the forms of C2SP, and the verification of Ed25519 in plain Python against a library."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ipate_client.checkpoints import CheckpointError, _signed_by, verify_checkpoint

from common.transparency.notes import NoteError, SigningKey, checkpoint_text, note_in, note_text, public_check

KEY = SigningKey("log.example/checkpoints", bytes(range(32)))
OTHER = SigningKey("log.example/checkpoints", bytes(32))
ROOT = hashlib.sha256(b"root").digest()
NOTE = KEY.signed(checkpoint_text(KEY.name, 12, ROOT))

#: Vectors of RFC 8032, section 7.1: public key, message, signature.
RFC_8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
]


def test_vectors_of_rfc_8032() -> None:
    for public, message, signature in [[bytes.fromhex(part) for part in vector] for vector in RFC_8032]:
        assert _signed_by(public, message, signature)
        assert not _signed_by(public, message + b".", signature)


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


def test_a_note_has_the_form_of_c2sp() -> None:
    lines = NOTE.split("\n")
    assert lines[:2] == ["log.example/checkpoints", "12"]
    assert lines[3] == "" and lines[5:] == [""]
    assert lines[4].startswith("\u2014 log.example/checkpoints ")
    name, number, _encoded = KEY.public.split("+", 2)
    assert name == KEY.name
    raw = Ed25519PrivateKey.from_private_bytes(KEY.secret).public_key().public_bytes_raw()
    assert number == hashlib.sha256(name.encode() + b"\n\x01" + raw).hexdigest()[:8]


def test_the_example_of_the_specification_of_signed_notes_is_verified() -> None:
    """The note that Go's golang.org/x/mod/sumdb/note has in its documentation, with its keys."""
    key = SigningKey.parsed("PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")
    assert key.public == "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    text = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    signed = (
        "\u2014 PeterNeumann "
        "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    )
    assert key.signed(text) == f"{text}\n{signed}"
    assert note_text(f"{text}\n{signed}", [key.public]) == text


def test_a_checkpoint_is_read_out_of_a_mail() -> None:
    mail = f"Dear Anna,\r\n\r\nkeep this.\n\nold 11\n\n{NOTE}\n-- \nHospital\n".replace("\n", "\r\n")
    found = verify_checkpoint(mail, KEY.public)
    assert (found.origin, found.size, found.root) == (KEY.name, 12, ROOT)
    assert note_text(note_in(mail), [KEY.public]) == checkpoint_text(KEY.name, 12, ROOT)


def test_a_changed_checkpoint_is_refused() -> None:
    other = NOTE.replace("log.example/checkpoints\n12", "log.example/other\n12")
    for changed in (NOTE.replace("12", "13"), other, "", "12\n\n\u2014 x y"):
        with pytest.raises(CheckpointError):
            verify_checkpoint(changed, KEY.public)
        with pytest.raises(NoteError):
            note_text(note_in(changed), [KEY.public])
    with pytest.raises(CheckpointError, match="no checkpoint"):
        verify_checkpoint(KEY.signed("Pay 100 to Mallory.\n"), KEY.public)
    assert verify_checkpoint(NOTE, [OTHER.public, KEY.public]).size == 12, "keys before and after a change"
    with pytest.raises(CheckpointError, match="not signed with this key"):
        verify_checkpoint(NOTE, OTHER.public)
    with pytest.raises(NoteError, match="not signed"):
        note_text(NOTE, [OTHER.public])


def test_what_is_no_key_or_name_of_one_is_refused() -> None:
    assert SigningKey.parsed(KEY.text) == KEY
    for text in ("", "PRIVATE+KEY+a+b+c", KEY.text.replace("checkpoints", "others"), KEY.public):
        with pytest.raises(NoteError):
            SigningKey.parsed(text)
    for text in ("", "a+b", KEY.public.replace("log", "dog"), KEY.public[:-4]):
        with pytest.raises(NoteError):
            public_check(text)
        with pytest.raises(CheckpointError):
            verify_checkpoint(NOTE, text)
    for name in ("", "a b", "a+b"):
        with pytest.raises(NoteError):
            SigningKey.made(name)
