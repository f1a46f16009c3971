"""Verify that an installation's signed checkpoint is genuine, extends an earlier one, and covers a decision.

This file needs only Python's standard library, so you can copy it to another machine and run it there::

    python checkpoints.py decision proof.json --key KEY [--receipt receipt.json] [--checkpoint mail.txt]
    python checkpoints.py checkpoint mail.txt --key KEY [--after earlier.txt]

Checkpoints are C2SP tlog-checkpoints (signed notes with Ed25519, RFC 8032) of a Merkle tree as in RFC 6962 and 9162.
The exit status is 0 if every check passes and 1 otherwise.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Depth of the Merkle tree for one time stamp; the tree has 2^48 leaves.
DEPTH = 48
SCHEMA = "ipate checkpoint proof 1"
_LOG_PROOF = "c2sp.org/tlog-proof@v1"
_ED25519 = b"\x01"


class CheckpointError(ValueError):
    """Raised for a checkpoint or proof that is invalid or cannot be read."""


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint: the log, its number of entries, and their root hash."""

    origin: str
    size: int
    root: bytes


@dataclass(frozen=True)
class Decision:
    """Content of a proof: a decision, and the checkpoint that covers it, with the checkpoint's time."""

    content: dict[str, Any]
    at: str
    checkpoint: Checkpoint


