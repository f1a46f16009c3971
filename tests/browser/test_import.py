"""A data steward imports a dataset and invites its holders, without the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from consent.models import Invitation, Study
from tests.browser.conftest import Site, each_size
from tests.factories import steward_add, study_open
from training.models import Dataset, DatasetImport
from training.services.imports import import_work

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TEXT = "who,age,sex,back\nada,50,f,no\nben,25,m,yes\n"


@pytest.fixture
def study() -> Study:
    return steward_add(study_open("ward"))


def upload(site: Site, name: str, text: str, folder: Path) -> DatasetImport:
    path = folder / "patients.csv"
    path.write_text(text)
    site.open("/studies/ward/datasets/")
    site.press("Import a dataset")
    site.is_in_order()
    site.page.get_by_label("File", exact=True).set_input_files(path)
    site.page.get_by_label("Name", exact=True).fill(name)
    site.press("Upload")
    site.says("What the file holds")
    return DatasetImport.objects.get(name=name)


@each_size
def test_a_steward_imports_in_the_browser(visit: Callable[..., Site], study: Study, tmp_path: Path, size: str) -> None:
    site = visit(size)
    site.sign_in("sven")
    begun = upload(site, "patients", TEXT + "eve,old,d,maybe\n", tmp_path)
    site.is_in_order()
    site.page.get_by_label("What it is").nth(1).select_option("numeric")
    site.page.get_by_label("Smallest").nth(1).fill("0")
    site.page.get_by_label("Largest").nth(1).fill("120")
    site.page.get_by_label("Values, one a line").nth(2).fill("f\nm")
    site.page.locator("#id_classes").fill("no\nyes")
    site.page.get_by_label("known from elsewhere").check()
    site.press("Check the file")
    site.says("The file is being checked")
    site.is_in_order()
    import_work(str(begun.pk))
    site.says("3 errors: nothing is imported")  # the page asks by itself
    site.is_in_order()
    site.press("Drop this import")
    site.is_in_order()
    site.press("Yes, drop it")

    begun = upload(site, "patients", TEXT, tmp_path)
    site.page.get_by_label("known from elsewhere").check()
    site.press("Check the file")
    site.says("The file is being checked")
    import_work(str(begun.pk))
    site.says("2 rows were checked, and none has an error.")
    site.is_in_order()
    site.press("Import 2 rows")
    site.says("The file is being imported")
    import_work(str(begun.pk))
    site.says("2 rows are imported.")
    site.is_in_order()
    assert Dataset.objects.get(study=study).holders == 2

    site.press("Invite its holders")
    site.says("2 people are not invited yet")
    site.is_in_order()
    site.press("Invite everyone not yet invited")
    site.is_in_order()
    site.press("Invite 2 people")
    site.says("2 invitations are made.")
    assert set(Invitation.objects.values_list("holder__pseudonym", flat=True)) == {"ada", "ben"}
