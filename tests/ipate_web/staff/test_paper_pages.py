"""Pages to record decisions on paper."""

from datetime import date

import pytest
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


def one(**changes: object) -> dict[str, object]:
    today = timezone.localdate().isoformat()
    fields = {"pseudonym": "P-1", "level": "LOW", "form_version": "1", "signed_on": today, "scan": scan()}
    return {**fields, **changes}


def many(rows: str, encoding: str = "utf-8", **fields: object) -> dict[str, object]:
    return {"list": SimpleUploadedFile("list.csv", (HEAD + rows).encode(encoding)), "scans": [scan()], **fields}


def answers_by(study: Study, kind: str, until: date | None = None) -> None:
    olga = factories.user_create("olga")
    circumstance_record(study=study, acting_user=olga, pseudonym="P-1", kind=kind, until=until, reason="x")


def test_one_decision_is_recorded_with_who_did_it(olga: Client) -> None:
    assert "checked" not in olga.get(ONE).text, "nothing is chosen beforehand"
    for changes, message in (
        ({"pseudonym": "P-9"}, "nobody in this study is called “P-9”"),
        ({"scan": ""}, "Scan: This field is required."),
        ({"scan": scan(content=b"MZ")}, "a.pdf is no PDF, PNG or JPEG file"),
        ({"form_version": "7"}, "7 is not one of the available choices"),
        ({"level": ""}, "What they chose: This field is required."),
    ):
        response = olga.post(ONE, one(**changes))
        assert response.status_code == 422 and message in text(response), changes
        assert not ConsentEvent.objects.exists()
    assert "1 decision is recorded." in text(olga.post(ONE, one(), follow=True))
    event = ConsentEvent.objects.get()
    assert (event.level, event.channel, event.recorded_by.username) == ("LOW", "paper", "olga")


def test_a_list_is_tried_and_then_recorded(olga: Client) -> None:
    for sent, message in (
        (many("P-1,LOW,1,2020-01-01,b.pdf\n", record="1"), "Row 2: the scan “b.pdf” is missing"),
        (many("P-1,LOW,x,2020-01-01,a.pdf\n", record="1"), "Row 2: form_version must be a whole number"),
        (many("Jörg,LOW,1,2026-01-01,a.pdf\n", "latin-1"), "The list is not UTF-8."),
    ):
        response = olga.post(MANY, sent)
        assert response.status_code == 422 and message in text(response), message
    today = timezone.localdate().isoformat()
    rows = f"P-1,LOW,1,{today},a.pdf\nP-2,NONE,1,{today},a.pdf\n"
    assert "2 decisions can be recorded." in text(olga.post(MANY, many(rows), follow=True))
    assert not ConsentEvent.objects.exists()
    assert "2 decisions are recorded." in text(olga.post(MANY, many(rows, record="1"), follow=True))
    assert ConsentEvent.objects.count() == 2


def test_the_form_is_made_as_pdf_for_people_who_can_decide(olga: Client, study: Study) -> None:
    path = f"{ONE}form/"
    assert "Save as PDF" in text(olga.get(path))
    shown = olga.post(path, {"text": "de", "pseudonym": "", "answer_by": "2031-05-04"})
    assert shown["Content-Type"] == "application/pdf" and shown["Content-Disposition"].startswith("inline")
    saved = olga.post(path, {"text": "en", "pseudonym": "P-1", "save": "1"})
    assert saved["Content-Disposition"] == 'attachment; filename="form-digits.pdf"'
    assert b"pdfuaid:part>1<" in saved.content and b"/StructTreeRoot" in saved.content
    wrong = olga.post(path, {"text": "en", "pseudonym": "P-9"})
    assert wrong.status_code == 422 and "Nobody in this study is called like that." in text(wrong)
    answers_by(study, "incapable")
    assert "cannot decide" in text(olga.post(path, {"text": "en", "pseudonym": "P-1"}))
    factories.study_create("empty")
    assert olga.get("/studies/empty/recruitment/paper/form/").status_code == 302


def test_a_declaration_comes_with_the_decision(olga: Client, study: Study) -> None:
    answers_by(study, "guardian", date(2040, 1, 1))
    lacking = olga.post(ONE, one())
    assert lacking.status_code == 422 and "Without a declaration the paper does not count." in text(lacking)
    assert "1 decision is recorded." in text(olga.post(ONE, one(authority="parents", text="de"), follow=True))
    assert ConsentEvent.objects.get().authority == "parents" and ConsentEvent.objects.get().text_read == "de"
