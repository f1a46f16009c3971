"""Journal outside the database with the last known end of every chain (condition 7 in docs/gaussian-accounts.md).

Later releases and withdrawals are missing from a restored backup, but not from the journal. A study whose chains end
earlier than in the journal is locked until :mod:`accounting.restores` has settled the difference. The journal is a
directory with two files for each study, and ``installation.json`` for chains that belong to no study (their study id is
None). It must not be restored together with the database.

- ``study-N.json``: ``heads`` (chain → sequence and hash), ``facts`` (data for settling a gap), and ``pending``: the
  notes of a transaction that was about to commit. If a crash leaves notes there, the study's next transaction checks in
  the database whether their transaction was committed (:meth:`common.append_only.Chained.append`).
- ``study-N.acts``: rows that must not be lost with the database (decisions, circumstances, erasures), encrypted with a
  key that is not in the database. One line for each transaction.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.utils import timezone

from common.keys import Purpose, cipher

_ACTS = Purpose.RECORDS, "journal"


@dataclass(eq=False)
class Note:
    """Note of a transaction in a study's journal, written right before its commit and confirmed after it.

    Attributes:
        study_id: the study; None for the installation.
        heads: chain → sequence and hash of its last row.
        facts: data to settle a gap.
        acts: rows that must not be lost, each with the name of its chain in ``chain``.
        replace: whether ``heads`` replace all earlier ones.
    """

    study_id: int | None
    heads: dict[str, tuple[int, str]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    acts: Sequence[dict[str, Any]] = ()
    replace: bool = False
    token: str = field(default="", init=False)

    def __call__(self) -> None:
        """Confirm, after the commit, the notes that were written right before it."""
        with _rewriting(self.study_id, sync=False) as content:
            if self.token and content["pending"].get("token") == self.token:
                _fold(content)


def note(study_id: int | None, **noted: Any) -> None:
    """Note this transaction in the journal right before its commit. :class:`Note` lists the possible fields."""
    transaction.on_commit(Note(study_id, **noted), robust=True)


def notes_write(notes: Iterable[Note]) -> None:
    """Write a transaction's notes; called by the database backend right before the commit. Raises OSError."""
    by_study: dict[int | None, list[Note]] = {}
    for each in notes:
        by_study.setdefault(each.study_id, []).append(each)
    for study_id, own in by_study.items():
        token = uuid4().hex
        with _rewriting(study_id) as content:
            if content["pending"]:  # it is unknown whether these were committed, so assume that they were
                _fold(content)
            heads: dict[str, Any] = {}
            facts: dict[str, Any] = {}
            for each in own:
                each.token = token
                heads |= {chain: list(head) for chain, head in each.heads.items()}
                facts |= each.facts
            replace = any(each.replace for each in own)
            content["pending"] = {"token": token, "heads": heads, "facts": facts, "replace": replace}
            _acts_write(study_id, [act for each in own for act in each.acts])


def journal_read(study_id: int | None) -> dict[str, Any]:
    """Return the journal of a study: ``heads``, ``facts`` and ``pending``; all empty before the first note."""
    content: dict[str, Any] = {"heads": {}, "facts": {}, "pending": {}}
    try:
        return content | json.loads(_path(study_id).read_text())
    except FileNotFoundError:
        return content


def is_noted(study_id: int) -> bool:
    """Return whether the journal has a note about a study with this id, even if the study has been deleted."""
    return _path(study_id).exists()


def pending_confirm(study_id: int | None) -> None:
    """Treat the pending notes as committed, because they are in the database or this cannot be determined."""
    with _rewriting(study_id) as content:
        if content["pending"]:
            _fold(content)


def pending_forget(study_id: int | None) -> None:
    """Drop the pending notes, because their transaction was never committed."""
    with _rewriting(study_id) as content:
        content["pending"] = {}


def head_note(study_id: int | None, chain: str, sequence: int, hash: str, **facts: Any) -> None:
    """Record ``facts``, and that a chain has reached ``sequence``, immediately and independently of the database."""
    with _rewriting(study_id) as content:
        content["heads"][chain] = [sequence, hash]
        content["facts"].update(facts)


