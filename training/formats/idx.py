"""Images in the idx format of MNIST (LeCun, Cortes, Burges), plain or gzip."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from training.formats.files import open_content
from training.formats.rows import DataError, Progress, Rows
from training.formats.schema import ImageSchema

_UNSIGNED_BYTES = b"\x00\x00\x08"
_CHUNK = 1 << 22


def read_idx(
    images: Path, schema: ImageSchema, *, labels: Path | None = None, progress: Progress | None = None
) -> Rows:
    """Read images scaled to [0, 1], with labels if a file of labels is given; ``progress`` counts bytes.

    The format has no holders.

    Raises:
        DataError: not an idx file, of the wrong length, or not matching the schema or the labels.
    """
    pixels = _read_array(images, 3 if schema.channels == 1 else 4, progress)
    if pixels.shape[1:] != schema.shape:
        problem = f"The images measure {' × '.join(map(str, pixels.shape[1:]))}, the schema {schema.shape}."
        raise DataError(problem, "Correct the schema, or choose another file.", file=images)
    x = pixels.astype(np.float32)
    x /= 255
    if labels is None:
        return Rows(x)
    numbers = _read_array(labels, 1, None)
    if len(numbers) != len(x):
        problem = f"There are {len(numbers)} labels for {len(x)} images."
        raise DataError(problem, "Choose the two files that belong together.", file=labels)
    if (unknown := np.flatnonzero(numbers >= len(schema.classes))).size:
        problem = f"The label {numbers[unknown[0]]} is no class; there are {len(schema.classes)}, counted from 0."
        raise DataError(problem, "Correct the schema or the file.", file=labels, row=int(unknown[0]) + 1)
    return Rows(x, numbers.astype(np.int64))


def _read_array(path: Path, axes: int, progress: Progress | None) -> npt.NDArray[np.uint8]:
    """Magic number (zeros, type, number of axes), the length of each axis, then the values."""
    with open_content(path) as content:
        magic = content.stream.read(4)
        if magic != _UNSIGNED_BYTES + bytes([axes]):
            problem = f"The file begins with {magic.hex() or 'nothing'}, not with {_UNSIGNED_BYTES.hex()}{axes:02x}."
            raise DataError(problem, f"Give an idx file of unsigned bytes with {axes} axes.", file=path)
        lengths = content.stream.read(4 * axes)
        shape = tuple(np.frombuffer(lengths, ">u4").tolist()) if len(lengths) == 4 * axes else ()
        expected, values = math.prod(shape) if shape else 0, bytearray()
        while len(values) <= expected and (chunk := content.stream.read(_CHUNK)):
            values += chunk
            if progress:
                progress(content.position(), content.size)
    if not shape or len(values) != expected:
        found = "more" if len(values) > expected else f"{len(values):,}"
        problem = f"The file announces {expected:,} values and holds {found}."
        raise DataError(problem, "Get it again: it is cut off or damaged.", file=path)
    if not expected:
        raise DataError("The file holds no records.", "Add some.", file=path)
    return np.frombuffer(values, np.uint8).reshape(shape)
