"""The process in which a file is read: asked through standard input, answers in a folder. See `apart`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.confinement import answers, confine
from common.frames import frame_write
from common.sentences import Sentence
from learning.formats.documents import schema_from_json
from learning.formats.draft import schema_draft
from learning.formats.files import check_sha256
from learning.formats.keeping import RowFiles
from learning.formats.read import read_into
from learning.formats.report import Report
from learning.formats.rows import DataError


def main() -> None:
    """Do what is asked, confined, and write the answer; whatever goes wrong is part of it."""
    # Readers import these where they use them. Here they come first: once confined, no file but the named ones opens,
    # and what libraries take would count as the file's memory.
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
    """Answer to what is asked, or why there is none: ``refused``, ``exhausted`` or ``failed``; arrays in the folder."""
    try:
        return _ANSWERS[request["ask"]](request, folder, progress)
    except DataError as error:
        return {"refused": fault_to_json(error)}
    except MemoryError:
        return {"exhausted": True}
    except Exception as error:  # a library met what it did not expect
        # Where, not what: a message may repeat a record.
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
    """A fault as JSON, with sentences that can still be translated."""
    return {
        "problem": _sentence(fault.problem),
        "remedy": _sentence(fault.remedy),
        "file": None if fault.file is None else str(fault.file),
        "row": fault.row,
        "column": fault.column,
    }


def fault_from_json(document: dict[str, Any]) -> DataError:
    """The fault that `fault_to_json` wrote."""
    place = {name: document[name] for name in ("file", "row", "column")}
    return DataError(sentence_from_json(document["problem"]), sentence_from_json(document["remedy"]), **place)


def _sentence(text: str) -> Any:
    return text.to_json() if isinstance(text, Sentence) else text


def sentence_from_json(document: Any) -> str:
    """A sentence of an answer."""
    return Sentence.from_json(document) if isinstance(document, dict) else document


_ANSWERS = {"draft": _draft, "rows": _rows}

if __name__ == "__main__":
    main()
