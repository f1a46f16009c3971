"""Image files in a zip archive (PNG, JPEG, TIFF, BMP and DICOM), each with its class and possibly its holder.

The class of an image is the name of its folder, or is listed in a table with the columns ``file``, ``class`` and
``holder``. The table is in the archive or uploaded with it. If a DICOM file is not in a table, its Patient ID is the
holder.
"""

from __future__ import annotations

import csv
import io
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from common.identities import spelling
from common.progress import Progress
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.arrays import Array, array_missing
from learning.formats.columns import shown
from learning.formats.files import IMAGE_SUFFIXES, check_different, open_content, sound
from learning.formats.rows import IMAGES, DataError, Report
from learning.formats.schema import ImageSchema
from learning.formats.table import SEPARATORS, check_text, text_of

FRAMES = _("The image has %(count)d frames.")
EACH_FRAME = _("Save each frame as a separate file.")
_GREY = ("MONOCHROME1", "MONOCHROME2")
_PALETTE = "PALETTE COLOR"
#: Photometric interpretations that are read as RGB; pydicom converts those whose names begin with YBR.
_COLOURS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
_BITS = (1, 8, 16, 32)
_OTHERWISE = _("Save the image as PNG, or leave it out.")


def is_dicom(start: bytes) -> bool:
    """Return whether a file begins like DICOM, given at least its first 132 bytes."""
    return start[128:132] == b"DICM"


def dicom_image(content: bytes, window: tuple[float, float] | None) -> tuple[Image.Image, str]:
    """Return the image and Patient ID of a DICOM file, with rescaled grey values displayed through a window.

    Args:
        window: Centre and width; if None, the full range of values that the file could contain.

    Raises:
        DataError: The pixels are of an unsupported kind, or the file's attributes are contradictory.
    """
    import pydicom
    from pydicom.pixels import apply_color_lut, pixel_array

    file = pydicom.dcmread(io.BytesIO(content))
    _check(file)
    pixels, patient = pixel_array(file), str(_value(file, "PatientID", ""))
    kind = str(file.PhotometricInterpretation)
    if kind == _PALETTE:
        colours = apply_color_lut(pixels, file)[..., :3]
        return Image.fromarray(_bytes(colours, 8 * colours.dtype.itemsize)), patient
    if kind in _COLOURS:
        return Image.fromarray(_bytes(pixels, int(file.BitsStored))), patient
    values, low, high = _measured(pixels, file)
    if window is None:
        if _value(file, "VOILUTSequence", None):
            raise DataError(
                _("The DICOM file requires a VOI LUT, which is not supported."),
                _("Declare the display window in the schema."),
            )
        window = (low + high) / 2, high - low
    seen = windowed(values, window)
    return Image.fromarray(255 - seen if kind == "MONOCHROME1" else seen), patient


def dicom_properties(content: bytes) -> tuple[int, int, bool, tuple[float, float] | None]:
    """Return a DICOM file's height and width, whether it has colours, and the window that it requests."""
    import pydicom

    file = pydicom.dcmread(io.BytesIO(content), stop_before_pixels=True)
    centre, width = _first(_value(file, "WindowCenter", None)), _first(_value(file, "WindowWidth", None))
    window = (centre, width) if centre is not None and width else None
    has_colours = int(file.SamplesPerPixel) > 1 or _value(file, "PhotometricInterpretation", "") == _PALETTE
    return int(file.Rows), int(file.Columns), has_colours, window


def windowed(values: npt.NDArray[np.float64], window: tuple[float, float]) -> npt.NDArray[np.uint8]:
    """Return values as bytes: 0 at the lower end of a window of this centre and width, 255 at its upper end."""
    centre, width = window
    return np.round(((values - centre) / width + 0.5).clip(0, 1) * 255).astype(np.uint8)


def _check(file: Any) -> None:
    """Raise an error for unsupported attributes of the pixels."""
    if floats := next((name for name in ("FloatPixelData", "DoubleFloatPixelData") if name in file), None):
        raise _not_handled(floats, "…")
    if "PixelData" not in file:
        raise ValueError("no pixels")
    frames = int(_value(file, "NumberOfFrames", 1))
    if frames > 1:
        raise DataError(Sentence(FRAMES, count=frames), EACH_FRAME)
    kind = str(_value(file, "PhotometricInterpretation", ""))
    samples, wanted = int(_value(file, "SamplesPerPixel", 1)), 3 if kind in _COLOURS else 1
    if kind not in (*_GREY, _PALETTE, *_COLOURS) or samples != wanted:
        raise _not_handled("PhotometricInterpretation", f"{kind} ({samples})")
    allocated, stored = int(file.BitsAllocated), int(file.BitsStored)
    if allocated not in _BITS or not 1 <= stored <= allocated:
        raise _not_handled("BitsAllocated, BitsStored", f"{allocated}, {stored}")
    if int(_value(file, "HighBit", stored - 1)) != stored - 1:
        raise _not_handled("HighBit", str(file.HighBit))
    if wanted == 3 and file.PixelRepresentation:
        raise _not_handled("PixelRepresentation", str(file.PixelRepresentation))
    shape, usual = _value(file, "PresentationLUTShape", ""), "INVERSE" if kind == "MONOCHROME1" else "IDENTITY"
    if kind in _GREY and shape not in ("", usual):
        raise _not_handled("PresentationLUTShape", f"{shape} ({kind})")


