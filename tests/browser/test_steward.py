"""A data steward imports data of every kind, invites people and records decisions, without the command line."""

from pathlib import Path
from typing import Any

import pytest

from consent.models import Invitation, Study
from tests.browser.conftest import Site
from tests.factories import steward_add, study_open
from tests.reading import read_here  # noqa: F401
from training.models import Dataset, DatasetImport
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
    site.says("Contents of the file")
    return DatasetImport.objects.get(name=name)


def declare(site: Site, classes: str, values: dict[int, str] | None = None) -> None:
    """Type what is drafted of no private rows: the range of ages, which come second, classes, values by place."""
    if values is not None:
        site.page.get_by_label("Smallest", exact=True).nth(1).fill("0")
        site.page.get_by_label("Largest", exact=True).nth(1).fill("100")
    for place, lines in (values or {}).items():
        site.page.locator(f"[name=columns-{place}-values]").fill(lines)
    if classes:
        site.page.locator("#id_classes").fill(classes)


def check(site: Site, begun: DatasetImport, message: str) -> None:
    """Have the file checked; the page asks by itself for what comes of it."""
    site.page.get_by_label("Ranges, values and classes come from elsewhere,").check()
    site.press("Check the file")
    site.says("Checking the file")
    import_work(str(begun.pk))
    site.says(message)


def store(site: Site, begun: DatasetImport) -> Dataset:
    site.page.get_by_role("main").get_by_role("button", name="Import").first.click()
    site.says("Importing the file")
    import_work(str(begun.pk))
    site.says("imported.")
    return Dataset.objects.get(name=begun.name)


def test_a_steward_imports_and_invites_in_the_browser(sven: Site, study: Study, tmp_path: Path) -> None:
    begun = upload(sven, "patients", TEXT, tmp_path)
    sven.says("only names and kinds of columns are drafted")
    sven.is_in_order()
    declare(sven, "no\nyes", {2: "f\nm"})
    check(sven, begun, "2 rows were checked and have no errors.")
    sven.is_in_order()
    assert store(sven, begun).holders == 2
    sven.press("Invite the data holders")
    sven.says("2 people are not invited yet")
    sven.press("Invite everyone who is not invited yet", "Invite 2 people")
    sven.says("2 invitations were created.")
    sven.is_in_order()
    name, path = sven.saved("Save as CSV")
    assert name == "invitations-ward.csv" and path.read_text().startswith("pseudonym,code,link\n")
    assert set(Invitation.objects.values_list("holder__pseudonym", flat=True)) == {"ada", "ben"}
