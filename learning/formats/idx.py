"""Images in the idx format of MNIST (LeCun, Cortes, Burges), plain or gzip."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.progress import Progress, silent
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.arrays import Array, unknown_classes
from learning.formats.files import open_content
from learning.formats.report import Report
from learning.formats.rows import DataError
from learning.formats.schema import Schema

_UNSIGNED_BYTES = b"\x00\x00\x08"
_CHUNK = 1 << 22


def idx_arrays(
    images: Path, labels: Path | None, schema: Schema, report: Report, progress: Progress
) -> dict[str, Array]:
    """Pixels ``x`` and, if there is a file of labels, ``y``; ``progress`` counts bytes. The format has no holders.

    The report has the faults of both files, each with its own.
    """
    arrays: dict[str, Array] = {}
    with report.noting():
        arrays["x"] = x = _read_array(images, 1 + len(schema.shape), progress)
        if x.shape[1:] != schema.shape:
            text = _("The images measure %(found)s, the schema %(declared)s.")
            problem = Sentence(text, found=" × ".join(map(str, x.shape[1:])), declared=schema.shape)
            raise DataError(problem, _("Correct the schema, or choose another file."))
    if labels is not None:
        with report.noting(labels):
            arrays["y"] = y = _read_array(labels, 1, silent)
            if "x" in arrays and len(y) != len(arrays["x"]):
                text = _("There are %(labels)d labels for %(count)d images.")
                problem = Sentence(text, labels=len(y), count=len(arrays["x"]))
                report.add(DataError(problem, _("Choose the two files that belong together."), file=labels))
            inner = Report()
            unknown_classes(y, len(schema.classes), inner)
            report.take(inner, labels)
    return {} if report.count else arrays


def shape_of(path: Path) -> tuple[int, ...]:
    """Lengths of the axes that an idx file of bytes announces; empty if it is none."""
    with open_content(path) as content:
        magic = content.stream.read(4)
        axes = magic[3] if magic[:3] == _UNSIGNED_BYTES and len(magic) == 4 else 0
        lengths = content.stream.read(4 * axes)
    return tuple(np.frombuffer(lengths, ">u4").tolist()) if axes and len(lengths) == 4 * axes else ()


def _read_array(path: Path, axes: int, progress: Progress) -> npt.NDArray[np.uint8]:
    """Magic number (zeros, type, number of axes), the length of each axis, then the values."""
    with open_content(path) as content:
        magic = content.stream.read(4)
        if magic != _UNSIGNED_BYTES + bytes([axes]):
            problem = Sentence(
                _("The file begins with %(found)s, not with %(wanted)s."),
                found=magic.hex() or "–",
                wanted=f"{_UNSIGNED_BYTES.hex()}{axes:02x}",
            )
            remedy = Sentence(_("Give an idx file of unsigned bytes with %(axes)d axes."), axes=axes)
            raise DataError(problem, remedy, file=path)
        lengths = content.stream.read(4 * axes)
        shape = tuple(np.frombuffer(lengths, ">u4").tolist()) if len(lengths) == 4 * axes else ()
        limits.check_numbers(*shape)
        expected, values = math.prod(shape) if shape else 0, bytearray()
        while len(values) <= expected and (chunk := content.stream.read(_CHUNK)):
            values += chunk
            progress(content.position(), content.size)
    if not shape or len(values) != expected:
        text = _("The file announces %(expected)s values and holds %(found)s.")
        count = f"> {expected:,}" if len(values) > expected else f"{len(values):,}"
        problem = Sentence(text, expected=f"{expected:,}", found=count)
        raise DataError(problem, _("Get it again: it is cut off or damaged."), file=path)
    if not expected:
        raise DataError(_("The file holds no records."), _("Add some."), file=path)
    return np.frombuffer(values, np.uint8).reshape(shape)