def acts_read(study_id: int | None) -> Iterator[dict[str, Any]]:
    """Yield rows recorded as acts, oldest first, except rows that can no longer be decrypted or read."""
    try:
        lines = _acts_path(study_id).read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            sealed = json.loads(line)["rows"]
            yield from json.loads(zlib.decompress(cipher(*_ACTS).decrypt(sealed.encode())))
        except (ValueError, KeyError, InvalidToken):
            continue


def acts_forget(study_id: int | None, age: timedelta) -> None:
    """Delete acts older than ``age``; all backups that lack them must have been deleted by then."""
    path, oldest = _acts_path(study_id), timezone.now() - age
    with _locked(study_id):
        if path.exists():
            lines = [line for line in path.read_text().splitlines() if _moment(line) >= oldest]
            _replace(path, "".join(f"{line}\n" for line in lines), sync=True)


def acts_rotate() -> int:
    """Re-encrypt the acts of all studies with the current key; return the number of lines. Skip unreadable lines."""
    done = 0
    for path in sorted(Path(settings.JOURNAL_DIR).glob("study-*.acts")):
        study_id = int(path.stem.removeprefix("study-"))
        with _locked(study_id):
            lines = [line for line in path.read_text().splitlines() if line]
            for place, line in enumerate(lines):
                try:
                    content = json.loads(line)
                    content["rows"] = cipher(*_ACTS).rotate(content["rows"].encode()).decode()
                except (ValueError, KeyError, InvalidToken):
                    continue
                lines[place] = json.dumps(content)
                done += 1
            _replace(path, "".join(f"{line}\n" for line in lines), sync=True)
    return done


def _moment(line: str) -> datetime:
    try:
        return datetime.fromisoformat(json.loads(line)["at"])
    except (ValueError, KeyError):  # a line cut off by a crash
        return timezone.now() - timedelta(days=365_000)


def _path(study_id: int | None) -> Path:
    name = "installation" if study_id is None else f"study-{study_id}"
    return Path(settings.JOURNAL_DIR) / f"{name}.json"


def _acts_path(study_id: int | None) -> Path:
    return _path(study_id).with_suffix(".acts")


@contextmanager
def _locked(study_id: int | None) -> Iterator[None]:
    """Lock a study's files, so that only one process at a time writes them."""
    path = _path(study_id)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _rewriting(study_id: int | None, *, sync: bool = True) -> Iterator[dict[str, Any]]:
    """Provide a study's file for changes, which are written atomically, by one process at a time."""
    with _locked(study_id):
        content = journal_read(study_id)
        yield content
        _replace(_path(study_id), json.dumps(content), sync=sync)


def _replace(path: Path, content: str, *, sync: bool) -> None:
    draft = path.with_suffix(f"{path.suffix}.{os.getpid()}")
    with open(draft, "w") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    draft.replace(path)


def _fold(content: dict[str, Any]) -> None:
    """Merge pending notes into the confirmed notes. If these already have a later state of a chain, keep that."""
    pending, content["pending"] = content["pending"], {}
    content["facts"].update(pending["facts"])
    if pending["replace"]:
        content["heads"] = pending["heads"]
        return
    for chain, (sequence, hash) in pending["heads"].items():
        if sequence > content["heads"].get(chain, [0])[0]:
            content["heads"][chain] = [sequence, hash]


def _acts_write(study_id: int | None, acts: list[dict[str, Any]]) -> None:
    """Append one encrypted line with ``acts``. The caller has locked the study's files."""
    if not acts:
        return
    plain = json.dumps(acts, cls=DjangoJSONEncoder).encode()
    line = {"at": timezone.now().isoformat(), "rows": cipher(*_ACTS).encrypt(zlib.compress(plain)).decode()}
    # If a crash has cut off the last line, the leading line break separates it from the new line.
    with open(_acts_path(study_id), "a", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(f"\n{json.dumps(line)}")
        file.flush()
        os.fsync(file.fileno())
