"""Images: as files in a zip archive, and as arrays in idx, npz and mat."""

import gzip
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.dataset import FileMetaDataset
from scipy.io import savemat

from learning.formats import (
    DataError,
    ImageSchema,
    Report,
    Rows,
    TabularSchema,
    read_file,
    schema_draft,
    schema_from_json,
)
from learning.formats.columns import NumericColumn
from learning.formats.rows import as_numbers
from tests.reading import zipped

GREY = ImageSchema(4, 4, 1, ("cats", "dogs"))
COLOUR = ImageSchema(4, 4, 3, ("cats", "dogs"))


def picture(shape=(4, 4), value=128, kind="PNG", dtype=np.uint8):
    buffer = io.BytesIO()
    Image.fromarray(np.full(shape, value, dtype)).save(buffer, kind)
    return buffer.getvalue()


def archive(folder, members, name="images.zip"):
    path = folder / name
    path.write_bytes(zipped(members))
    return path


BROKEN = {"a.png": b"GIF89a" + bytes(20), "a.dcm": bytes(128) + b"DICM" + bytes(20)}


def test_folders_are_classes_and_every_kind_is_read(tmp_path):
    members = {"set/cats/a.png": picture(value=0), "set/cats/b.JPG": picture(value=255, kind="JPEG")}
    members["set/dogs/c.tif"] = picture(value=65535, kind="TIFF", dtype=np.uint16)
    members |= {"set/dogs/d.bmp": picture(value=51, kind="BMP"), "set/dogs/e": dicom(np.full((4, 4), 4095))}
    others = dict.fromkeys(("set/.DS_Store", "__MACOSX/set/cats/._a.png", "readme.txt"), b"x")
    rows = read_file(archive(tmp_path, members | others), GREY, holders=False)
    assert rows.x.dtype == np.uint8
    assert [int(image.max()) for image in rows.x] == [0, 255, 255, 51, 255]
    assert rows.y.tolist() == [0, 0, 1, 1, 1]


def test_colours_and_sizes_are_brought_to_those_declared(tmp_path):
    red = np.zeros((2, 4, 3), np.uint8)
    red[..., 0] = 200
    buffer = io.BytesIO()
    Image.fromarray(red).save(buffer, "PNG")
    path = archive(tmp_path, {"cats/a.png": buffer.getvalue(), "dogs/b.png": picture((8, 8), 90)})
    padded = read_file(path, COLOUR, holders=False).x
    assert padded[0, 1:3, :, 0].min() == 200 and padded[0, [0, 3]].max() == 0
    assert padded[1].tolist() == np.full((4, 4, 3), 90).tolist()
    for fit in ("crop", "stretch"):
        filled = read_file(path, ImageSchema(4, 4, 3, COLOUR.classes, fit), holders=False).x
        assert filled[0, ..., 0].min() == 200, fit
    assert read_file(path, GREY, holders=False).x[0].max() == round(200 * 299 / 1000)  # ITU-R 601


def test_photographs_are_turned_by_orientation_and_transparency_is_black(tmp_path):
    pixels = np.zeros((2, 4), np.uint8)
    pixels[:, 0] = 255
    turned = Image.fromarray(pixels)
    exif = turned.getexif()
    exif[0x0112] = 6  # a quarter turn clockwise
    buffers = io.BytesIO(), io.BytesIO()
    turned.save(buffers[0], "PNG", exif=exif)
    Image.new("LA", (4, 4), (255, 0)).save(buffers[1], "PNG")
    path = archive(tmp_path, {"cats/a.png": buffers[0].getvalue(), "cats/b.png": buffers[1].getvalue()})
    x = read_file(path, ImageSchema(4, 2, 1, GREY.classes, "stretch"), holders=False).x
    assert x[0].tolist() == [[255, 255], [0, 0], [0, 0], [0, 0]]
    assert x[1].max() == 0


def test_dicom_values_are_rescaled_and_seen_through_the_declared_window(tmp_path):
    hounsfield = np.array([[-1024, -160, 40, 240]] * 4)
    inverted = dicom((hounsfield + 1024) * 2, "MONOCHROME1", RescaleSlope=0.5, RescaleIntercept=-1024)
    plain = dicom(hounsfield + 1024, RescaleIntercept=-1024, RescaleSlope=1)
    path = archive(tmp_path, {"cats/a.dcm": plain, "cats/b.dcm": inverted})
    rows = read_file(path, ImageSchema(4, 4, 1, GREY.classes, window=(40, 400)))
    assert rows.x[0, 0].tolist() == [0, 0, 128, 255]
    assert rows.x[1, 0].tolist() == [255, 255, 127, 0]
    assert rows.holders == ["P-1", "P-1"]
    plain = read_file(path, GREY).x
    assert plain[0, 0].tolist() == np.round((hounsfield[0] + 1024) / 4095 * 255).tolist()


