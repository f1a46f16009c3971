"""Journal outside the database: how far every chain had come when it was last written (condition 7 of the guarantee).

A backup that is restored forgets what was released since, and who withdrew since. The journal does not: a study whose
chains end before the journal says is locked until :mod:`accounting.restores` has settled the difference. The journal is
a directory of small files, one for each study; it must not be restored together with the database.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings


def _path(study_id: int) -> Path:
    return Path(settings.JOURNAL_DIR) / f"study-{study_id}.json"


def journal_read(study_id: int) -> dict[str, Any]:
    """Journal of a study: ``heads`` (chain → sequence and hash) and ``facts``; empty before the first note."""
    try:
        return json.loads(_path(study_id).read_text())
    except FileNotFoundError:
        return {"heads": {}, "facts": {}}


@contextmanager
def _rewriting(study_id: int) -> Iterator[dict[str, Any]]:
    """Change a study's file: one process at a time, and wholly or not at all."""
    path = _path(study_id)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = journal_read(study_id)
        yield content
        draft = path.with_suffix(f".{os.getpid()}")
        with open(draft, "w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def head_note(study_id: int, chain: str, sequence: int, hash: str) -> None:
    """Note that a chain has come to ``sequence``; a later state that was noted before stays."""
    with _rewriting(study_id) as content:
        if sequence > content["heads"].get(chain, [0])[0]:
            content["heads"][chain] = [sequence, hash]


def facts_note(study_id: int, **facts: Any) -> None:
    """Note what is needed to settle a gap."""
    with _rewriting(study_id) as content:
        content["facts"].update(facts)


def journal_reset(study_id: int, heads: dict[str, tuple[int, str]]) -> None:
    """Put the journal back to ``heads``, after the difference has been settled."""
    with _rewriting(study_id) as content:
        content["heads"] = {chain: list(head) for chain, head in heads.items()}