def _measured(pixels: npt.NDArray[Any], file: Any) -> tuple[npt.NDArray[np.float64], float, float]:
    """Return the scanner's measurements, and the smallest and largest value that the scanner could have written."""
    from pydicom.pixels import apply_modality_lut

    if _value(file, "ModalityLUTSequence", None):
        bits = int(file.ModalityLUTSequence[0].LUTDescriptor[2])
        return np.asarray(apply_modality_lut(pixels, file), np.float64), 0.0, 2.0**bits - 1
    slope, offset = float(_value(file, "RescaleSlope", 1)), float(_value(file, "RescaleIntercept", 0))
    if not slope or not np.isfinite((slope, offset)).all():
        raise _not_handled("RescaleSlope", str(slope))
    lowest = -(2.0 ** (int(file.BitsStored) - 1)) if file.PixelRepresentation else 0.0
    ends = offset + slope * lowest, offset + slope * (lowest + 2.0 ** int(file.BitsStored) - 1)
    return pixels.astype(np.float64) * slope + offset, min(ends), max(ends)


def _bytes(colours: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint8]:
    """Return colours with this many bits as bytes."""
    return colours if bits == 8 else np.round(colours * (255 / (2.0**bits - 1))).astype(np.uint8)


def _value(file: Any, name: str, otherwise: Any) -> Any:
    """Return the value of an attribute, or ``otherwise`` if it is missing or empty."""
    value = getattr(file, name, None)
    return otherwise if value is None or value == "" else value


def _not_handled(attribute: str, value: str) -> DataError:
    text = _("DICOM files with %(attribute)s “%(value)s” are not supported.")
    return DataError(Sentence(text, attribute=attribute, value=shown(value)), _OTHERWISE)


def _first(value: object) -> float | None:
    if isinstance(value, Iterable) and not isinstance(value, str):
        value = next(iter(value), None)
    return None if value is None else float(value)  # type: ignore[arg-type]


_FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
_TABLE_SUFFIXES = (".csv", ".tsv")
_COLUMNS = {
    "file": ("file", "filename", "image", "path"),
    "class": ("class", "label"),
    "holder": ("holder", "pseudonym", "patient"),
}
_TWO_PEOPLE = _("The table and the DICOM file name different people.")
_NOT_READ = _("The image cannot be read (%(error)s).")


@dataclass(frozen=True)
class Entry:
    """Image in an archive: its member, its class and its holder; class and holder are empty if not given."""

    member: str
    label: str = ""
    holder: str = ""


@contextmanager
def open_images(path: Path, table: Path | None) -> Iterator[tuple[zipfile.ZipFile, list[Entry]]]:
    """Open an archive and its images, in the order of the archive or of the table.

    Raises:
        DataError: The archive or the table is broken, or the table lists files that do not exist.
    """
    problem, remedy = _("The zip file is not valid (%(error)s)."), _("Create the zip file again.")
    with sound(path, problem, remedy), zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if _is_image(archive, name)]
        check_different(names)
        tables = [name for name in archive.namelist() if _is_visible(name) and name.lower().endswith(_TABLE_SUFFIXES)]
        if table is None and len(tables) > 1:
            problem = Sentence(_("The archive contains several tables: %(names)s."), names=", ".join(tables[:5]))
            raise DataError(problem, _("Keep only one table, with the columns file, class and holder."))
        if table is not None:
            with open_content(table) as content:
                entries = _listed(text_of(content.stream).read().splitlines(keepends=True), names, table.name)
        elif tables:
            with archive.open(tables[0]) as file:
                entries = _listed(text_of(file).read().splitlines(keepends=True), names, tables[0])
        else:
            entries = [Entry(name, PurePosixPath(name).parent.name) for name in names]
        if not entries:
            raise DataError(
                _("The archive contains no images."), _("Add PNG, JPEG, TIFF or DICOM files to the archive.")
            )
        yield archive, entries


