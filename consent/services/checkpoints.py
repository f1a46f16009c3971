"""Signed checkpoints: a daily signature over all records that is kept elsewhere and reveals nothing about the records.

Records are chained, and the ends of the chains are signed with the site's secret key, so anyone with the database and
the secret key could still rewrite a chain. A checkpoint is signed with a key stored in neither, and leaves the
installation by email and as a copy at a second location. docs/checkpoints.md explains what it proves and what it does
not prove.

- All decisions and the ends of all chains are rows of one Merkle tree, the *state* at a time
  (:mod:`common.transparency`). Its root reveals nothing, not even whether anything was recorded since the last
  checkpoint.
- The root, a number and the time are an *entry* of the installation's log, a Merkle tree that only grows, by one entry
  a day. The checkpoint is the signed root of that log. So the email depends only on the day, except for hashes of
  random numbers, and deciders learn nothing about any person from it (condition 1 of the guarantee).
"""

import base64
import json
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from django.apps import apps
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import IntegrityError, transaction
from django.utils import timezone

from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save
from common.transparency import (
    NoteError,
    PlaceTakenError,
    SigningKey,
    State,
    checkpoint_text,
    consistency_path,
    extension,
    hiding,
    inclusion_path,
    leaf_hash,
    log_proof,
    note_in,
    note_text,
    root,
    roots,
)
from consent.documents.receipts import STATES
from consent.models import (
    ChainHead,
    Checkpoint,
    ConsentEvent,
    ConsentForm,
    EpsilonPolicy,
    InstallationHead,
    Membership,
    Role,
    Study,
)
from consent.services.mail import mails_send

#: Roles that get each checkpoint by email.
READERS = (Role.AUDITOR, Role.COMMITTEE, Role.CHAIR)
_FOLDER = "checkpoints"

#: Key for chains that belong to no study.
_INSTALLATION = "installation"
#: Study → chain → sequence and hash of its last row.
Heads = dict[str, dict[str, list[Any]]]


class CheckpointError(Exception):
    """Error in making a checkpoint or comparing it with the records. The message states the problem and the remedy."""


