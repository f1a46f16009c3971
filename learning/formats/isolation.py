"""Reader for uploaded files in a separate process with limits, so that a file can harm only its own reader.

A malicious file may trick libraries into using all memory, running forever, or executing its content. Each file is
therefore read in a process with limited memory and time, without access to the network, other programs or the site's
settings. The process answers with JSON and arrays, never with pickle.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGXCPU
from typing import Any

from common.confinement import ConfinedProcess, answers, confine, frame_read, frame_write, scratch_folder
from common.progress import Progress, silent
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.documents import schema_from_json, schema_to_json
from learning.formats.draft import Draft, schema_draft
from learning.formats.files import check_sha256
from learning.formats.read import no_rows, read_into
from learning.formats.records import RowFiles
from learning.formats.rows import Balance, DataError, Report, Rows
from learning.formats.schema import Schema

logger = logging.getLogger(__name__)

_MB = 1 << 20
#: Largest ratio of elapsed time to processor time, because a reader that waits for the disk uses no processor time.
_PATIENCE = 2


@dataclass(frozen=True)
class Allowance:
    """Limits for a reader: memory in MB, in addition to the memory for its own code, and processor time in seconds."""

    memory: int
    seconds: int


def draft_isolated(path: Path, allowance: Allowance, *, private: bool) -> Draft:
    """Return the draft of a schema for a file, as created by `schema_draft`.

    Args:
        allowance: Limits on the resources for reading the file.
        private: Whether the draft may reveal only the names and kinds of columns.

    Raises:
        DataError: The file cannot be read, contains too little information, or exceeds the limits.
    """
    with scratch_folder() as folder:
        answer = _answer({"ask": "draft", "path": str(path.absolute()), "private": private}, folder, allowance, silent)
    return Draft(answer["document"], tuple(sentence_from_json(remark) for remark in answer["remarks"]), answer["facts"])


def read_isolated(
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
    """Check the SHA-256 of a file, and return its records as read by `read_file`. Errors are added to the report."""
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
        # The file of records is deleted with its folder, but stays mapped while the records are used.
        return RowFiles(folder).rows(answer["rows"], no_rows(schema), labels=labels, holders=holders)


def _answer(request: dict[str, Any], folder: Path, allowance: Allowance, progress: Progress) -> dict[str, Any]:
    """Return the answer to a request; its arrays are in the folder.

    Raises:
        DataError: The request was refused, or the process failed.
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
        logger.error("A file reader failed: %s.", answer["failed"])
        problem = _("The file is damaged, or its variant of the format is not supported.")
        raise DataError(problem, _("Save the file again, or in another format."))
    return answer


def _process(request: dict[str, Any], folder: Path, allowance: Allowance, progress: Progress) -> dict[str, Any]:
    """Return a reading process's answer, or the reason why it ended. The process never outlives this call."""
    request = request | {"folder": str(folder), "memory": allowance.memory * _MB, "seconds": allowance.seconds}
    with ConfinedProcess("learning.formats.isolation") as process, process.within(_PATIENCE * allowance.seconds):
        try:
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # how the process ended is more informative
        try:
            while True:
                step, _array = frame_read(process.stdout)
                progress(step["done"], step["total"])
        except EOFError:
            ended = process.ended()
    if process.late or ended == -SIGXCPU:
        return {"slow": True}
    if ended == -SIGKILL:  # killed by the kernel, because the machine is out of memory
        return {"exhausted": True}
    if ended != 0:
        return {"failed": f"it ended with {ended}"}
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text("utf-8"))
    return answer


_LIMIT = _("Check where the file comes from. If it is the right file, split it, or save it as CSV.")


# --- The process, which reads requests from standard input and writes answers to a folder


def main() -> None:
    """Carry out the request in a confined process, and write its answer or its error."""
    # Import the readers' libraries before confinement: afterwards, only the named files can be opened, and the
    # libraries' memory would count towards the limit.
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401
    import scipy.io  # noqa: F401

    stream = answers()
    request = json.load(sys.stdin)
    folder = Path(request["folder"])
    named = [Path(name) for key in ("path", "label_file") if (name := request.get(key))]
    confine(memory=request["memory"], seconds=request["seconds"], reads=named, writes=[folder])
    answer = answered(request, folder, lambda done, total: frame_write(stream, done=done, total=total))
    (folder / "answer.json").write_text(json.dumps(answer), "utf-8")


def answered(request: dict[str, Any], folder: Path, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Return the answer to a request, or ``refused``, ``exhausted`` or ``failed``. Arrays are stored in the folder."""
    try:
        return _ANSWERS[request["ask"]](request, folder, progress)
    except DataError as error:
        return {"refused": fault_to_json(error)}
    except MemoryError:
        return {"exhausted": True}
    except Exception as error:  # an unexpected error in a library
        # Report the place but not the message, which may quote a record.
        where = [f"{each.filename}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)[-3:]]
        return {"failed": f"{type(error).__name__} at {', '.join(where)}"}


def _draft(request: dict[str, Any], folder: Path, progress: Callable[[int, int], None]) -> dict[str, Any]:
    draft = schema_draft(Path(request["path"]), private=request["private"])
    remarks = [_sentence(remark) for remark in draft.remarks]
    return {"document": draft.document, "remarks": remarks, "facts": draft.facts}


def _rows(request: dict[str, Any], folder: Path, progress: Callable[[int, int], None]) -> dict[str, Any]:
    report, label_file = Report(), request["label_file"]
    if request["sha256"]:
        check_sha256(Path(request["path"]), request["sha256"], request["member"])
    files = RowFiles(folder)
    read_into(
        files,
        Path(request["path"]),
        schema_from_json(request["schema"]),
        label_file=Path(label_file) if label_file else None,
        member=request["member"],
        labels=request["labels"],
        holders=request["holders"],
        progress=progress,
        report=report,
    )
    return {
        "rows": files.to_json(),
        "faults": [fault_to_json(fault) for fault in report.faults],
        "count": report.count,
        "clipped": report.clipped,
        "unknown": report.unknown,
        "missing": report.missing,
        "records": report.records,
        "balance": report.balance.to_json(),
    }


def fault_to_json(fault: DataError) -> dict[str, Any]:
    """Return an error as JSON, with sentences that can still be translated."""
    return {
        "problem": _sentence(fault.problem),
        "remedy": _sentence(fault.remedy),
        "file": None if fault.file is None else str(fault.file),
        "row": fault.row,
        "column": fault.column,
    }


def fault_from_json(document: dict[str, Any]) -> DataError:
    """Return the error from the result of `fault_to_json`."""
    place = {name: document[name] for name in ("file", "row", "column")}
    return DataError(sentence_from_json(document["problem"]), sentence_from_json(document["remedy"]), **place)


def _sentence(text: str) -> Any:
    return text.to_json() if isinstance(text, Sentence) else text


def sentence_from_json(document: Any) -> str:
    return Sentence.from_json(document) if isinstance(document, dict) else document


_ANSWERS = {"draft": _draft, "rows": _rows}


if __name__ == "__main__":
    main()
