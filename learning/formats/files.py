"""Files as streams of uncompressed bytes, and checks of their content."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.limits import most_content, unpacked_too_large
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
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)
_BEGINNING = 512
_FIRST_RESOURCE = 1 << 16
_RESOURCE_TYPE = re.compile(rb'"resourceType"\s*:\s*"')
_TABLE = _("Save the file's contents as a table: CSV, Excel or Parquet.")
_ZIPPED = _("Put all images into one zip file, with a folder for each class, and choose that file.")
_FHIR = _("Save the file's contents as a table: CSV, Excel or Parquet. For FHIR, use a bundle or NDJSON.")
_CONVERT = _("Save the data as npz or CSV with the program that created the file.")
_WRITE_CSV = _("Save the data as CSV with write.csv.")
_UNPACK = _("Unpack the archive, and choose the file that contains the records.")
#: Signatures of other kinds of files: bytes, their position, the kind, and a remedy if the kind is not supported.
_KINDS = (
    (b"PAR1", 0, "Parquet", ""),
    (b"MATLAB 5.0", 0, "MATLAB", ""),
    (b"$FL2", 0, "SPSS", ""),
    (b"$FL3", 0, "SPSS", ""),
    (b"<stata_dta>", 0, "Stata", ""),
    (b"\xc2\xea\x81\x60", 12, "SAS", ""),
    (b"HEADER RECORD*******LIBRARY", 0, "SAS transport", ""),
    (b"\xd0\xcf\x11\xe0", 0, "Excel", ""),
    (b"\x89PNG", 0, "PNG", _ZIPPED),
    (b"\xff\xd8\xff", 0, "JPEG", _ZIPPED),
    (b"II*\x00", 0, "TIFF", _ZIPPED),
    (b"MM\x00*", 0, "TIFF", _ZIPPED),
    (b"GIF8", 0, "GIF", _ZIPPED),
    (b"DICM", 128, "DICOM", _ZIPPED),
    (b"WEBP", 8, "WebP", _ZIPPED),
    (b"%PDF", 0, "PDF", _TABLE),
    (b"{\\rtf", 0, "RTF", _TABLE),
    (b"\x89HDF", 0, "HDF5", _CONVERT),
    (b"CDF\x01", 0, "NetCDF", _CONVERT),
    (b"SQLite format 3", 0, "SQLite", _TABLE),
    (b"\x93NUMPY", 0, "npy", _("Save the data with numpy.savez, using the arrays x, y and holder.")),
    (b"\x80\x04", 0, "pickle", _CONVERT),
    (b"RDX2\n", 0, "R", _WRITE_CSV),
    (b"RDX3\n", 0, "R", _WRITE_CSV),
    (b"7z\xbc\xaf", 0, "7z", _UNPACK),
    (b"Rar!", 0, "RAR", _UNPACK),
    (b"\xfd7zXZ", 0, "xz", _UNPACK),
    (b"BZh", 0, "bzip2", _UNPACK),
    (b"\x28\xb5\x2f\xfd", 0, "Zstandard", _UNPACK),
    (b"ustar", 257, "tar", _UNPACK),
)
_TEXT = (
    (re.compile(rb"(?i)\s*<(!doctype html|html)"), "HTML", _TABLE),
    (re.compile(rb"\s*<\?xml"), "XML", _TABLE),
    (re.compile(rb'\s*(\{\s*"|\[\s*\{)'), "JSON", _FHIR),
)
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".dcm", ".bmp")
"""Suffixes of supported images, in lower case."""


@dataclass(frozen=True)
class Content:
    """Uncompressed bytes of a file, and the number of bytes read from the file itself."""

    stream: IO[bytes]
    position: Callable[[], int]
    size: int


@contextmanager
def open_content(path: Path, member: str | None = None) -> Iterator[Content]:
    """Open a plain, gzip or zip file for reading. In a zip file, read the only member or the named member.

    Raises:
        DataError: The file is missing or damaged. Damage may be found only while the file is read.
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
            raise DataError(problem, _("Download or export the file again."), file=path) from error
        except DataError as error:
            raise error.at(file=path) from None


class _Bounded(io.RawIOBase):
    """Stream of uncompressed bytes that raises an error if a compressed file contains more of them than allowed."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._read = stream, most, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        place = memoryview(buffer)
        data = self._stream.read(len(place))
        self._read += len(data)
        if self._read > self._most:
            raise unpacked_too_large(self._most)
        place[: len(data)] = data
        return len(data)


def _content(stream: IO[bytes] | gzip.GzipFile, raw: IO[bytes], path: Path) -> Content:
    size = path.stat().st_size
    return Content(io.BufferedReader(_Bounded(stream, most_content(size)), _CHUNK), raw.tell, size)


def kind_of(path: Path) -> str:
    """Return the format that the content indicates, such as ``Parquet``; empty for text and unknown content.

    Raises:
        DataError: The file cannot be opened, or its format is not supported.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_BEGINNING)
    except OSError as error:
        raise cannot_open(path, error) from error
    if start.startswith(b"PK"):
        return _kind_of_archive(path)
    for first, place, kind, remedy in _KINDS:
        if start.startswith(first, place):
            if remedy:
                raise _not_read(path, kind, remedy)
            return kind
    if _is_fhir(path):
        return "FHIR"
    for form, kind, remedy in _TEXT:
        if form.match(start.removeprefix(b"\xef\xbb\xbf")):
            raise _not_read(path, kind, remedy)
    return ""


