"""A data steward imports data of every kind, invites people and records decisions, without the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.utils import timezone

from consent.models import ConsentEvent, Invitation, Study
from consent.services import consent_give
from tests.browser.conftest import Site
from tests.factories import holder_create, steward_add, study_open
from tests.learning.encoders.networks import image_encoder
from tests.learning.formats.test_image_files import archive, dicom, picture
from tests.reading import read_here  # noqa: F401
from training.models import Dataset, DatasetImport, Encoder
from training.services.encoders import encoding_work
from training.services.imports import import_work

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("read_here")]

TEXT = "who,age,sex,back\nada,50,f,no\nben,25,m,yes\n"


@pytest.fixture
def study() -> Study:
    return steward_add(study_open("ward"))


@pytest.fixture
def sven(visit: Any, study: Study) -> Site:
    """The steward's phone."""
    return visit("phone", person="sven")


def upload(site: Site, name: str, content: str | bytes, folder: Path, file: str = "patients.csv") -> DatasetImport:
    path = folder / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    site.open("/studies/ward/datasets/")
    site.press("Import a dataset")
    site.page.get_by_label("File", exact=True).set_input_files(path)
    site.page.get_by_label("Name", exact=True).fill(name)
    site.page.get_by_label("Schema", exact=True).select_option("draft")
    site.press("Upload")
    site.says("What the file holds")
    return DatasetImport.objects.get(name=name)


def declare(site: Site, classes: str, values: dict[int, str] | None = None) -> None:
    """Type what is drafted of no private rows: the range of ages, which come second, classes, values by place."""
    if values is not None:
        site.page.get_by_label("Smallest", exact=True).nth(1).fill("0")
        site.page.get_by_label("Largest", exact=True).nth(1).fill("100")
    for place, lines in (values or {}).items():
        site.page.get_by_label("Values, one a line").nth(place).fill(lines)
    if classes:
        site.page.locator("#id_classes").fill(classes)


def check(site: Site, begun: DatasetImport, message: str) -> None:
    """Have the file checked; the page asks by itself for what comes of it."""
    site.page.get_by_label("known from elsewhere").check()
    site.press("Check the file")
    site.says("The file is being checked")
    import_work(str(begun.pk))
    site.says(message)


def store(site: Site, begun: DatasetImport) -> Dataset:
    site.page.get_by_role("main").get_by_role("button", name="Import").first.click()
    site.says("The file is being imported")
    import_work(str(begun.pk))
    site.says("imported.")
    return Dataset.objects.get(name=begun.name)


def test_a_steward_imports_and_invites_in_the_browser(sven: Site, study: Study, tmp_path: Path) -> None:
    begun = upload(sven, "patients", TEXT, tmp_path)
    sven.says("only names and kinds of columns are drafted")
    sven.is_in_order()
    declare(sven, "no\nyes", {2: "f\nm"})
    check(sven, begun, "2 rows were checked, and none has an error.")
    sven.is_in_order()
    assert store(sven, begun).holders == 2
    sven.press("Invite its holders")
    sven.says("2 people are not invited yet")
    sven.press("Invite everyone not yet invited", "Invite 2 people")
    sven.says("2 invitations are made.")
    sven.is_in_order()
    name, path = sven.saved("Save as CSV")
    assert name == "invitations-ward.csv" and path.read_text().startswith("pseudonym,code,link\n")
    assert set(Invitation.objects.values_list("holder__pseudonym", flat=True)) == {"ada", "ben"}


@pytest.mark.exhaustive
def test_a_time_with_its_event_is_declared_in_fields(sven: Site, study: Study, tmp_path: Path) -> None:
    page = sven.page
    rows = "ada,50,2026-01-01,2026-03-03,dead\nben,25,2026-01-01,2026-07-20,alive\n"
    begun = upload(sven, "patients", f"who,age,came,seen,state\n{rows}", tmp_path)
    for place, use in ((2, "ignore"), (3, "time"), (4, "event")):
        page.get_by_label("What it is").nth(place).select_option(use)
    page.get_by_label("Counted", exact=True).nth(3).select_option("since")
    page.get_by_label("Date, or a column of dates").nth(3).fill("came")
    page.get_by_label("In", exact=True).nth(3).select_option("days")
    page.get_by_label("Other spellings, one a line").nth(4).fill("dead = 1\nalive = 0")
    assert page.locator("#id_classes").is_visible() and not page.locator("#id_ends").is_visible()
    page.get_by_label("What is to be learned").select_option("times")
    assert page.locator("#id_ends").is_visible() and not page.locator("#id_classes").is_visible()
    page.locator("#id_ends").fill("30\n90\n365")
    page.locator("#id_unit").fill("days")
    declare(sven, "", {})
    sven.is_in_order()
    check(sven, begun, "2 rows were checked, and none has an error.")
    sven.says("61 days")


