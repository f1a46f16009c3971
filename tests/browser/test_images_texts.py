"""A data steward imports images and texts, and registers and withdraws an encoder, without the command line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from consent.models import Study
from tests.browser.conftest import Site
from tests.factories import steward_add, study_open
from tests.learning.encoders.networks import image_encoder
from tests.learning.formats.test_image_files import archive, dicom, picture
from training.models import Dataset, DatasetImport, Encoder
from training.services.encodings import encoding_work
from training.services.imports import import_work

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def study() -> Study:
    return steward_add(study_open("ward"))


def imported(site: Site, path: Path, rows: int) -> Dataset:
    """Upload a file, accept what is drafted of it, check it and import it."""
    site.open("/studies/ward/datasets/")
    site.press("Import a dataset")
    site.page.get_by_label("File", exact=True).set_input_files(path)
    site.page.get_by_label("Name", exact=True).fill(path.stem)
    site.press("Upload")
    site.says("What the file holds")
    site.is_in_order()
    begun = DatasetImport.objects.get(name=path.stem)
    site.page.get_by_label("known from elsewhere").check()
    site.press("Check the file")
    import_work(str(begun.pk))
    site.says(f"{rows} rows were checked, and none has an error.")
    site.is_in_order()
    site.press(f"Import {rows} rows")
    import_work(str(begun.pk))
    site.says(f"{rows} rows are imported.")
    return Dataset.objects.get(name=path.stem)


def test_photographs_are_imported_and_encoded(visit: Callable[..., Site], study: Study, tmp_path: Path) -> None:
    red = np.zeros((6, 9, 3), np.uint8)
    red[..., 0] = 200
    path = archive(
        tmp_path,
        {
            "cats/a.png": picture((8, 8, 3)),
            "cats/b.jpg": picture((20, 12, 3), kind="JPEG"),
            "dogs/c.tif": picture((5, 7), kind="TIFF"),
            "dogs/d.dcm": dicom(np.full((6, 6), 1000), patient="dora", window=(1000, 400)),
            "holders.csv": b"file,holder\na.png,ada\nb.jpg,ben\nc.tif,cem\nd.dcm,dora\n",
        },
        "photographs.zip",
    )
    site = visit("phone")
    site.sign_in("sven")
    dataset = imported(site, path, 4)
    assert dataset.schema["classes"] == ["cats", "dogs"] and dataset.schema["channels"] == 3 and dataset.holders == 4
    site.open("/studies/ward/datasets/")
    site.press("Encoders")
    site.says("No encoder yet")
    site.is_in_order()
    onnx = tmp_path / "small.onnx"
    onnx.write_bytes(image_encoder().content)
    site.page.get_by_label("ONNX file").set_input_files(onnx)
    for field, text in (
        ("name", "small"),
        ("size", "12"),
        ("mean", "0.5 0.5 0.5"),
        ("spread", "0.25 0.25 0.25"),
        ("licence", "MIT"),
        ("source", "Made by a test."),
    ):
        site.page.locator(f"#id_{field}").fill(text)
    site.page.get_by_label("I state").check()
    site.page.get_by_role("main").get_by_role("button", name="Register", exact=True).click()
    site.says("photographs: being encoded")
    for encoding in Encoder.objects.get().encodings.all():
        encoding_work(encoding.pk)
    site.open("/studies/ward/datasets/encoders/")
    site.says("photographs: encoded")
    site.is_in_order()
    site.press("Withdraw this encoder")
    site.says("its file and its vectors are deleted")
    site.is_in_order()
    site.page.get_by_label("Reason").fill("It was the wrong file.")
    site.press("Yes, withdraw it")
    site.says("This encoder was withdrawn on")
    site.is_in_order()


def test_messages_are_imported(visit: Callable[..., Site], study: Study, tmp_path: Path) -> None:
    path = tmp_path / "messages.csv"
    said = ["Win a free prize now, call us today", "See you at home after the meeting, love", "Größe passt, bis morgen"]
    lines = [f'p{number},"{said[number % 3]} {number}",{"ny"[number % 2]}' for number in range(60)]
    path.write_text("\n".join(["who,message,spam", *lines]), "utf-8")
    site = visit("phone")
    site.sign_in("sven")
    dataset = imported(site, path, 60)
    [column] = [each for each in dataset.schema["columns"] if each["role"] == "text"]
    assert column["name"] == "message" and dataset.holders == 60
