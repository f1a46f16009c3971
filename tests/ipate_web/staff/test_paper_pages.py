"""Pages to record decisions on paper."""

from datetime import date

import pytest
from django.contrib.auth import get_user_model
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from consent import services
from consent.models import ConsentEvent, Study
from consent.services.handover import circumstance_record
from tests import factories
from tests.pages import as_, text
from tests.snapshots import built_once

pytestmark = pytest.mark.django_db

ONE, MANY = "/studies/digits/recruitment/paper/", "/studies/digits/recruitment/paper/list/"
HEAD = "pseudonym,level,form_version,signed_on,evidence\n"


@pytest.fixture
@built_once
def study() -> Study:
    study = factories.study_open()
    services.holders_register(study=study, pseudonyms=["P-1", "P-2"])
    return study


@pytest.fixture
def olga(study: Study) -> Client:
    return as_("olga")


def scan(name: str = "a.pdf", content: bytes = b"%PDF-1.7") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def today() -> str:
    return timezone.now().date().isoformat()


def one(**changes: object) -> dict[str, object]:
    fields = {"pseudonym": "P-1", "level": "LOW", "form_version": "1", "signed_on": today(), "scan": scan()}
    return {**fields, **changes}


def test_one_decision_is_recorded_with_who_did_it(olga: Client) -> None:
    assert "1 decision is recorded." in text(olga.post(ONE, one(), follow=True))
    event = ConsentEvent.objects.get()
    assert (event.level, event.channel, event.recorded_by.username) == ("LOW", "paper", "olga")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pseudonym": "P-9"}, "nobody in this study is called “P-9”"),
        ({"scan": ""}, "Scan: This field is required."),
        ({"scan": scan(content=b"MZ")}, "a.pdf is no PDF, PNG or JPEG file"),
        ({"form_version": "7"}, "7 is not one of the available choices"),
        ({"level": ""}, "What they chose: This field is required."),
    ],
)
def test_the_page_shows_the_error_of_one_decision(olga: Client, changes: dict[str, object], message: str) -> None:
    response = olga.post(ONE, one(**changes))
    assert response.status_code == 422
    assert message in text(response)
    assert not ConsentEvent.objects.exists()


def test_nothing_is_chosen_beforehand(olga: Client) -> None:
    assert "checked" not in olga.get(ONE).content.decode()


def many(rows: str, **fields: object) -> dict[str, object]:
    return {"list": SimpleUploadedFile("list.csv", (HEAD + rows).encode()), "scans": [scan()], **fields}


def test_a_list_is_tried_and_then_recorded(olga: Client) -> None:
    rows = f"P-1,LOW,1,{today()},a.pdf\nP-2,NONE,1,{today()},a.pdf\n"
    assert "2 decisions can be recorded." in text(olga.post(MANY, many(rows), follow=True))
    assert not ConsentEvent.objects.exists()
    assert "2 decisions are recorded." in text(olga.post(MANY, many(rows, record="1"), follow=True))
    assert ConsentEvent.objects.count() == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("P-1,LOW,1,2020-01-01,b.pdf\n", "Row 2: the scan “b.pdf” is missing"),
        ("P-1,LOW,x,2020-01-01,a.pdf\n", "Row 2: form_version must be a whole number"),
    ],
)
def test_the_page_names_the_row_of_each_error(olga: Client, rows: str, message: str) -> None:
    response = olga.post(MANY, many(rows, record="1"))
    assert response.status_code == 422
    assert message in text(response)
    assert not ConsentEvent.objects.exists()


def test_a_list_in_another_encoding_is_refused(olga: Client) -> None:
    latin = SimpleUploadedFile("list.csv", (HEAD + "Jörg,LOW,1,2026-01-01,a.pdf\n").encode("latin-1"))
    assert "The list is not UTF-8." in text(olga.post(MANY, {"list": latin, "scans": [scan()]}))


def test_the_form_is_made_as_pdf(olga: Client, study: Study) -> None:
    path = f"{ONE}form/"
    assert "Save as PDF" in text(olga.get(path))
    shown = olga.post(path, {"text": "de", "pseudonym": "", "answer_by": "2031-05-04"})
    assert shown["Content-Type"] == "application/pdf" and shown["Content-Disposition"].startswith("inline")
    saved = olga.post(path, {"text": "en", "pseudonym": "P-1", "save": "1"})
    assert saved["Content-Disposition"] == 'attachment; filename="form-digits.pdf"'
    assert b"pdfuaid:part>1<" in saved.content and b"/StructTreeRoot" in saved.content
    factories.study_create("empty")
    assert olga.get("/studies/empty/recruitment/paper/form/").status_code == 302


def test_no_form_is_made_for_whoever_is_not_known_or_cannot_decide(olga: Client, study: Study) -> None:
    wrong = olga.post(f"{ONE}form/", {"text": "en", "pseudonym": "P-9"})
    assert wrong.status_code == 422 and "Nobody in this study is called like that." in text(wrong)
    olga_user = get_user_model().objects.get(username="olga")
    circumstance_record(study=study, acting_user=olga_user, pseudonym="P-1", kind="incapable", until=None, reason="x")
    assert "cannot decide" in text(olga.post(f"{ONE}form/", {"text": "en", "pseudonym": "P-1"}))


def test_a_declaration_comes_with_the_decision(olga: Client, study: Study) -> None:
    olga_user = get_user_model().objects.get(username="olga")
    circumstance_record(
        study=study, acting_user=olga_user, pseudonym="P-1", kind="guardian", until=date(2040, 1, 1), reason="x"
    )
    lacking = olga.post(ONE, one())
    assert lacking.status_code == 422 and "Without a declaration the paper does not count." in text(lacking)
    assert "1 decision is recorded." in text(olga.post(ONE, one(authority="parents", text="de"), follow=True))
    assert ConsentEvent.objects.get().authority == "parents" and ConsentEvent.objects.get().text_read == "de"