@pytest.mark.exhaustive
def test_many_columns_fit_on_a_page(sven: Site, study: Study, tmp_path: Path) -> None:
    ten = "who,age,sex,bmi,pulse,height,weight,code,smokes,back\n" + "ada,50,f,20.5,60,1.8,70,I50,y,no\n" * 20
    upload(sven, "few", ten, tmp_path)
    for size, most in (("desktop", 2700), ("phone", 3500)):
        sven.resize(size)
        assert sven.page.locator("html").evaluate("html => html.scrollHeight") < most
    names = [f"lab_{number}" for number in range(118)]
    lines = [["who", *names, "back"], *([f"p{n}", *["0.5"] * 118, "ny"[n % 2]] for n in range(9))]
    upload(sven, "many", "\n".join(",".join(line) for line in lines), tmp_path)
    sven.is_in_order()
    sven.press("Keep these columns, and go on")
    sven.page.get_by_text("51–100").wait_for()
    sven.press("Many columns at once")
    sven.says("Columns that are now")
    sven.is_in_order()


@pytest.mark.exhaustive
def test_photographs_are_imported_and_encoded(sven: Site, study: Study, tmp_path: Path) -> None:
    path = archive(
        tmp_path,
        {
            "cats/a.png": picture((8, 8, 3)),
            "cats/b.jpg": picture((20, 12, 3), kind="JPEG"),
            "dogs/c.tif": picture((5, 7), kind="TIFF"),
            "dogs/d.dcm": dicom(np.full((6, 6), 1000), patient="dora", window=(1000, 400)),
            "holders.csv": b"file,holder\na.png,ada\nb.jpg,ben\nc.tif,cem\nd.dcm,dora\n",
        },
        "made.zip",
    )
    begun = upload(sven, "photographs", path.read_bytes(), tmp_path, "photographs.zip")
    sven.is_in_order()
    declare(sven, "cats\ndogs")
    check(sven, begun, "4 rows were checked, and none has an error.")
    dataset = store(sven, begun)
    assert dataset.schema["classes"] == ["cats", "dogs"] and dataset.schema["channels"] == 3 and dataset.holders == 4
    sven.open("/studies/ward/datasets/")
    sven.press("Encoders")
    sven.says("No encoder yet")
    sven.is_in_order()
    onnx = tmp_path / "small.onnx"
    onnx.write_bytes(image_encoder().content)
    sven.page.get_by_label("ONNX file").set_input_files(onnx)
    values = {"name": "small", "size": "12", "mean": "0.5 0.5 0.5", "spread": "0.25 0.25 0.25"}
    for field, text in {**values, "licence": "MIT", "source": "Made by a test."}.items():
        sven.page.locator(f"#id_{field}").fill(text)
    sven.page.get_by_label("I state").check()
    sven.page.get_by_role("main").get_by_role("button", name="Register", exact=True).click()
    sven.says("photographs: being encoded")
    for encoding in Encoder.objects.get().encodings.all():
        encoding_work(encoding.pk)
    sven.open("/studies/ward/datasets/encoders/")
    sven.says("photographs: encoded")
    sven.is_in_order()
    sven.press("Withdraw this encoder")
    sven.says("its file and its vectors are deleted")
    sven.page.get_by_label("Reason").fill("It was the wrong file.")
    sven.press("Yes, withdraw it")
    sven.says("This encoder was withdrawn on")
    sven.is_in_order()


@pytest.mark.exhaustive
def test_decisions_on_paper_are_recorded_with_their_scans_and_recruitment_is_drawn(sven: Site, study: Study) -> None:
    for pseudonym in ("P-1", "P-2"):
        holder = holder_create(study, pseudonym)
    consent_give(holder=holder, level="HIGH", form=study.consent_forms.get(), acting_user=None)
    scan = {"name": "a.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7"}
    today = timezone.now().date().isoformat()
    rows = f"pseudonym,level,form_version,signed_on,evidence\nP-1,LOW,1,{today},{{}}\n"
    sven.open("/studies/ward/recruitment/")
    sven.page.locator("canvas[data-chart=levels]").wait_for()
    points = "Chart.getChart(document.querySelector('canvas')).data.datasets.map((set) => set.data.at(-1))"
    assert sven.page.evaluate(points) == [1, 0, 0]
    sven.page.get_by_text("The numbers").click()
    sven.is_in_order()
    sven.press("Record a decision on paper", "Record a list")
    for name, message in (("b.pdf", "Row 2: the scan “b.pdf” is missing"), ("a.pdf", "1 decision can be recorded.")):
        content = {"name": "list.csv", "mimeType": "text/csv", "buffer": rows.format(name).encode()}
        sven.page.locator("[name=list]").set_input_files(content)
        sven.page.locator("[name=scans]").set_input_files(scan)
        sven.press("Try it")
        sven.says(message)
        sven.is_in_order()
    sven.press("Record them")  # of the same files: trying keeps them
    sven.says("1 decision is recorded.")
    assert ConsentEvent.objects.get(channel="paper").level == "LOW"
