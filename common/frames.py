"""Messages between two processes: one line of JSON, followed by the bytes of an array if there is one."""

from __future__ import annotations

import json
import math
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_TYPES = ("uint8", "float32")
_LONGEST_LINE = 1 << 16


def frame_write(stream: IO[bytes], array: NDArray[Any] | None = None, **header: Any) -> None:
    """Write a message."""
    if array is not None:
        header |= {"shape": list(array.shape), "type": array.dtype.name}
    stream.write(json.dumps(header).encode() + b"\n")
    if array is not None:
        stream.write(np.ascontiguousarray(array).tobytes())
    stream.flush()


def frame_read(stream: IO[bytes], *, most: int = 0) -> tuple[dict[str, Any], NDArray[Any] | None]:
    """Read a message.

    Args:
        most: Maximum size of its array in bytes; the sender may be a process that an untrusted file has taken over.

    Raises:
        EOFError: there is no message, or only part of one.
        ValueError: the message was not written by `frame_write`, or is too large.
    """
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise EOFError
    header = json.loads(line)
    if "shape" not in header:
        return header, None
    shape, kind = tuple(header["shape"]), np.dtype(_TYPES[_TYPES.index(header["type"])])
    size = math.prod(shape) * kind.itemsize
    if not 0 <= size <= most:
        raise ValueError(f"An array of {size} bytes is none that was asked for.")
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return header, np.frombuffer(content, kind).reshape(shape)
