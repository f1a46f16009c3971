"""Files as streams of bytes, whatever their compression, and the check that they are the files they claim to be."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from training.formats.rows import DataError

_CHUNK = 1 << 20
_DAMAGED = (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError)


@dataclass(frozen=True)
class Content:
    """Uncompressed bytes of a file, and how much of the file itself has been read."""

    stream: IO[bytes]
    position: Callable[[], int]
    size: int


@contextmanager
def open_content(path: Path, member: str | None = None) -> Iterator[Content]:
    """Open a plain, gzip or zip file for reading; of a zip file the only member, or the named one.

    Raises:
        DataError: the file is missing, or damaged, which may also show while it is read.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        raise cannot_open(path, error) from error
    with raw:
        start = raw.read(4)
        raw.seek(0)
        try:
            if start.startswith(b"PK"):
                with zipfile.ZipFile(raw) as archive, archive.open(_member(archive, path, member)) as stream:
                    yield Content(stream, raw.tell, path.stat().st_size)
            elif start.startswith(b"\x1f\x8b"):
                with gzip.GzipFile(fileobj=raw) as stream:
                    yield Content(cast(IO[bytes], stream), raw.tell, path.stat().st_size)
            else:
                yield Content(raw, raw.tell, path.stat().st_size)
        except _DAMAGED as error:
            raise DataError(f"The file is damaged or cut off ({error}).", "Get it again.", file=path) from error


def cannot_open(path: Path, error: OSError) -> DataError:
    """DataError for a file that is missing or not readable."""
    return DataError(f"The file cannot be opened ({error.strerror}).", "Check its name and place.", file=path)


def holds(path: Path, member: str) -> bool:
    """Whether this is a zip file with such a member."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(PurePosixPath(name).name == member for name in _members(archive))


def check_sha256(path: Path, expected: str, member: str | None = None) -> None:
    """Verify the SHA-256 (hexadecimal) of the uncompressed content.

    Raises:
        DataError: the content differs.
    """
    digest = hashlib.sha256()
    with open_content(path, member) as content:
        while chunk := content.stream.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != expected.lower():
        raise DataError(
            f"The SHA-256 of the uncompressed content is {digest.hexdigest()}, not {expected.lower()}.",
            "Get the file again, and check that it is the version wanted.",
            file=path,
        )


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]


def _member(archive: zipfile.ZipFile, path: Path, wanted: str | None) -> str:
    names = _members(archive)
    matching = [name for name in names if wanted is None or wanted in (name, PurePosixPath(name).name)]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(names[:10]) or "nothing"
    what = f"no single file {wanted}" if wanted else "not exactly one file"
    raise DataError(f"The archive holds {what}, but: {listed}.", "Name the file to read.", file=path)