@pytest.mark.parametrize("beside", [False, True])
def test_a_table_says_class_and_holder(tmp_path, beside):
    table = "File;Class;Patient\nscans/b.png;dogs;ben\na.png;cats;ada\n"
    members = {"scans/a.png": picture(value=1), "scans/b.png": picture(value=2), "scans/c.png": picture(value=3)}
    labels = tmp_path / "labels.csv"
    labels.write_text(table)
    path = archive(tmp_path, members if beside else members | {"labels.csv": table})
    rows = read_file(path, GREY, label_file=labels if beside else None)
    assert (rows.x[:, 0, 0].tolist(), rows.y.tolist(), rows.holders) == ([2, 1], [1, 0], ["ben", "ada"])


def test_a_draft_says_size_colours_classes_and_window(tmp_path):
    draft = schema_draft(archive(tmp_path, {"cats/a.png": picture((9, 5)), "dogs/b.png": picture((9, 5, 3))}))
    assert draft.document == {"kind": "image", "height": 9, "width": 5, "channels": 3, "classes": ["cats", "dogs"]}
    mixed = {"cats/a.png": picture((9, 5)), "dogs/b.dcm": dicom(np.zeros((4, 4)), WindowCenter=40, WindowWidth=400)}
    draft = schema_draft(archive(tmp_path, mixed))
    assert (draft.document["height"], draft.document["channels"], draft.document["window"]) == (128, 1, [40, 400])
    assert "differ in size" in draft.remarks[0]
    assert schema_from_json(draft.document).window == (40, 400)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"cats/a.png": picture()[:30], "dogs/b.png": picture()}, "row 1, column cats/a.png: The image cannot be read"),
        ({"birds/a.png": picture()}, "column birds/a.png: “birds” is not a class. Use one of: cats, dogs"),
        *(({f"cats/{name}": content}, "cannot be read") for name, content in BROKEN.items()),
        ({"cats/a.png": picture(), "t.csv": "name,class\na.png,cats\n"}, "t.csv has no column “file”"),
        ({"cats/a.png": picture(), "t.csv": "file,class\nz.png,cats\n"}, "names “z.png”, but the archive contains 0"),
        ({"cats/a.png": picture(), "t.csv": "file\n", "u.csv": "file\n"}, "several tables: t.csv, u.csv"),
        ({"cats/a.png": picture(), "t.csv": "file,class\n"}, "contains no images"),
    ],
)
def test_the_error_of_an_archive_is_one_line(tmp_path, members, message):
    with pytest.raises(DataError) as error:
        read_file(archive(tmp_path, members), GREY, holders=False)
    assert message in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(DataError, match="Add a table with the columns file and holder"):
        read_file(archive(tmp_path, {"cats/a.png": picture()}), GREY)


def test_an_image_that_unfolds_is_refused(tmp_path):
    huge = io.BytesIO()
    Image.new("1", (13_500, 13_500)).save(huge, "PNG")
    with pytest.raises(DataError, match="cannot be read"):
        read_file(archive(tmp_path, {"cats/a.png": huge.getvalue()}), GREY, holders=False)


DIGITS = tuple("0123456789")
PIXELS = np.arange(24).reshape(4, 2, 3) * 11
SMALL = ImageSchema(2, 3, 1, DIGITS)
HOUSES = ImageSchema(4, 4, 3, DIGITS)
TABLE = TabularSchema((NumericColumn("a", 0, 1), NumericColumn("b", 0, 1)), ("no", "yes"))


def _idx(path, values, *, lengths=None, kind=8):
    lengths = values.shape if lengths is None else lengths
    header = struct.pack(f">BBBB{len(lengths)}I", 0, 0, kind, len(lengths), *lengths)
    path.write_bytes(header + values.astype(np.uint8).tobytes())
    return path