def _is_fhir(path: Path) -> bool:
    """Return whether a file, compressed or not, begins with a JSON object that has a resource type near its start."""
    with open_content(path) as content:
        start = content.stream.read(_FIRST_RESOURCE)
    return start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith((b"{", b"[")) and bool(_RESOURCE_TYPE.search(start))


def extract_kind(names: list[str]) -> str:
    """Return the kind of health system that produced an archive's files: ``OMOP``, ``FHIR``, or empty for neither.

    >>> extract_kind(["a/PERSON.csv", "a/measurement.csv"]), extract_kind(["Patient.ndjson"]), extract_kind(["a.csv"])
    ('OMOP', 'FHIR', '')
    """
    members = {PurePosixPath(name).name.lower() for name in names}
    if "person.csv" in members and members & {"measurement.csv", "condition_occurrence.csv"}:
        return "OMOP"
    return "FHIR" if members and all(name.endswith((".json", ".ndjson")) for name in members) else ""


def _not_read(path: Path, kind: str, remedy: str) -> DataError:
    return DataError(Sentence(_("The format of the file is %(format)s."), format=kind), remedy, file=path)


def _kind_of_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = members(archive)
    except zipfile.BadZipFile:
        return ""
    if any(name.startswith("xl/") for name in names) or ("mimetype" in names and "content.xml" in names):
        return "Excel"
    for folder, kind in (("word/", "Word"), ("ppt/", "PowerPoint")):
        if any(name.startswith(folder) for name in names):
            raise _not_read(path, kind, _TABLE)
    if any(name.lower().endswith(IMAGE_SUFFIXES) for name in names):
        return "images"
    if kind := extract_kind(names):
        return kind
    return "npz" if names and all(name.endswith(".npy") for name in names) else ""


def cannot_open(path: Path, error: OSError) -> DataError:
    """Return a DataError for a file that is missing or not readable."""
    problem = Sentence(_("The file cannot be opened (%(error)s)."), error=error.strerror)
    return DataError(problem, _("Check the file's name and location."), file=path)


@contextmanager
def sound(path: Path, problem: str, remedy: str, *unsound: type[Exception]) -> Iterator[None]:
    """Convert a library's exceptions about a broken file to DataErrors.

    Args:
        problem: Message saying that the file is broken; ``%(error)s`` is replaced by the library's message.
        remedy: Advice about what to do.

    Raises:
        DataError: The file is missing, not readable, or broken.
    """
    try:
        yield
    except DataError as error:
        raise error.at(file=path) from None
    except MemoryError:
        raise  # not an error in the file, although some libraries derive their own errors from it
    except (*_UNSOUND, *unsound) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise cannot_open(path, error) from error
        sentence = problem if isinstance(problem, Sentence) else Sentence(problem, error=error)
        raise DataError(sentence, remedy, file=path) from error


def holds(path: Path, member: str) -> bool:
    """Return whether a path is a zip file with this member."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(PurePosixPath(name).name == member for name in members(archive))


def check_sha256(path: Path, expected: str, member: str | None = None) -> None:
    """Verify the SHA-256 (hexadecimal) of the uncompressed content.

    Raises:
        DataError: The content differs.
    """
    digest = hashlib.sha256()
    with open_content(path, member) as content:
        while chunk := content.stream.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != expected.lower():
        raise DataError(
            f"The SHA-256 of the uncompressed content is {digest.hexdigest()}, not {expected.lower()}.",
            "Download the file again, and check that it is the right version.",
            file=path,
        )


def members(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the files in an archive, without files added by macOS or Windows."""
    return [
        name
        for name in archive.namelist()
        if not name.endswith("/")
        and not name.startswith("__MACOSX/")
        and not PurePosixPath(name).name.startswith(".")
        and PurePosixPath(name).name.lower() not in ("thumbs.db", "desktop.ini")
    ]


def check_different(names: Iterable[str]) -> None:
    """Check that all names in an archive differ, because only one of two files with the same name would be read.

    Raises:
        DataError: Two names are the same.
    """
    for name, count in Counter(names).most_common(1):
        if count > 1:
            problem = Sentence(_("The archive contains %(count)d files called “%(name)s”."), count=count, name=name)
            raise DataError(problem, _("Keep one of them, or rename the others."))


def _member(archive: zipfile.ZipFile, path: Path, wanted: str | None) -> str:
    names = members(archive)
    matching = [name for name in names if wanted is None or wanted in (name, PurePosixPath(name).name)]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(names[:10]) or "–"
    if wanted:
        text = _("The archive must contain exactly one file %(wanted)s, but contains: %(names)s.")
        raise DataError(Sentence(text, wanted=wanted, names=listed), _("Specify which file to read."), file=path)
    problem = Sentence(_("The archive must contain exactly one file, but contains: %(names)s."), names=listed)
    raise DataError(problem, _("Specify which file to read."), file=path)
