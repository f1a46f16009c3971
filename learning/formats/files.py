"""Files as streams of bytes, whatever their compression, and the check that they are the files they claim to be."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.limits import grows_too_much, most_content
from learning.formats.rows import DataError

_CHUNK = 1 << 20
_DAMAGED = (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_UNSOUND: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    EOFError,
    OverflowError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)
_BEGINNING = 512
#: How files of other kinds begin, and the suffix by which a reader would take them for what they are.
_KINDS = (
    (b"PAR1", ".parquet"),
    (b"MATLAB 5.0", ".mat"),
    (b"\x89HDF", ".h5"),
    (b"\x89PNG", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"%PDF", ".pdf"),
    (b"\xd0\xcf\x11\xe0", ".xls"),
)


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
                    yield _content(stream, raw, path)
            elif start.startswith(b"\x1f\x8b"):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield _content(unpacked, raw, path)
            else:
                yield Content(raw, raw.tell, path.stat().st_size)
        except _DAMAGED as error:
            problem = Sentence(_("The file is damaged or cut off (%(error)s)."), error=error)
            raise DataError(problem, _("Get it again."), file=path) from error
        except DataError as error:
            raise error.at(file=path) from None


class _Bounded(io.RawIOBase):
    """Unpacked bytes, as many as the packed file may hold."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._read = stream, most, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        place = memoryview(buffer)
        data = self._stream.read(len(place))
        self._read += len(data)
        if self._read > self._most:
            raise grows_too_much(self._most)
        place[: len(data)] = data
        return len(data)


def _content(stream: IO[bytes] | gzip.GzipFile, raw: IO[bytes], path: Path) -> Content:
    size = path.stat().st_size
    return Content(io.BufferedReader(_Bounded(stream, most_content(size)), _CHUNK), raw.tell, size)


def kind_of(path: Path) -> str:
    """Suffix of the kind of file that the content says it is, such as ``.parquet``; empty for text and whatever else.

    Raises:
        DataError: the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_BEGINNING)
    except OSError as error:
        raise cannot_open(path, error) from error
    if start.startswith(b"PK"):
        return _kind_of_archive(path)
    return next((suffix for magic, suffix in _KINDS if start.startswith(magic)), "")


def _kind_of_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = _members(archive)
    except zipfile.BadZipFile:
        return ""
    if any(name.startswith(("xl/", "word/", "ppt/")) for name in names):
        return ".xlsx"
    if "mimetype" in names and "content.xml" in names:
        return ".ods"
    return ".npz" if names and all(name.endswith(".npy") for name in names) else ""


def cannot_open(path: Path, error: OSError) -> DataError:
    """DataError for a file that is missing or not readable."""
    problem = Sentence(_("The file cannot be opened (%(error)s)."), error=error.strerror)
    return DataError(problem, _("Check its name and place."), file=path)


@contextmanager
def sound(path: Path, problem: str, remedy: str, *unsound: type[Exception]) -> Iterator[None]:
    """Turn what a library raises about a broken file into DataErrors.

    Args:
        path: The file.
        problem: That it is not sound; ``%(error)s`` stands for what the library says.
        remedy: What to do about it.
        unsound: Exceptions of the library's own.

    Raises:
        DataError: the file is missing, not readable, or not sound.
    """
    try:
        yield
    except DataError as error:
        raise error.at(file=path) from None
    except (*_UNSOUND, *unsound) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise cannot_open(path, error) from error
        raise DataError(Sentence(problem, error=error), remedy, file=path) from error


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
    listed = ", ".join(names[:10]) or "–"
    if wanted:
        text = _("The archive holds no single file %(wanted)s, but: %(names)s.")
        raise DataError(Sentence(text, wanted=wanted, names=listed), _("Name the file to read."), file=path)
    problem = Sentence(_("The archive holds not exactly one file, but: %(names)s."), names=listed)
    raise DataError(problem, _("Name the file to read."), file=path)