def _json(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# --- The state at a time ---------------------------------------------------------------------------------------------


def _heads() -> Heads:
    """Return the current ends of all chains that have rows."""
    heads: Heads = {}
    ends = ChainHead.objects.filter(sequence__gt=0).values_list("study_id", "chain", "sequence", "hash")
    for study, chain, sequence, hash in ends:
        heads.setdefault(str(study), {})[chain] = [sequence, hash]
    own = InstallationHead.objects.filter(sequence__gt=0).values_list("chain", "sequence", "hash")
    if own:
        heads[_INSTALLATION] = {chain: [sequence, hash] for chain, sequence, hash in own}
    return heads


def _decisions(study: Study, **which: Any) -> Iterator[tuple[bytes, str]]:
    """Yield name and content of each decision of a study that ``which`` selects, in the format of the JSON receipt."""
    forms = dict(ConsentForm.objects.filter(study=study).values_list("pk", "digest"))
    policies = {policy.pk: policy for policy in EpsilonPolicy.objects.filter(study=study)}
    columns = ("hash", "kind", "level", "form_id", "policy_id", "answered_by", "recorded_at", "holder__public_id")
    events = ConsentEvent.chain(study.pk).filter(**which).values_list(*columns)
    for hash, kind, level, form, policy_id, answered_by, recorded_at, holder in events.iterator(chunk_size=2000):
        content = {
            "study": study.slug,
            "entity_id": str(holder),
            "event_time": recorded_at.astimezone(UTC).isoformat(),
            "event_state": STATES[kind],
            "answered_by": answered_by,
            "privacy_notice_sha256": forms.get(form),
        }
        if (policy := policies.get(policy_id)) is not None:
            content |= {
                "protection_level": level,
                "epsilon": policy.epsilon(level),
                "delta": study.delta,
                "epsilon_policy_version": policy.version,
            }
        yield f"event:{hash}".encode(), _json(content)


def _rows(heads: Heads) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name and content of everything that a checkpoint commits to."""
    studies = Study.objects.in_bulk([int(study) for study in heads if study != _INSTALLATION])
    for pk, ends in heads.items():
        if pk == _INSTALLATION:
            yield f"heads:{pk}".encode(), _json({"heads": ends}).encode()
            continue
        study = studies[int(pk)]
        yield f"heads:{pk}".encode(), _json({"study": study.slug, "heads": ends}).encode()
        for name, content in _decisions(study, sequence__lte=_last_decision(ends)):
            yield name, content.encode()


def _last_decision(ends: dict[str, list[Any]]) -> int:
    """Return the number of a study's last decision, as recorded at the ends of its chains."""
    return ends.get(ConsentEvent._meta.label_lower, [0])[0]


def state_of(checkpoint: Checkpoint) -> State:
    """Return the state that a checkpoint commits to, computed from the current rows.

    Raises:
        CheckpointError: the rows differ from the committed rows, or it is unknown which rows were committed to.
    """
    if not checkpoint.key:
        raise CheckpointError(
            f"Checkpoint {checkpoint.number}: the key to its records was lost when a backup was restored."
        )
    try:
        state = State.of(bytes.fromhex(checkpoint.key), _rows(checkpoint.heads))
        same = _base64(state.root()) == checkpoint.content["state"]
    except (KeyError, ValueError, TypeError, PlaceTakenError):  # the site never wrote such rows or such a commitment
        same = False
    if not same:
        raise CheckpointError(
            f"Checkpoint {checkpoint.number}: the records differ from those of {checkpoint.day}; rows were changed, "
            "removed, reordered or inserted."
        )
    return state


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _leaves(checkpoints: list[Checkpoint]) -> list[bytes]:
    return [leaf_hash(checkpoint.entry.encode()) for checkpoint in checkpoints]


def checkpoint_extension(checkpoint: Checkpoint) -> str:
    """Return a checkpoint as it is emailed, with the proof that it extends the previous checkpoint."""
    leaves = _leaves(list(Checkpoint.objects.filter(number__lte=checkpoint.number)))
    path = consistency_path(leaves, checkpoint.number - 1) if checkpoint.number > 1 else []
    return extension(checkpoint.number - 1, path, checkpoint.note)


# --- Signing --------------------------------------------------------------------------------------------------------


def signing_key() -> SigningKey:
    """Return the private key. Raises CheckpointError if it cannot be used."""
    if not settings.CHECKPOINT_KEY_FILE:
        raise CheckpointError(
            "There is no private key: make one with ipate checkpoint_key FILE, and name the file in "
            "IPATE_CHECKPOINT_KEY_FILE, only for the process that signs."
        )
    path = Path(settings.CHECKPOINT_KEY_FILE)
    try:
        if path.stat().st_mode & 0o077:
            raise CheckpointError(f"Other users can read the private key {path}: run chmod 600 on it.")
        key = SigningKey.parsed(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"The private key {path} cannot be read ({type(error).__name__}).") from error
    except NoteError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if key.public not in settings.CHECKPOINT_KEYS:
        raise CheckpointError(
            "Signatures made with this key could not be checked: put its public key first in IPATE_CHECKPOINT_KEYS, "
            f"for all processes: {key.public}"
        )
    return key


def checkpoint_make(*, key: SigningKey, adopted: bool = False) -> Checkpoint | None:
    """Create and sign today's checkpoint, email it, and copy it to the second location.

    Args:
        key: the signing key.
        adopted: after a restore, take over checkpoints that the database lacks from the second location.

    Returns:
        The checkpoint; None if today's already exists.

    Raises:
        CheckpointError: the records or the log contradict earlier checkpoints. Nothing is signed in this case.
    """
    taken = _adopt() if adopted else 0
    if faults := [*log_faults(), *log_copy_faults(), *_all_faults()]:
        raise CheckpointError("\n".join(["No checkpoint was signed:", *faults]))
    now = timezone.now().astimezone(UTC)
    made = None
    if not Checkpoint.objects.filter(day=now.date()).exists():
        made = _checkpoint_sign(key, now, taken)
    _copy_missing()
    return made


def _checkpoint_sign(key: SigningKey, now: datetime, taken: int) -> Checkpoint | None:
    before = list(Checkpoint.objects.all())
    number, heads = len(before) + 1, _heads()
    while True:
        secret = secrets.token_bytes(32)
        try:
            # Outside a transaction, because this takes a minute for a million decisions and reads only rows that never
            # change.
            state = State.of(secret, _rows(heads))
            break
        except PlaceTakenError:
            continue
    content = {"at": now.isoformat(timespec="seconds"), "number": number, "state": _base64(state.root())}
    entry = _json(content | ({"adopted": taken} if taken else {}))
    text = checkpoint_text(key.name, number, root([*_leaves(before), leaf_hash(entry.encode())]))
    try:
        with transaction.atomic():
            made = Checkpoint.objects.create(
                number=number, day=now.date(), entry=entry, note=key.signed(text), key=secret.hex(), heads=heads
            )
            readers = Membership.objects.filter(role__in=READERS, study__rehearsal=False, user__is_active=True)
            mails_send("checkpoint", readers.order_by("user").values_list("user", flat=True).distinct(), about=made.pk)
    except IntegrityError:  # another process got there first
        return None
    return made


def _names(number: int) -> tuple[str, str]:
    """Return the names of a checkpoint and its entry at the second location."""
    return f"checkpoint-{number:08d}.txt", f"entry-{number:08d}.json"


def _copied() -> set[int]:
    """Return the numbers of the checkpoints at the second location."""
    try:
        _, files = storages["checkpoints"].listdir("")
    except FileNotFoundError:
        return set()
    return {int(name[6:14]) for name in files if name.startswith("entry-") and name[6:14].isdigit()}


def _copy_missing() -> None:
    """Copy missing checkpoints to the second location.

    The entry of a checkpoint is copied last, because it shows that both files exist.
    """
    there, storage = _copied(), storages["checkpoints"]
    for checkpoint in Checkpoint.objects.exclude(number__in=there):
        contents = (checkpoint_extension(checkpoint), checkpoint.entry)
        for name, content in zip(_names(checkpoint.number), contents, strict=True):
            storage.delete(name)
            storage.save(name, ContentFile(content.encode()))


def _copy_read(number: int) -> tuple[str, str]:
    """Return the signed note and the entry of a checkpoint at the second location."""
    storage, texts = storages["checkpoints"], []
    for name in _names(number):
        with storage.open(name) as file:
            texts.append(file.read().decode())
    return texts[0].partition("\n\n")[2], texts[1]


def _adopt() -> int:
    """Copy checkpoints that the database lacks from the second location; return the number of the last."""
    leaves, last = _leaves(list(Checkpoint.objects.all())), Checkpoint.objects.count()
    missing = sorted(number for number in _copied() if number > last)
    if not missing:
        raise CheckpointError("The second location has no checkpoint that the database lacks.")
    rows = []
    for number in missing:
        note, entry = _copy_read(number)
        leaves.append(leaf_hash(entry.encode()))
        if number != len(leaves) or not _is_head_noted(note, number, root(leaves)):
            raise CheckpointError(f"Checkpoint {number} at the second location does not extend those in the database.")
        day = datetime.fromisoformat(json.loads(entry)["at"]).date()
        rows.append(Checkpoint(number=number, day=day, entry=entry, note=note))
    Checkpoint.objects.bulk_create(rows)
    return missing[-1]


# --- Verification ---------------------------------------------------------------------------------------------------


def _is_head_noted(note: str, number: int, root_hash: bytes, keys: Sequence[str] = ()) -> bool:
    """Return whether a note is signed and states this size and root of the log."""
    try:
        _, *lines = note_text(note, keys or settings.CHECKPOINT_KEYS).split("\n")
    except NoteError:
        return False
    return lines[:2] == [str(number), _base64(root_hash)]


def log_faults(keys: Sequence[str] = ()) -> Iterator[str]:
    """Describe log entries that are missing or differ from those signed with ``keys`` (default: as in the settings)."""
    checkpoints = list(Checkpoint.objects.all())
    for expected, (checkpoint, own) in enumerate(zip(checkpoints, roots(_leaves(checkpoints)), strict=True), 1):
        if checkpoint.number != expected:
            yield f"Checkpoint {expected} is missing."
            return
        if not _is_head_noted(checkpoint.note, expected, own, keys):
            yield (f"Checkpoint {expected} was changed, or is not signed with a key in IPATE_CHECKPOINT_KEYS.")
            return


def log_copy_faults() -> Iterator[str]:
    """Describe differences between the log and its copy at the second location."""
    entries = dict(Checkpoint.objects.values_list("number", "entry"))
    copied = _copied()
    if copied and (last := max(copied)) > len(entries):
        yield (
            f"Checkpoint {last} was signed, but the database ends with checkpoint {len(entries)}: it was "
            "restored to an earlier state. If you restored a backup, sign with ipate checkpoint_sign --after-restore."
        )
    for number in sorted(copied & set(entries)):
        _note, entry = _copy_read(number)
        if entry != entries[number]:
            yield f"Checkpoint {number} at the second location differs from the one in the database."


def rows_faults(study: Study | None) -> Iterator[str]:
    """Describe chains whose last row at a checkpoint was removed or changed, without giving row numbers.

    Args:
        study: the study; None for chains that belong to no study.
    """
    pk = study.pk if study else None
    noted: dict[str, dict[int, tuple[str, Checkpoint]]] = {}
    for checkpoint in Checkpoint.objects.all():
        for chain, (sequence, hash) in checkpoint.heads.get(str(pk or _INSTALLATION), {}).items():
            noted.setdefault(chain, {}).setdefault(sequence, (hash, checkpoint))
    for chain, ends in noted.items():
        model: Any = apps.get_model(chain)
        hashes = dict(model.chain(pk).filter(sequence__in=list(ends)).values_list("sequence", "hash"))
        for sequence, (hash, checkpoint) in ends.items():
            if hashes.get(sequence) != hash:
                yield (
                    f"{model._meta.verbose_name_plural}: rows covered by the checkpoint of {checkpoint.day} "
                    "were removed or changed."
                )
                break


def _all_faults() -> Iterator[str]:
    for study in Study.objects.all():
        for fault in rows_faults(study):
            yield f"{study.slug}: {fault}"


def checkpoint_faults(study: Study) -> Iterator[str]:
    """Describe faults in the log, and rows of a study that existed at a checkpoint but no longer do."""
    yield from log_faults()
    yield from rows_faults(study)


def note_faults(text: str, keys: list[str]) -> Iterator[str]:
    """Describe the faults in this database that a saved checkpoint, such as an email, proves.

    Args:
        text: the checkpoint, possibly with other text around it.
        keys: public keys that may have signed it.
    """
    try:
        lines = note_text(note_in(text), keys).split("\n")
        number, root_hash = int(lines[1]), lines[2]
    except (NoteError, ValueError, IndexError) as error:
        yield f"This is not a checkpoint signed with one of the keys ({error})."
        return
    checkpoints = list(Checkpoint.objects.filter(number__lte=number))
    if len(checkpoints) < number:
        yield (
            f"Checkpoint {number} was signed, but the database ends with checkpoint {Checkpoint.objects.count()}: it "
            "was restored to an earlier state."
        )
        return
    if _base64(root(_leaves(checkpoints))) != root_hash:
        yield f"Checkpoint {number} differs from the one in the database: its log was rewritten, or has two versions."
        return
    try:
        state_of(checkpoints[-1])
    except CheckpointError as error:
        yield str(error)


# --- Proofs for holders ---------------------------------------------------------------------------------------------


def _state_file(checkpoint: Checkpoint) -> str:
    # After a restore, numbers may be used again.
    return f"{_FOLDER}/state-{checkpoint.number}-{leaf_hash(checkpoint.entry.encode()).hex()[:16]}.npz"


def checkpoint_state_store() -> None:
    """Store the state of the last checkpoint, so that proofs can be made at once; called by a worker."""
    last = Checkpoint.objects.exclude(key="").last()
    if last is None or _state_file(last) in (there := arrays_list(_FOLDER)):
        return
    state = state_of(last)
    nodes = sorted(state.kept.items())
    arrays_save(
        _state_file(last),
        places=state.places,
        leaves=state.leaves,
        kept_places=np.array([place for place, _ in nodes], dtype=np.uint64),
        kept_hashes=np.frombuffer(b"".join(hash for _, hash in nodes), np.uint8).reshape(-1, 32),
    )
    arrays_delete(*there)


def _state_kept(checkpoint: Checkpoint) -> State:
    """Return the state stored by :func:`checkpoint_state_store`. Raises FileNotFoundError."""
    arrays = arrays_load(_state_file(checkpoint))
    hashes = (hash.tobytes() for hash in arrays["kept_hashes"])
    by_place = dict(zip(arrays["kept_places"].tolist(), hashes, strict=True))
    return State(bytes.fromhex(checkpoint.key), arrays["places"], arrays["leaves"], by_place)


def checkpoint_covering(event: ConsentEvent) -> Checkpoint | None:
    """Return the last checkpoint if it covers a decision and proofs can be made."""
    last = Checkpoint.objects.exclude(key="").last()
    if last is None or _state_file(last) not in arrays_list(_FOLDER):
        return None
    return last if event.sequence <= _last_decision(last.heads.get(str(event.study_id), {})) else None


def proof_of(event: ConsentEvent, checkpoint: Checkpoint, state: State | None = None) -> dict[str, Any]:
    """Return the proof, for a holder, that a checkpoint covers their decision; it reveals nothing about other holders.

    Args:
        state: the checkpoint's state, if already loaded; by default the stored state.
    """
    state = state or _state_kept(checkpoint)
    ((name, content),) = _decisions(event.study, pk=event.pk)
    place, nonce = hiding(state.key, name)
    leaves = _leaves(list(Checkpoint.objects.filter(number__lte=checkpoint.number)))
    return {
        "schema": "ipate checkpoint proof 1",
        "content": content,
        "nonce": nonce.hex(),
        "place": place,
        "path": [_base64(each) for each in state.path(place)],
        "entry": checkpoint.entry,
        "log": log_proof(checkpoint.number - 1, inclusion_path(leaves, checkpoint.number - 1), checkpoint.note),
    }
