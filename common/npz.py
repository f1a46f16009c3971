"""Files of arrays (npz, never pickles), written part by part, so that long ones take little memory."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast
from zipfile import ZipFile

import numpy as np
from django.core.files.base import File
from numpy.lib import format as npy

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Parts:
    """Bytes to store as an array (size,) of uint8, which are made as they are written."""

    size: int
    parts: Iterable[bytes]


class ArraysFile(File):
    """File of arrays for a storage to save; it can be read once.

    Attributes:
        sha256: Of the content read so far.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray | Parts]) -> None:
        super().__init__(None)
        self._arrays, self.sha256 = arrays, hashlib.sha256()

    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """Yield the content in parts of any size."""
        for part in self._parts():
            self.sha256.update(part)
            yield part

    def _parts(self) -> Iterator[bytes]:
        written = _Written()
        with ZipFile(cast("File[bytes]", written), "w") as archive:
            for name, array in self._arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    header, parts = _npy(array)
                    npy.write_array_header_1_0(member, header)
                    for part in parts:
                        member.write(part)
                        yield written.taken()
        yield written.taken()


class _Written:
    """The latest output of a writer, as a stream that cannot seek."""

    def __init__(self) -> None:
        self._content = bytearray()

    def write(self, content: bytes) -> int:
        self._content += content
        return len(content)

    def flush(self) -> None: ...

    def taken(self) -> bytes:
        content = bytes(self._content)
        self._content.clear()
        return content


def _npy(array: np.ndarray | Parts) -> tuple[dict[str, object], Iterable[bytes | memoryview]]:
    """Return the header of an array in a file, and its content."""
    if isinstance(array, Parts):
        return {"descr": "|u1", "fortran_order": False, "shape": (array.size,)}, array.parts
    array = np.asarray(array, order="C")
    if array.dtype.hasobject:
        raise ValueError("Arrays of objects are not stored: reading them would run what a file holds.")
    content = array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
    parts = (content[start : start + _AT_ONCE] for start in range(0, len(content), _AT_ONCE))
    return npy.header_data_from_array_1_0(array), parts
