"""Signed notes and checkpoints of C2SP (signed-note, tlog-checkpoint, tlog-proof), with Ed25519."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_TYPE = b"\x01"
_PRIVATE = "PRIVATE+KEY"


class NoteError(ValueError):
    """A key or note that cannot be read, or is not signed correctly."""


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _key_id(name: str, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _TYPE + public).digest()[:4]


@dataclass(frozen=True)
class SigningKey:
    """Private key of a log: its name, which is the log's origin, and 32 secret bytes."""

    name: str
    secret: bytes

    @classmethod
    def made(cls, name: str) -> "SigningKey":
        """Return a new key. Raises NoteError for a name with spaces or a plus sign."""
        if not name or "+" in name or any(letter.isspace() for letter in name):
            raise NoteError("The name of a key has no spaces and no plus sign, such as ipate.example/checkpoints.")
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def parsed(cls, text: str) -> "SigningKey":
        """Return the key in the form of Go's ``golang.org/x/mod/sumdb/note``. Raises NoteError."""
        try:
            word, other, name, number, encoded = text.strip().split("+", 4)
            material = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise NoteError("This is no private key as ipate checkpoint_key makes it.") from None
        if f"{word}+{other}" != _PRIVATE or len(material) != 33 or material[:1] != _TYPE:
            raise NoteError("This is no private key as ipate checkpoint_key makes it.")
        key = cls(name, material[1:])
        if _key_id(name, key._public).hex() != number:
            raise NoteError("The private key was changed: its number does not belong to it.")
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
        """The public key as a line of text, C2SP's “vkey”."""
        return f"{self.name}+{_key_id(self.name, self._public).hex()}+{_base64(_TYPE + self._public)}"

    def signed(self, text: str) -> str:
        """Return a note: the text, which ends with a line feed, and its signature."""
        signature = _key_id(self.name, self._public) + self._private.sign(text.encode())
        return f"{text}\n\u2014 {self.name} {_base64(signature)}\n"


def public_check(key: str) -> None:
    """Raise NoteError unless ``key`` is a whole public key of Ed25519."""
    _public_bytes(key)


def _public_bytes(key: str) -> tuple[str, bytes]:
    try:
        name, number, encoded = key.split("+", 2)
        material = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise NoteError("A public key has the form NAME+ID+KEY.") from None
    if len(material) != 33 or material[:1] != _TYPE or _key_id(name, material[1:]).hex() != number:
        raise NoteError("The public key is not whole, or is not of Ed25519.")
    return name, material[1:]


def checkpoint_text(origin: str, size: int, root: bytes) -> str:
    """Return the text of a checkpoint, to be signed."""
    return f"{origin}\n{size}\n{_base64(root)}\n"


def note_text(note: str, keys: Iterable[str]) -> str:
    """Return the text of a note that one of the public keys has signed. Raises NoteError."""
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
    raise NoteError("It is not signed with a key that the settings name.")


def note_in(text: str) -> str:
    """Return the first note in a text, such as a mail; it has no empty line. Raises NoteError if there is none."""
    blocks = [block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n")]
    for body, signatures in pairwise(blocks):
        if signatures.startswith("\u2014 "):
            return f"{body}\n\n{signatures}\n"
    raise NoteError("There is no signed checkpoint in it.")


def log_proof(index: int, path: Sequence[bytes], note: str) -> str:
    """Return a proof that an entry is in the log, with its checkpoint (C2SP tlog-proof)."""
    return "".join(
        ["c2sp.org/tlog-proof@v1\n", f"index {index}\n", *(f"{_base64(each)}\n" for each in path), "\n", note]
    )


def extension(earlier: int, path: Sequence[bytes], note: str) -> str:
    """Return a checkpoint and a proof that it extends that of ``earlier`` entries (the body of C2SP tlog-witness)."""
    return "".join([f"old {earlier}\n", *(f"{_base64(each)}\n" for each in path), "\n", note])