def test_idx_images_and_labels(tmp_path):
    images, labels = _idx(tmp_path / "images", PIXELS), _idx(tmp_path / "labels", np.array([3, 0, 9, 1]))
    rows = read_file(images, SMALL, label_file=labels, holders=False)
    assert rows.x.dtype == np.uint8 and (rows.x == PIXELS).all()
    np.testing.assert_allclose(as_numbers(rows.x), PIXELS / 255, rtol=1e-6)
    assert rows.y.tolist() == [3, 0, 9, 1] and rows.holders is None
    gzipped = tmp_path / "images.gz"
    gzipped.write_bytes(gzip.compress(images.read_bytes()))
    assert (read_file(gzipped, SMALL, labels=False, holders=False).x == rows.x).all()
    assert list(rows.one_holder_per_row("image").holders or ()) == ["image-1", "image-2", "image-3", "image-4"]


def test_wrong_idx_files_are_refused(tmp_path):
    images = _idx(tmp_path / "images", PIXELS)
    for path, labels, problem in [
        (_idx(tmp_path / "kind", PIXELS, kind=9), None, "starts with 00000903 instead of 00000803"),
        (_idx(tmp_path / "long", PIXELS, lengths=(3, 2, 3)), None, "should contain 18 values, but contains > 18"),
        (_idx(tmp_path / "turned", PIXELS.reshape(4, 3, 2)), None, "have the size 3 × 2"),
        (images, _idx(tmp_path / "fewer", np.array([1, 2, 3])), "3 labels for 4 images"),
        (images, _idx(tmp_path / "eleven", np.array([1, 2, 3, 10])), "row 4: The label 10 is not a class"),
        (tmp_path / "nowhere", None, "cannot be opened"),
    ]:
        with pytest.raises(DataError) as error:
            read_file(path, SMALL, label_file=labels, labels=labels is not None, holders=False)
        assert problem in str(error.value) and error.value.remedy
        assert str(error.value).startswith(str(labels or path))


def test_npz_with_holders(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, x=PIXELS.astype(np.uint8), y=np.array([0, 1, 2, 3]), holder=np.array(["a", "a", "b", "c"]))
    rows = read_file(path, SMALL)
    assert rows.x.dtype == np.uint8 and (rows.x == PIXELS).all()
    assert (rows.y.tolist(), rows.holders) == ([0, 1, 2, 3], ["a", "a", "b", "c"])
    public = read_file(path, SMALL, labels=False, holders=False)
    assert (public.y, public.holders) == (None, None)


def test_house_numbers_as_svhn_publishes_them(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (4, 4, 3, 5), dtype=np.uint8)
    path = tmp_path / "train_32x32.mat"
    savemat(path, {"X": images, "y": np.array([[1], [10], [9], [2], [10]], np.uint8)})
    rows = read_file(path, HOUSES, holders=False)
    assert (rows.x[3] == images[..., 3]).all()
    assert rows.y.tolist() == [1, 0, 9, 2, 0]
    savemat(path, {"X": images})
    assert read_file(path, HOUSES, labels=False, holders=False).y is None
    with pytest.raises(DataError, match="column y: The array is missing"):
        read_file(path, HOUSES, holders=False)


def test_the_content_of_a_file_decides_its_format(tmp_path):
    images = _idx(tmp_path / "images", PIXELS)
    (tmp_path / "t.csv").write_text("a,b\n1,0\n")
    assert read_file(tmp_path / "t.csv", TABLE, labels=False, holders=False).x.tolist() == [[1, 0]]
    for path, schema, options, problem in [
        (images, SMALL, {"labels": False}, "This format cannot store which person a record belongs"),
        (images, SMALL, {"holders": False}, "contains no labels"),
        (images, TABLE, {}, "the schema declares a table"),
        (tmp_path / "t.csv", SMALL, {"holders": False}, "The file is not a zip file of images,"),
    ]:
        with pytest.raises(DataError, match=problem):
            read_file(path, schema, **options)


FIELD = Path("tests", "field")
SMALL_GREY, SMALL_COLOUR = ImageSchema(2, 2, 1, ("a", "b")), ImageSchema(2, 2, 3, ("a", "b"))
RAMP = np.array([[0, 1], [2, 3]])


def dicom(pixels: np.ndarray, kind: str = "MONOCHROME2", bits: int = 12, **more: Any) -> bytes:
    file = pydicom.Dataset()
    file.file_meta = FileMetaDataset()
    file.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    file.file_meta.MediaStorageSOPClassUID = file.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    file.file_meta.MediaStorageSOPInstanceUID = file.SOPInstanceUID = pydicom.uid.UID("1.2.3")
    file.PatientID, file.PhotometricInterpretation = "P-1", kind
    (file.Rows, file.Columns), file.SamplesPerPixel = pixels.shape[:2], 3 if pixels.ndim == 3 else 1
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