# --- Merkle trees ----------------------------------------------------------------------------------------------------


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\x00" + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Check that a leaf is in a tree (RFC 9162, section 2.1.3.2).

    Args:
        leaf: Hash of the leaf.
        index: Index of the leaf, from 0.
        size: Number of leaves.
        path: Inclusion proof, from the leaf's sibling upwards.
        root: Root hash of the tree.

    Raises:
        CheckpointError: the proof does not show that the leaf is in the tree.
    """
    if not 0 <= index < size:
        raise CheckpointError("The proof's index lies outside the tree.")
    place, last, node = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            raise CheckpointError("The proof is too long.")
        if place & 1 or place == last:
            node = _node(sibling, node)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            node = _node(node, sibling)
        place, last = place >> 1, last >> 1
    if last or node != root:
        raise CheckpointError("The proof does not lead to the root hash: the content or the tree differs.")


def verify_consistency(earlier: Checkpoint, later: Checkpoint, path: Sequence[bytes]) -> None:
    """Check that a log has only grown from one checkpoint to a later one (RFC 9162, section 2.1.4.2).

    Raises:
        CheckpointError: the proof does not show that the log has only grown.
    """
    if earlier.origin != later.origin:
        raise CheckpointError("The checkpoints belong to different logs.")
    if not 0 < earlier.size <= later.size:
        raise CheckpointError("The later checkpoint has fewer entries than the earlier one.")
    if earlier.size == later.size:
        if path or earlier.root != later.root:
            raise CheckpointError("Two checkpoints of the same size differ: there are two versions of the log.")
        return
    nodes = list(path)
    if earlier.size & (earlier.size - 1) == 0:
        nodes.insert(0, earlier.root)
    if not nodes:
        raise CheckpointError("The consistency proof is empty.")
    place, last = earlier.size - 1, later.size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            raise CheckpointError("The consistency proof is too long.")
        if place & 1 or place == last:
            old, new = _node(sibling, old), _node(sibling, new)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            new = _node(new, sibling)
        place, last = place >> 1, last >> 1
    if last or old != earlier.root or new != later.root:
        raise CheckpointError("The later checkpoint does not extend the earlier one: the log was rewritten.")


# --- Signed notes ----------------------------------------------------------------------------------------------------


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise CheckpointError(f"This is not valid base64: {text[:60]}") from None


def _hash(text: str) -> bytes:
    if len(content := _decoded(text)) != 32:
        raise CheckpointError(f"This is not a SHA-256 hash: {text[:60]}")
    return content


def _keys(keys: Iterable[str]) -> dict[tuple[str, bytes], bytes]:
    """Return public keys by name and key id."""
    by_name = {}
    for key in keys:
        try:
            name, number, encoded = key.strip().split("+", 2)
        except ValueError:
            raise CheckpointError(f"A public key has the form NAME+ID+KEY, unlike this: {key[:80]}") from None
        material = _decoded(encoded)
        identifier = hashlib.sha256(name.encode() + b"\n" + material).digest()[:4]
        if len(material) != 33 or material[:1] != _ED25519 or identifier.hex() != number:
            raise CheckpointError(f"This public key is incomplete or not an Ed25519 key: {key[:80]}")
        by_name[name, identifier] = material[1:]
    if not by_name:
        raise CheckpointError("Give a public key.")
    return by_name


def verify_checkpoint(text: str, keys: str | Iterable[str]) -> Checkpoint:
    """Check the signature of a checkpoint, and return its content.

    Args:
        text: The checkpoint; preceding lines, such as those of an email, are ignored because they are not signed.
        keys: The public key, or several keys: the current one and earlier ones.

    Returns:
        The content of the checkpoint.

    Raises:
        CheckpointError: the text is not a checkpoint, or is not signed by any of the keys.
    """
    known = _keys([keys] if isinstance(keys, str) else keys)
    blocks = [block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n")]
    place = next((n for n, block in enumerate(blocks) if n and block.startswith("\u2014 ")), None)
    if place is None:
        raise CheckpointError("This text contains no signed checkpoint.")
    body = blocks[place - 1] + "\n"
    verified = False
    for line in blocks[place].split("\n"):
        parts = line.split(" ")
        if len(parts) != 3 or parts[0] != "\u2014":
            break  # end of the signatures; the rest is not part of the note
        signature = _decoded(parts[2])
        public = known.get((parts[1], signature[:4]))
        if public is None:
            continue
        if not _signed_by(public, body.encode(), signature[4:]):
            raise CheckpointError("The signature is wrong: the checkpoint was changed.")
        verified = True
    if not verified:
        raise CheckpointError("The checkpoint is not signed with this key.")
    lines = body.split("\n")
    if len(lines) < 4 or not lines[0] or not (lines[1].isascii() and lines[1].isdigit()):
        raise CheckpointError("The signed text is not a checkpoint.")
    return Checkpoint(lines[0], int(lines[1]), _hash(lines[2]))


def verify_extension(text: str, earlier: Checkpoint, keys: str | Iterable[str]) -> Checkpoint:
    """Check that an emailed checkpoint extends an earlier one, using the consistency proof that precedes it.

    Args:
        text: The line ``old`` and a size, the hashes of the proof, an empty line, and the checkpoint (C2SP
            tlog-witness).
        earlier: A previously verified checkpoint that has the size ``old``, or the same checkpoint.
        keys: As in :func:`verify_checkpoint`.

    Raises:
        CheckpointError: the checkpoint does not extend the earlier one, or the proof starts from another checkpoint.
    """
    later = verify_checkpoint(text, keys)
    if later.size == earlier.size:
        verify_consistency(earlier, later, [])
        return later
    lines = text.replace("\r\n", "\n").split("\n")
    begin = next((n for n, line in enumerate(lines) if line.startswith("old ")), None)
    if begin is None or lines[begin] != f"old {earlier.size}":
        raise CheckpointError(
            f"The proof does not start at the checkpoint of {earlier.size} entries. Check those in between one by one."
        )
    end = lines.index("", begin)
    verify_consistency(earlier, later, [_hash(line) for line in lines[begin + 1 : end]])
    return later


# --- Proofs of decisions ---------------------------------------------------------------------------------------------


def verify_decision(
    proof: dict[str, Any],
    keys: str | Iterable[str],
    *,
    receipt: dict[str, Any] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Decision:
    """Check that a decision is covered by a checkpoint.

    Args:
        proof: The file that can be downloaded with the receipt of the decision.
        keys: As in :func:`verify_checkpoint`.
        receipt: The receipt as JSON, which must contain the same decision.
        checkpoint: A checkpoint received separately, such as by email. It must equal the one in the proof.

    Returns:
        The proven decision.

    Raises:
        CheckpointError: the decision is not covered, or the receipt or checkpoint differs.
    """
    try:
        if proof["schema"] != SCHEMA:
            raise CheckpointError(f"This is not a proof in the format “{SCHEMA}”.")
        leaf = leaf_hash(bytes.fromhex(proof["nonce"]) + proof["content"].encode())
        content, entry = json.loads(proof["content"]), json.loads(proof["entry"])
        path = [_hash(line) for line in proof["path"]]
        state, at = _hash(entry["state"]), str(entry["at"])
        place, log = int(proof["place"]), str(proof["log"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"The proof cannot be read ({type(error).__name__}: {error}).") from None
    verify_inclusion(leaf, place, 1 << DEPTH, path, state)
    head = _verify_log_proof(log, leaf_hash(proof["entry"].encode()), keys)
    if checkpoint is not None and checkpoint != head:
        raise CheckpointError(
            f"The proof is for a different checkpoint ({head.size} entries) than the given one "
            f"({checkpoint.size} entries)."
            + (
                " They have the same size but differ: there are two versions of the log."
                * (checkpoint.size == head.size)
            )
        )
    if receipt is not None:
        _receipt_check(receipt, content)
    return Decision(content, at, head)


def _verify_log_proof(text: str, leaf: bytes, keys: str | Iterable[str]) -> Checkpoint:
    """Check a C2SP tlog-proof that a leaf is in the log; return the checkpoint of the proof."""
    head, _, note = text.partition("\n\n")
    lines = head.split("\n")
    index = lines[1].removeprefix("index ") if len(lines) > 1 and lines[1].startswith("index ") else ""
    if lines[0] != _LOG_PROOF or not (index.isascii() and index.isdigit()):
        raise CheckpointError(f"The log proof is not in the format {_LOG_PROOF}.")
    checkpoint = verify_checkpoint("\n\n" + note, keys)
    path = [_hash(line) for line in lines[2:]]
    verify_inclusion(leaf, int(index), checkpoint.size, path, checkpoint.root)
    return checkpoint


def _receipt_check(receipt: dict[str, Any], content: dict[str, Any]) -> None:
    """Raise CheckpointError unless the receipt contains the decision with this content."""
    try:
        events = [{**event, **event["extension"]} for event in receipt["consent_record"]["events"]]
        notice = receipt["consent_record"]["pii_processing"]["privacy_notice"]
    except (KeyError, TypeError):
        raise CheckpointError("The receipt cannot be read. Download it as JSON from its page.") from None
    same = [event for event in events if event["event_time"] == content["event_time"]]
    if not same:
        raise CheckpointError("The receipt has no decision at this time: the proof is for another decision.")
    shared = {**same[0], "study": content["study"], "privacy_notice_sha256": content["privacy_notice_sha256"]}
    if same[0] is events[-1] and notice and content["privacy_notice_sha256"]:
        shared["privacy_notice_sha256"] = notice["sha256"]
    wrong = sorted(name for name, value in content.items() if value != shared.get(name))
    if wrong:
        raise CheckpointError(f"The receipt differs from the record in: {', '.join(wrong)}.")


# --- Ed25519 (RFC 8032, section 5.1.7) --------------------------------------------------------------------------------

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)
_Point = tuple[int, int, int, int]


def _x_of(y: int, sign: int) -> int | None:
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    return _P - x if x & 1 != sign else x


def _point(encoded: bytes) -> _Point | None:
    number = int.from_bytes(encoded, "little")
    y = number & ((1 << 255) - 1)
    x = _x_of(y, number >> 255)
    return None if x is None else (x, y, 1, x * y % _P)


def _add(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(number: int, point: _Point) -> _Point:
    total: _Point = (0, 1, 1, 0)
    while number:
        if number & 1:
            total = _add(total, point)
        point, number = _add(point, point), number >> 1
    return total


def _signed_by(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether an Ed25519 signature is valid."""
    key, nonce = _point(public), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or key is None or nonce is None or scalar >= _ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    base_y = 4 * pow(5, -1, _P) % _P
    base_x = _x_of(base_y, 0) or 0
    left = _times(scalar, (base_x, base_y, 1, base_x * base_y % _P))
    right = _add(nonce, _times(int.from_bytes(digest, "little") % _ORDER, key))
    return (left[0] * right[2] - right[0] * left[2]) % _P == 0 == (left[1] * right[2] - right[1] * left[2]) % _P