def image_arrays(
    path: Path, table: Path | None, schema: ImageSchema, wanted: Sequence[str], report: Report, progress: Progress
) -> dict[str, Array]:
    """Return images ``x`` as bytes in the schema's size, with class numbers ``y`` and pseudonyms ``holder``.

    In the report, the column of an error is the name of the image file.
    """
    size = path.stat().st_size
    with open_images(path, table) as (archive, entries):
        limits.check_numbers(len(entries), *schema.shape)
        x = np.zeros((len(entries), *schema.shape), np.uint8)
        y, holders, is_used = np.zeros(len(entries), np.int64), [], np.ones(len(entries), bool)
        numbers = {name: number for number, name in enumerate(schema.classes)}
        _count_others(archive, entries, report)
        for place, entry in enumerate(entries):
            holder = entry.holder
            with report.noting():
                try:
                    x[place], patient = _read(archive, entry.member, schema)
                    if "holder" in wanted and holder and patient and spelling(holder) != spelling(patient):
                        report.balance.see(IMAGES)
                        report.balance.leave_out(IMAGES, _TWO_PEOPLE, place=place + 1)
                        is_used[place] = False
                    holder = holder or patient
                    if "y" in wanted:
                        y[place] = _number_of(entry, numbers)
                except DataError as error:
                    raise DataError(error.problem, error.remedy, row=place + 1, column=shown(entry.member)) from error
            holders.append(holder)
            progress(size * (place + 1) // len(entries), size)
    arrays: dict[str, Array] = {"x": x, "y": y, "holder": np.array(holders)}
    if not is_used.all():
        arrays = {name: array[is_used] for name, array in arrays.items()}
    if "holder" in wanted and not any(holders):
        remedy = _(
            "Add a table with the columns file and holder, or a prefix if every image belongs to a different person."
        )
        report.add(array_missing("holder", remedy))
        del arrays["holder"]
    return {name: arrays[name] for name in wanted if name in arrays}


def _count_others(archive: zipfile.ZipFile, entries: Sequence[Entry], report: Report) -> None:
    """Count the files in an archive that are not read."""
    named = {entry.member for entry in entries}
    for name in archive.namelist():
        if not _is_visible(name) or name in named or name.lower().endswith(_TABLE_SUFFIXES):
            continue
        report.balance.see(IMAGES)
        is_image = _is_image(archive, name)
        report.balance.leave_out(
            IMAGES, _("The table does not list this image.") if is_image else _("It is not an image.")
        )


@dataclass(frozen=True)
class ImageProperties:
    """Properties of the first images of an archive.

    Attributes:
        sizes: Height and width, with the number of images that have them.
        channels: 3 if any image has colours, else 1.
        classes: Class names, sorted.
        window: Centre and width requested by the first DICOM file.
    """

    sizes: Counter[tuple[int, int]]
    channels: int
    classes: list[str]
    window: tuple[float, float] | None


def image_properties(path: Path, first: int = 200) -> ImageProperties:
    """Return the properties of the first images of an archive.

    Raises:
        DataError: An image cannot be read.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    channels, window = 1, None
    with open_images(path, None) as (archive, entries):
        for entry in entries[:first]:
            with archive.open(entry.member) as file, _readable():
                if is_dicom(file.read(132)):
                    file.seek(0)
                    height, width, colours, suggestion = dicom_properties(file.read())
                    window = window or suggestion
                else:
                    file.seek(0)
                    image = Image.open(file, formats=_FORMATS)
                    (width, height), colours = image.size, image.mode not in ("1", "L", "LA", "I", "I;16", "I;16B", "F")
            sizes[height, width] += 1
            channels = 3 if colours else channels
        classes = sorted({entry.label for entry in entries if entry.label})
    return ImageProperties(sizes, channels, classes, window)


def _read(archive: zipfile.ZipFile, member: str, schema: ImageSchema) -> tuple[npt.NDArray[np.uint8], str]:
    """Return the pixels of an image in the schema's size and colours and, for a DICOM file, the Patient ID."""
    with _readable():
        most = limits.most_content(archive.getinfo(member).compress_size)
        if archive.getinfo(member).file_size > most:
            raise limits.unpacked_too_large(most)
        content = archive.read(member)
        if is_dicom(content[:132]):
            image, patient = dicom_image(content, schema.window)
        else:
            image, patient = _picture(content, schema), ""
        mode = "L" if schema.channels == 1 else "RGB"
        return np.asarray(_sized(image.convert(mode), schema.width, schema.height, schema.fit)), patient


@contextmanager
def _readable() -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (DataError, MemoryError):
        raise
    except Exception as error:  # each library raises its own errors
        remedy = _("Save the image as PNG, JPEG, TIFF or uncompressed DICOM, or leave it out.")
        raise DataError(Sentence(_NOT_READ, error=type(error).__name__), remedy) from error


def _picture(content: bytes, schema: ImageSchema) -> Image.Image:
    opened = Image.open(io.BytesIO(content), formats=_FORMATS)
    if (frames := getattr(opened, "n_frames", 1)) > 1:
        raise DataError(Sentence(FRAMES, count=frames), EACH_FRAME)
    opened.draft("RGB", (2 * schema.width, 2 * schema.height))  # only for JPEG: decodes no more pixels than needed
    image: Image.Image = ImageOps.exif_transpose(opened)
    if image.mode.startswith(("I", "F")):  # 16 bits and more
        values = np.asarray(image, np.float64)
        return Image.fromarray(windowed(values, schema.window or (32767.5, 65535)))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), image)
    return image