def reading(folder: Path, content: bytes, schema: ImageSchema = SMALL_GREY, report: Report | None = None) -> Rows:
    return read_file(archive(folder, {"a/1.dcm": content}), schema, report=report)


def test_an_image_of_which_table_and_file_name_two_people_belongs_to_neither(tmp_path: Path) -> None:
    names = ("P-1", " P-2", "", "P-4")
    files = {f"{place}.dcm": dicom(RAMP, PatientID=patient) for place, patient in enumerate(names)}
    files["table.csv"] = "file,class,holder\n0.dcm,a,\n1.dcm,a,P-2\n2.dcm,b,P-3\n3.dcm,b,P-5\n"
    report = Report()
    rows = read_file(archive(tmp_path, files), SMALL_GREY, report=report)
    assert rows.holders == ["P-1", "P-2", "P-3"]
    assert not report.count and rows.y is not None and rows.y.tolist() == [0, 0, 1]
    part = report.balance.parts["images"]
    left = part.left_out["The table and the DICOM file name different people."]
    assert (part.seen, part.used, left.count, left.places) == (4, 3, 1, [4])
    assert len(read_file(tmp_path / "images.zip", SMALL_GREY, holders=False)) == 4, "irrelevant for public images"


def test_a_palette_is_read_as_its_colours() -> None:
    rows = read_file(FIELD / "dicom-palette.zip", SMALL_COLOUR)
    assert rows.x[0].tolist() == [[[255, 255, 255], [0, 0, 0]], [[255, 0, 0], [255, 255, 255]]]
    assert schema_draft(FIELD / "dicom-palette.zip").document["channels"] == 3


def test_a_rescaling_that_is_empty_changes_nothing() -> None:
    rows = read_file(FIELD / "dicom-empty-rescale.zip", SMALL_GREY)
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
        assert reading(tmp_path, content, SMALL_COLOUR).x[0].tolist() == colours.tolist(), name
    full = pydicom.pixels.convert_color_space(colours, "RGB", "YBR_FULL")
    found = reading(tmp_path, dicom(full, "YBR_FULL", 8), SMALL_COLOUR).x[0].astype(int)
    assert np.abs(found - colours.astype(int)).max() <= 2


def test_signs_and_slopes_are_obeyed(tmp_path: Path) -> None:
    signed = dicom(np.array([[0x800, 0xFFF], [0, 0x7FF]]), PixelRepresentation=1)  # -2048, -1, 0, 2047 in 12 bits
    assert reading(tmp_path, signed).x[0].tolist() == [[0, 127], [128, 255]]
    falling = dicom(RAMP * 1365, RescaleSlope=-1, RescaleIntercept=4095)
    assert reading(tmp_path, falling).x[0].tolist() == [[255, 170], [85, 0]]
    assert reading(tmp_path, dicom(RAMP * 1365, "MONOCHROME1")).x[0].tolist() == [[255, 170], [85, 0]]


def test_a_table_of_the_modality_is_obeyed(tmp_path: Path) -> None:
    table = pydicom.Dataset()
    data = np.array([65535, 0, 0, 65535], "<u2").tobytes()
    table.LUTDescriptor, table.LUTData, table.ModalityLUTType = [4, 0, 16], data, "US"
    rows = reading(tmp_path, dicom(RAMP, ModalityLUTSequence=[table]))
    assert rows.x[0].tolist() == [[255, 0], [0, 255]]


def test_a_declared_window_overrides_the_files_display_table(tmp_path: Path) -> None:
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
    files, report = dict.fromkeys(("1.dcm", "2.dcm", "3.dcm"), dicom(RAMP)), Report()
    files |= {"readme.txt": "hello", "table.csv": "file,class\n1.dcm,a\n2.dcm,b\n"}
    assert len(read_file(archive(tmp_path, files), SMALL_GREY, report=report)) == 2
    counts = report.balance.parts["images"]
    assert (counts.seen, counts.used, counts.refused) == (4, 2, 0)
    reasons = {reason: each.count for reason, each in counts.left_out.items()}
    assert reasons == {"The table does not list this image.": 1, "It is not an image.": 1}


def test_a_table_gives_an_image_to_one_person(tmp_path: Path) -> None:
    files = {"1.dcm": dicom(RAMP), "table.csv": "file,class,holder\n1.dcm,a,ada\n1.dcm,a,ben\n"}
    with pytest.raises(DataError, match=r"names “1\.dcm” twice"):
        read_file(archive(tmp_path, files), SMALL_GREY)
