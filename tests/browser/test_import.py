"""A data steward imports a dataset and invites its holders, without the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.urls import reverse

from consent.models import Invitation, Study
from tests.browser.conftest import Site
from tests.factories import steward_add, study_open
from tests.learning.formats.test_extracts import OMOP, bundle, zipped
from tests.reading import read_here  # noqa: F401
from tests.training.test_broken_imports import photographs, written
from training.models import Dataset, DatasetImport
from training.services.imports import import_work

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TEXT = "who,age,sex,back\nada,50,f,no\nben,25,m,yes\n"


CODED = "who,seen,born,icd_code,atc_code,back\n" + "".join(
    f"p{n // 3},2026-0{n % 3 + 1}-01,{1950 + n}-05-01,{('I50,C07', 'E11.9,A10BA02')[n % 2]},{'ny'[n // 3 % 2]}\n"
    for n in range(24)
)
TEXTS = "who,message,label\n" + "".join(f'p{n},"message {n}, as it was said",{"yn"[n % 2]}\n' for n in range(50))


@pytest.fixture
def study() -> Study:
    return steward_add(study_open("ward"))


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


def test_a_steward_imports_in_the_browser(visit: Callable[..., Site], study: Study, tmp_path: Path) -> None:
    site = visit("phone")
    site.sign_in("sven")
    site.open(reverse("staff:import_new", args=["ward"]))
    site.is_in_order()
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


def test_a_time_with_its_event_is_declared_in_fields(visit: Callable[..., Site], study: Study, tmp_path: Path) -> None:
    site = visit("phone")
    site.sign_in("sven")
    rows = "ada,50,2026-01-01,2026-03-03,dead\nben,25,2026-01-01,2026-07-20,alive\n"
    begun = upload(site, "patients", f"who,age,came,seen,state\n{rows}", tmp_path)
    for place, use in ((2, "ignore"), (3, "time"), (4, "event")):
        site.page.get_by_label("What it is").nth(place).select_option(use)
    site.page.get_by_label("Counted", exact=True).nth(3).select_option("since")
    site.page.get_by_label("Date, or a column of dates").nth(3).fill("came")
    site.page.get_by_label("In", exact=True).nth(3).select_option("days")
    site.page.get_by_label("Other spellings, one a line").nth(4).fill("dead = 1\nalive = 0")
    assert site.page.locator("#id_classes").is_visible() and not site.page.locator("#id_ends").is_visible()
    site.page.get_by_label("What is to be learned").select_option("times")
    assert site.page.locator("#id_ends").is_visible() and not site.page.locator("#id_classes").is_visible()
    site.page.locator("#id_ends").fill("30\n90\n365")
    site.page.locator("#id_unit").fill("days")
    site.page.get_by_label("known from elsewhere").check()
    site.is_in_order()
    site.fits()
    site.press("Check the file")
    site.says("The file is being checked")
    import_work(str(begun.pk))
    site.says("2 rows were checked, and none has an error.")
    site.says("61 days")


def test_many_columns_fit_on_a_page_and_are_changed_at_once(
    visit: Callable[..., Site], study: Study, tmp_path: Path
) -> None:
    site = visit("phone")
    site.sign_in("sven")
    ten = "who,age,sex,bmi,pulse,height,weight,code,smokes,back\n" + "ada,50,f,20.5,60,1.8,70,I50,y,no\n" * 20
    upload(site, "few", ten, tmp_path)
    for size, most in (("desktop", 2700), ("phone", 3400)):
        site.resize(size)
        assert site.page.locator("html").evaluate("html => html.scrollHeight") < most
    names = [f"lab_{number}" for number in range(118)]
    lines = [["who", *names, "back"], *([f"p{n}", *["0.5"] * 118, "ny"[n % 2]] for n in range(9))]
    text = "\n".join(",".join(line) for line in lines)
    begun = upload(site, "many", text, tmp_path)
    site.is_in_order()
    site.press("Keep these columns, and go on")
    site.page.get_by_text("51–100").wait_for()
    site.press("Many columns at once")
    site.is_in_order()
    site.page.get_by_label("Columns that are now").select_option("numeric")
    site.page.get_by_label("Largest").fill("7")
    site.press("Change these columns")
    site.says("What the file holds")
    begun.refresh_from_db()
    assert {each.get("maximum") for each in begun.schema["columns"][1:-1]} == {7}


KINDS: dict[str, tuple[str, bytes, str]] = {
    "texts": ("a.csv", TEXTS.encode(), "50 rows were checked"),
    "images": ("a.zip", photographs(), "2 rows were checked"),
    "codes and dates": ("a.csv", CODED.encode(), "24 rows were checked"),
    "Excel": ("a.xlsx", written("xlsx"), "2 rows were checked"),
    "SPSS": ("a.sav", written("sav"), "2 rows were checked"),
    "Stata": ("a.dta", written("dta"), "2 rows were checked"),
    "SAS": ("a.xpt", written("xpt"), "2 rows were checked"),
    "ARFF": ("a.arff", written("arff"), "2 rows were checked"),
    "visits": ("a.csv", CODED.encode(), "by the rules of the schema: of 24 rows 8."),
    "FHIR": ("a.json", bundle(), "by the rules of the schema"),
    "OMOP": ("a.zip", zipped(**OMOP), "by the rules of the schema"),
}
"""File, content, and what the check of it says."""


@pytest.mark.slow
@pytest.mark.usefixtures("read_here")
def test_a_file_of_each_kind_is_drafted_checked_and_imported(
    visit: Callable[..., Site], study: Study, tmp_path: Path
) -> None:
    site = visit("desktop")
    site.sign_in("sven")
    for kind, (name, content, message) in KINDS.items():
        begun = upload(site, kind, content, tmp_path, name)
        if kind == "visits":
            site.page.get_by_label("All rows of a person become one").check()
            site.page.locator("#id_by").fill("seen")
            row = site.page.get_by_role("row", name="icd_code")
            row.get_by_label("Of several rows of a person").select_option("all")
        if kind in ("FHIR", "OMOP"):
            row = site.page.get_by_role("row", name="condition: circulatory")
            row.get_by_label("What it is").select_option("label")
            row.get_by_label("Of several rows of a person").select_option("any")
            row.get_by_label("Other spellings, one a line").fill("(empty) = no")
        site.page.get_by_label("known from elsewhere").check()
        site.press("Check the file")
        site.says("The file is being checked")
        import_work(str(begun.pk))
        site.says(message)
        site.fits()
        site.page.get_by_role("main").get_by_role("button", name="Import").first.click()
        site.says("The file is being imported")
        import_work(str(begun.pk))
        site.says("imported.")
        begun.refresh_from_db()
        assert begun.state == "done", kind
        if kind == "visits":
            assert [each["name"] for each in begun.schema["columns"] if each.get("several")] == ["icd_code"]
    assert set(Dataset.objects.values_list("name", flat=True)) == set(KINDS)
