"""Images of DICOM files, by what their attributes say of the pixels; what is not handled is refused by name."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.columns import shown
from learning.formats.rows import DataError

FRAMES = _("The image has %(count)d frames.")
EACH_FRAME = _("Save each frame as a separate file.")
_GREY = ("MONOCHROME1", "MONOCHROME2")
_PALETTE = "PALETTE COLOR"
#: Read as RGB; of those that begin with YBR, pydicom makes RGB.
_COLOURS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
_BITS = (1, 8, 16, 32)
_OTHERWISE = _("Save it as PNG, or leave it out.")


def is_dicom(start: bytes) -> bool:
    """Whether a file begins like DICOM; the first 132 bytes are enough."""
    return start[128:132] == b"DICM"


def dicom_image(content: bytes, window: tuple[float, float] | None) -> tuple[Image.Image, str]:
    """Image and Patient ID of a DICOM file; grey values after the modality's rescaling, seen through a window.

    Args:
        content: Of the file.
        window: Centre and width; without it, all values that the file could hold are seen.

    Raises:
        DataError: its pixels are of a kind that is not handled, or contradict each other.
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


def dicom_look(content: bytes) -> tuple[int, int, bool, tuple[float, float] | None]:
    """Height, width, whether a DICOM file has colours, and the window that it asks for."""
    import pydicom

    file = pydicom.dcmread(io.BytesIO(content), stop_before_pixels=True)
    centre, width = _first(_value(file, "WindowCenter", None)), _first(_value(file, "WindowWidth", None))
    window = (centre, width) if centre is not None and width else None
    has_colours = int(file.SamplesPerPixel) > 1 or _value(file, "PhotometricInterpretation", "") == _PALETTE
    return int(file.Rows), int(file.Columns), has_colours, window


def windowed(values: npt.NDArray[np.float64], window: tuple[float, float]) -> npt.NDArray[np.uint8]:
    """Values as bytes: 0 at the lower end of a window of this centre and width, 255 at its upper end."""
    centre, width = window
    return np.round(((values - centre) / width + 0.5).clip(0, 1) * 255).astype(np.uint8)


def _check(file: Any) -> None:
    """Refuse what the attributes say of the pixels and no branch handles."""
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
    """What a scanner measured, and the least and greatest value that it could have written."""
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
    """Colours of so many bits as bytes."""
    return colours if bits == 8 else np.round(colours * (255 / (2.0**bits - 1))).astype(np.uint8)


def _value(file: Any, name: str, otherwise: Any) -> Any:
    """The value of an attribute; one that is empty is as good as missing."""
    value = getattr(file, name, None)
    return otherwise if value is None or value == "" else value


def _not_handled(attribute: str, value: str) -> DataError:
    text = _("DICOM files with %(attribute)s “%(value)s” are not supported.")
    return DataError(Sentence(text, attribute=attribute, value=shown(value)), _OTHERWISE)


def _first(value: object) -> float | None:
    if isinstance(value, Iterable) and not isinstance(value, str):
        value = next(iter(value), None)
    return None if value is None else float(value)  # type: ignore[arg-type]