# --- At the command line ---------------------------------------------------------------------------------------------


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}).") from None


def _document(path: str) -> dict[str, Any]:
    try:
        document = json.loads(_read(path))
    except ValueError as error:
        if isinstance(error, CheckpointError):
            raise
        document = None
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} is not a JSON document.")
    return document


def _summary(checkpoint: Checkpoint) -> str:
    root = base64.b64encode(checkpoint.root).decode()
    return f"Checkpoint of {checkpoint.origin}\n  entries: {checkpoint.size}\n  root hash: {root}"


def _report(options: argparse.Namespace) -> str:
    """Return the result of the verification in words. Raises CheckpointError."""
    if options.what == "checkpoint":
        if options.after is None:
            return f"{_summary(verify_checkpoint(_read(options.file), options.key))}\nThe signature is valid."
        earlier = verify_checkpoint(_read(options.after), options.key)
        later = verify_extension(_read(options.file), earlier, options.key)
        return f"{_summary(later)}\nThe signature is valid, and it extends the checkpoint of {earlier.size} entries."
    checkpoint = verify_checkpoint(_read(options.checkpoint), options.key) if options.checkpoint else None
    receipt = _document(options.receipt) if options.receipt else None
    decision = verify_decision(_document(options.file), options.key, receipt=receipt, checkpoint=checkpoint)
    lines = [f"  {name}: {value}" for name, value in decision.content.items()]
    return "\n".join(
        [
            "The recorded decision:",
            *lines,
            f"It is covered by the checkpoint of {decision.at}.",
            _summary(decision.checkpoint),
            "This is the checkpoint that you gave."
            if checkpoint
            else "Compare these lines with the checkpoint that was emailed to the auditors and the ethics committee.",
            *(["The receipt agrees with it."] if receipt else []),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Verify iPATE checkpoints and the decisions that they cover.")
    kinds = parser.add_subparsers(dest="what", required=True)
    decision = kinds.add_parser("decision", help="verify that a checkpoint covers a decision")
    decision.add_argument("file", help="the proof (JSON), downloaded with the receipt")
    decision.add_argument("--receipt", help="the receipt (JSON)")
    decision.add_argument("--checkpoint", help="a checkpoint received another way, such as a saved email")
    checkpoint = kinds.add_parser("checkpoint", help="verify a checkpoint")
    checkpoint.add_argument("file", help="the checkpoint, such as a saved email")
    checkpoint.add_argument("--after", help="an earlier checkpoint, which it must extend")
    for each in (decision, checkpoint):
        each.add_argument(
            "--key", action="append", required=True, help="the public key; repeat it if the key was changed"
        )
    options = parser.parse_args(arguments)
    try:
        report = _report(options)
    except CheckpointError as error:
        sys.stderr.write(f"No. {error}\n")
        return 1
    sys.stdout.write(f"{report}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
