"""Images in the idx format of MNIST (LeCun, Cortes, Burges), plain or gzip."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.files import open_content
from learning.formats.report import Report
from learning.formats.rows import DataError, Progress, Rows
from learning.formats.schema import ImageSchema

_UNSIGNED_BYTES = b"\x00\x00\x08"
_CHUNK = 1 << 22


def read_idx(
    images: Path,
    schema: ImageSchema,
    *,
    labels: Path | None = None,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Rows:
    """Read images scaled to [0, 1], with labels if a file of labels is given; ``progress`` counts bytes.

    The format has no holders.

    Raises:
        DataError: everything that is wrong. With ``report`` it goes there instead.
    """
    told = Report() if report is None else report
    before = told.count
    pixels = _told(told, images, 3 if schema.channels == 1 else 4, progress)
    if pixels is not None and pixels.shape[1:] != schema.shape:
        problem = Sentence(
            _("The images measure %(found)s, the schema %(declared)s."),
            found=" × ".join(map(str, pixels.shape[1:])),
            declared=schema.shape,
        )
        told.add(DataError(problem, _("Correct the schema, or choose another file."), file=images))
    numbers = None if labels is None else _told(told, labels, 1, None)
    if labels is not None and numbers is not None:
        _check_labels(numbers, None if pixels is None else len(pixels), len(schema.classes), labels, told)
    if report is None:
        told.raise_faults()
    if pixels is None or told.count > before:
        return Rows(np.empty((0, *schema.shape), np.float32))
    x = pixels.astype(np.float32)
    x /= 255
    return Rows(x, None if numbers is None else numbers.astype(np.int64))


def _check_labels(numbers: npt.NDArray[np.uint8], images: int | None, classes: int, path: Path, report: Report) -> None:
    if images is not None and len(numbers) != images:
        problem = Sentence(_("There are %(labels)d labels for %(count)d images."), labels=len(numbers), count=images)
        report.add(DataError(problem, _("Choose the two files that belong together."), file=path))
    inner = Report()
    inner.add_rows(
        np.flatnonzero(numbers >= classes).tolist(),
        lambda place: Sentence(
            _("The label %(label)s is no class; there are %(count)d, counted from 0."),
            label=numbers[place],
            count=classes,
        ),
        _("Correct the label or the schema."),
    )
    report.take(inner, path)


def _told(report: Report, path: Path, axes: int, progress: Progress | None) -> npt.NDArray[np.uint8] | None:
    try:
        return _read_array(path, axes, progress)
    except DataError as error:
        report.add(error)
        return None


def shape_of(path: Path) -> tuple[int, ...]:
    """Lengths of the axes that an idx file of bytes announces; empty if it is none."""
    with open_content(path) as content:
        magic = content.stream.read(4)
        axes = magic[3] if magic[:3] == _UNSIGNED_BYTES and len(magic) == 4 else 0
        lengths = content.stream.read(4 * axes)
    return tuple(np.frombuffer(lengths, ">u4").tolist()) if axes and len(lengths) == 4 * axes else ()


def _read_array(path: Path, axes: int, progress: Progress | None) -> npt.NDArray[np.uint8]:
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
            if progress:
                progress(content.position(), content.size)
    if not shape or len(values) != expected:
        text = _("The file announces %(expected)s values and holds %(found)s.")
        found = f"> {expected:,}" if len(values) > expected else f"{len(values):,}"
        problem = Sentence(text, expected=f"{expected:,}", found=found)
        raise DataError(problem, _("Get it again: it is cut off or damaged."), file=path)
    if not expected:
        raise DataError(_("The file holds no records."), _("Add some."), file=path)
    return np.frombuffer(values, np.uint8).reshape(shape)
