"""Reading of uploaded files in a separate process, with limits, so that a file can only harm its own reader.

Libraries that read strangers' files may be tricked into taking all memory, running forever, or executing a file's
content. Each file is therefore read in a process (`reader`) with limited memory and time, and without network, other
programs, or the settings of the site. Its answer comes as JSON and arrays, never as pickle.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGXCPU
from typing import Any

from common.confinement import ConfinedProcess
from common.frames import frame_read
from common.progress import Progress, silent
from common.scratch import scratch_folder
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.balance import Balance
from learning.formats.documents import schema_to_json
from learning.formats.draft import Draft
from learning.formats.keeping import RowFiles
from learning.formats.read import no_rows
from learning.formats.reader import fault_from_json, sentence_from_json
from learning.formats.report import Report
from learning.formats.rows import DataError, Rows
from learning.formats.schema import Schema

logger = logging.getLogger(__name__)

_MB = 1 << 20
#: A reader that waits for its disk takes no processor time.
_PATIENCE = 2


@dataclass(frozen=True)
class Allowance:
    """Limits for a reader: memory in MB in addition to that of its programs, and seconds of processor time."""

    memory: int
    seconds: int


def draft_apart(path: Path, allowance: Allowance, *, private: bool) -> Draft:
    """Draft of a schema for a file, as `schema_draft` makes it.

    Args:
        path: The file.
        allowance: Limits on the resources for reading the file.
        private: Whether the draft may reveal nothing but the names and kinds of columns.

    Raises:
        DataError: the file cannot be read, contains too little information, or exceeds the limits.
    """
    with scratch_folder() as folder:
        answer = _answer({"ask": "draft", "path": str(path.absolute()), "private": private}, folder, allowance, silent)
    return Draft(answer["document"], tuple(sentence_from_json(remark) for remark in answer["remarks"]), answer["facts"])


def read_apart(
    path: Path,
    schema: Schema,
    *,
    allowance: Allowance,
    label_file: Path | None = None,
    member: str | None = None,
    sha256: str | None = None,
    labels: bool = True,
    holders: bool = True,
    progress: Progress | None = None,
    report: Report,
) -> Rows:
    """Records of a file, as `read_file` reads them, if it has this SHA-256; errors go to the report."""
    request = {
        "ask": "rows",
        "path": str(path.absolute()),
        "schema": schema_to_json(schema),
        "label_file": str(label_file.absolute()) if label_file else None,
        "member": member,
        "sha256": sha256,
        "labels": labels,
        "holders": holders,
    }
    with scratch_folder() as folder:
        try:
            answer = _answer(request, folder, allowance, progress or silent)
        except DataError as error:
            report.add(error.at(file=path))
            return Rows(no_rows(schema))
        faults = Report([fault_from_json(fault) for fault in answer["faults"]], answer["count"])
        for changed in ("clipped", "unknown", "missing"):
            setattr(faults, changed, Counter(answer[changed]))
        faults.records, faults.balance = answer["records"], Balance.from_json(answer["balance"])
        report.take(faults, path)
        # The file of records goes with its folder, and stays mapped as long as they are used.
        return RowFiles(folder).rows(answer["rows"], no_rows(schema), labels=labels, holders=holders)


def _answer(request: dict[str, Any], folder: Path, allowance: Allowance, progress: Progress) -> dict[str, Any]:
    """Return the answer to a request; its arrays are in the folder.

    Raises:
        DataError: it was refused, or the process did not end well.
    """
    answer = _process(request, folder, allowance, progress)
    if "refused" in answer:
        raise fault_from_json(answer["refused"])
    if "slow" in answer:
        text = _("Reading the file took longer than %(most)d seconds and was stopped.")
        raise DataError(Sentence(text, most=allowance.seconds), _LIMIT)
    if "exhausted" in answer:
        text = _("Reading the file took more than %(most)s MB of memory and was stopped.")
        raise DataError(Sentence(text, most=f"{allowance.memory:,}"), _LIMIT)
    if "failed" in answer:
        logger.error("A reader of files failed: %s.", answer["failed"])
        problem = _("The file is damaged, or its variant of the format is not supported.")
        raise DataError(problem, _("Save it again, or in another format."))
    return answer


def _process(request: dict[str, Any], folder: Path, allowance: Allowance, progress: Progress) -> dict[str, Any]:
    """Return the answer of a reading process, or how it ended; it has ended when this returns."""
    request = request | {"folder": str(folder), "memory": allowance.memory * _MB, "seconds": allowance.seconds}
    with ConfinedProcess("learning.formats.reader") as process, process.within(_PATIENCE * allowance.seconds):
        try:
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # how it ended says more
        try:
            while True:
                step, _array = frame_read(process.stdout)
                progress(step["done"], step["total"])
        except EOFError:
            ended = process.ended()
    if process.late or ended == -SIGXCPU:
        return {"slow": True}
    if ended == -SIGKILL:  # by the kernel, as the machine has no memory left
        return {"exhausted": True}
    if ended != 0:
        return {"failed": f"it ended with {ended}"}
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text("utf-8"))
    return answer


_LIMIT = _("Check where the file comes from. If it is right, split it, or save it as CSV.")
