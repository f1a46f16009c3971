"""Pixels of DICOM files: what the attributes say of them is obeyed, or the file is refused by name."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.dataset import FileMetaDataset

from learning.formats import DataError, ImageSchema, Report, Rows, read_file, schema_draft

FIELD = Path("tests", "field")
GREY, COLOUR = ImageSchema(2, 2, 1, ("a", "b")), ImageSchema(2, 2, 3, ("a", "b"))
RAMP = np.array([[0, 1], [2, 3]])


def dicom(pixels: np.ndarray, kind: str = "MONOCHROME2", bits: int = 12, **more: Any) -> bytes:
    file = pydicom.Dataset()
    file.file_meta = FileMetaDataset()
    file.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    file.file_meta.MediaStorageSOPClassUID = file.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    file.file_meta.MediaStorageSOPInstanceUID = file.SOPInstanceUID = pydicom.uid.UID("1.2.3")
    file.PatientID, file.PhotometricInterpretation = "P-1", kind
    file.Rows, file.Columns, file.SamplesPerPixel = 2, 2, 3 if pixels.ndim == 3 else 1
    if pixels.ndim == 3:
        file.PlanarConfiguration = 0
    size = 8 if bits <= 8 else 16
    file.BitsAllocated, file.BitsStored, file.HighBit, file.PixelRepresentation = size, bits, bits - 1, 0
    file.PixelData = pixels.astype(f"<u{size // 8}").tobytes()
    for name, value in more.items():
        setattr(file, name, value)
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def reading(folder: Path, content: bytes, schema: ImageSchema = GREY, report: Report | None = None) -> Rows:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("a/1.dcm", content)
    return read_file(folder / "a.zip", schema, report=report)


def test_an_image_of_which_table_and_file_name_two_people_belongs_to_neither(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for place, patient in enumerate(("P-1", " P-2", "", "P-4")):
            archive.writestr(f"{place}.dcm", dicom(RAMP, PatientID=patient))
        archive.writestr("table.csv", "file,class,holder\n0.dcm,a,\n1.dcm,a,P-2\n2.dcm,b,P-3\n3.dcm,b,P-5\n")
    report = Report()
    rows = read_file(tmp_path / "a.zip", GREY, report=report)
    assert rows.holders == ["P-1", "P-2", "P-3"]
    assert not report.count and rows.y is not None and rows.y.tolist() == [0, 0, 1]
    part = report.balance.parts["images"]
    left = part.left_out["The table and the DICOM file name different people."]
    assert (part.seen, part.used, left.count, left.places) == (4, 3, 1, [4])
    assert len(read_file(tmp_path / "a.zip", GREY, holders=False)) == 4, "of public images it does not matter"


def test_a_palette_is_read_as_its_colours() -> None:
    rows = read_file(FIELD / "dicom-palette.zip", COLOUR)
    assert rows.x[0].tolist() == [[[255, 255, 255], [0, 0, 0]], [[255, 0, 0], [255, 255, 255]]]
    assert schema_draft(FIELD / "dicom-palette.zip").document["channels"] == 3


def test_a_rescaling_that_is_empty_changes_nothing() -> None:
    rows = read_file(FIELD / "dicom-empty-rescale.zip", GREY)
    assert rows.x[0].tolist() == [[0, 6], [62, 255]]


def test_colours_are_the_same_however_they_are_stored(tmp_path: Path) -> None:
    colours = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [51, 102, 153]]], np.uint8)
    by_plane = np.moveaxis(colours, -1, 0)
    stored = {
        "by pixel": dicom(colours, "RGB", 8),
        "by plane": dicom(colours, "RGB", 8, PlanarConfiguration=1, PixelData=by_plane.tobytes()),
        "16 bits": dicom(colours.astype(np.uint16) * 257, "RGB", 16),
    }
    for name, content in stored.items():
        assert reading(tmp_path, content, COLOUR).x[0].tolist() == colours.tolist(), name
    full = pydicom.pixels.convert_color_space(colours, "RGB", "YBR_FULL")
    found = reading(tmp_path, dicom(full, "YBR_FULL", 8), COLOUR).x[0].astype(int)
    assert np.abs(found - colours.astype(int)).max() <= 2


def test_signs_and_slopes_are_obeyed(tmp_path: Path) -> None:
    signed = dicom(np.array([[0x800, 0xFFF], [0, 0x7FF]]), PixelRepresentation=1)  # -2048, -1, 0, 2047 of 12 bits
    assert reading(tmp_path, signed).x[0].tolist() == [[0, 127], [128, 255]]
    falling = dicom(RAMP * 1365, RescaleSlope=-1, RescaleIntercept=4095)
    assert reading(tmp_path, falling).x[0].tolist() == [[255, 170], [85, 0]]
    assert reading(tmp_path, dicom(RAMP * 1365, "MONOCHROME1")).x[0].tolist() == [[255, 170], [85, 0]]


def test_a_table_of_the_modality_is_obeyed(tmp_path: Path) -> None:
    table = pydicom.Dataset()
    table.LUTDescriptor, table.LUTData, table.ModalityLUTType = (
        [4, 0, 16],
        np.array([65535, 0, 0, 65535], "<u2").tobytes(),
        "US",
    )
    rows = reading(tmp_path, dicom(RAMP, ModalityLUTSequence=[table]))
    assert rows.x[0].tolist() == [[255, 0], [0, 255]]


def test_a_table_of_the_display_gives_way_to_a_declared_window(tmp_path: Path) -> None:
    table = pydicom.Dataset()
    table.LUTDescriptor, table.LUTData = [4, 0, 16], np.array([65535, 0, 0, 65535], "<u2").tobytes()
    content = dicom(RAMP, VOILUTSequence=[table])
    with pytest.raises(DataError, match="VOI LUT"):
        reading(tmp_path, content)
    assert reading(tmp_path, content, ImageSchema(2, 2, 1, ("a", "b"), window=(1.5, 3))).x[0, 1].tolist() == [170, 255]


@pytest.mark.parametrize(
    "more",
    [
        {"PhotometricInterpretation": "CMYK"},
        {"PhotometricInterpretation": "RGB"},
        {"HighBit": 15},
        {"BitsStored": 17},
        {"PresentationLUTShape": "INVERSE"},
        {"RescaleSlope": 0},
    ],
)
def test_what_is_not_handled_is_refused_by_name(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=rf"DICOM files with .*{next(iter(more))}.* are not supported"):
        reading(tmp_path, dicom(RAMP, **more))


def test_every_file_of_an_archive_is_counted(tmp_path: Path) -> None:
    path, report = tmp_path / "a.zip", Report()
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("1.dcm", "2.dcm", "3.dcm"):
            archive.writestr(name, dicom(RAMP))
        archive.writestr("readme.txt", "hello")
        archive.writestr("table.csv", "file,class\n1.dcm,a\n2.dcm,b\n")
    assert len(read_file(path, GREY, report=report)) == 2
    counts = report.balance.parts["images"]
    assert (counts.seen, counts.used, counts.refused) == (4, 2, 0)
    reasons = {reason: each.count for reason, each in counts.left_out.items()}
    assert reasons == {"The table does not list this image.": 1, "It is not an image.": 1}


def test_a_table_gives_an_image_to_one_person(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("1.dcm", dicom(RAMP))
        archive.writestr("table.csv", "file,class,holder\n1.dcm,a,ada\n1.dcm,a,ben\n")
    with pytest.raises(DataError, match=r"names “1\.dcm” twice"):
        read_file(tmp_path / "a.zip", GREY)