def _sized(image: Image.Image, width: int, height: int, fit: str) -> Image.Image:
    """Return an image in the declared size, with black padding if needed."""
    if image.size == (width, height):
        return image
    match fit:
        case "crop":
            return ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        case "stretch":
            return image.resize((width, height), Image.Resampling.BILINEAR)
    return ImageOps.pad(image, (width, height), Image.Resampling.BILINEAR)


def _number_of(entry: Entry, numbers: dict[str, int]) -> int:
    if entry.label not in numbers:
        problem = Sentence(_("“%(value)s” is not a class."), value=entry.label)
        raise DataError(problem, Sentence(_("Use one of: %(names)s."), names=", ".join(numbers)))
    return numbers[entry.label]


def _is_visible(name: str) -> bool:
    return not any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts) and not name.endswith("/")


def _is_image(archive: zipfile.ZipFile, name: str) -> bool:
    """Return whether a member is an image, judging by its suffix or, if it has none, by the start of a DICOM file."""
    suffix = PurePosixPath(name).suffix.lower()
    if not _is_visible(name) or suffix in IMAGE_SUFFIXES:
        return _is_visible(name)
    if suffix or PurePosixPath(name).name == "DICOMDIR":
        return False
    with archive.open(name) as file:
        return is_dicom(file.read(132))


def _listed(lines: list[str], members: list[str], name: str) -> list[Entry]:
    """Return the images in the order of a table; files may be listed with or without their folders."""
    check_text(lines)
    delimiter = max(SEPARATORS, key=lines[0].count) if lines else ","
    reader = csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    columns = {
        what: next((each for each in reader.fieldnames or () if each.strip().lower() in called), None)
        for what, called in _COLUMNS.items()
    }
    if columns["file"] is None:
        problem = Sentence(_("The table %(name)s has no column “file”."), name=name)
        raise DataError(problem, _("Name the table's columns file, class and holder."))
    paths = dict.fromkeys(members)
    by_name: dict[str, list[str]] = {}
    for member in members:
        by_name.setdefault(PurePosixPath(member).name, []).append(member)
    entries: dict[str, Entry] = {}
    for row in _whole_rows(reader):
        entry = {what: (row[column] or "").strip() if column else "" for what, column in columns.items()}
        candidates = [entry["file"]] if entry["file"] in paths else by_name.get(entry["file"], [])
        if len(candidates) != 1:
            problem = Sentence(
                _("The table names “%(file)s”, but the archive contains %(count)d such images."),
                **{"file": entry["file"], "count": len(candidates)},
            )
            raise DataError(
                problem, _("Give each image's path in the archive, including its folders."), row=reader.line_num
            )
        if candidates[0] in entries:
            problem = Sentence(_("The table names “%(file)s” twice."), file=entry["file"])
            raise DataError(problem, _("Keep one row for each image."), row=reader.line_num)
        label = entry["class"] if columns["class"] else PurePosixPath(candidates[0]).parent.name
        entries[candidates[0]] = Entry(candidates[0], label, entry["holder"])
    return list(entries.values())


def _whole_rows(reader: csv.DictReader[str]) -> Iterator[dict[str, str]]:
    """Yield the rows. Each must have as many cells as the header, because an extra cell may belong to another person.

    Raises:
        DataError: A row has more or fewer cells, or its quotes do not match.
    """
    try:
        for row in reader:
            beyond, expected = row.pop(None, []), len(reader.fieldnames or ())
            count = len(beyond) + sum(value is not None for value in row.values())
            if count != expected:
                text = _("The row has %(count)d values instead of %(expected)d.")
                problem = Sentence(text, count=count, expected=expected)
                raise DataError(problem, _("Check for missing or extra separators."), row=reader.line_num)
            yield row
    except csv.Error as error:
        problem = Sentence(_("The line cannot be read (%(error)s)."), error=error)
        raise DataError(problem, _("Check the line's quotes."), row=reader.line_num) from error
