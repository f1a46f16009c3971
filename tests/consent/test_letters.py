"""Letters and paper forms that an institution sends: its words and logo, one language each, and their codes."""

import base64
import io
import json
import re
from datetime import date

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from PIL import Image, PngImagePlugin

from consent.documents.letters import FormsOnPaper, FormWritten, LetterWritten, letter_context, letters_pdf
from consent.documents.receipts import receipt_context, receipt_digests, receipt_number, receipt_pdf
from consent.models import Answerer, ConfigurationChange, Letterhead, Study
from consent.people.circumstances import Answering
from consent.people.pseudonyms import Invited, invitees_read
from consent.services.changes import change_faults
from consent.services.invitations import IssuedInvitation, invitations_create
from consent.services.letters import letterhead_of, letterhead_save, logo_read
from tests import factories
from tests.consent.conftest import words
from tests.pages import as_, text

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    return factories.study_with_sender()


@pytest.fixture
def issued(study: Study) -> IssuedInvitation:
    people = [Invited("P-1", language="de", address="Erika Example\n1 Street\n12345 Town")]
    (issued,) = invitations_create(study=study, acting_user=None, pseudonyms=people)
    return issued


def png(width: int = 40, height: int = 20, **options: object) -> bytes:
    target = io.BytesIO()
    Image.new("RGB", (width, height), (0, 80, 120)).save(target, "PNG", **options)
    return target.getvalue()


def test_a_letter_has_all_that_one_of_an_institution_has(study: Study, issued: IssuedInvitation) -> None:
    letter = LetterWritten(issued, "en", "", issued.address)
    document = letter_context(study, letter, letterhead_of(study), date(2031, 5, 4))
    sender = document["sender"]
    assert (sender["name"], sender["address"]) == ("University Hospital", ["1 Hospital Road", "12345 Town"])
    assert document["recipient"] == ["Erika Example", "1 Street", "12345 Town"]
    assert "phone +49 30 1234 (Monday to Friday, 9 to 12)" in document["questions"]
    assert document["salutation"] == "Dear Sir or Madam," and document["signature"] == "Dr Ada Example"
    for line in ("Please answer by 4 May 2031.", "You may say no."):
        assert any(paragraph.startswith(line) for paragraph in document["paragraphs"])
    assert document["code"] == issued.spelled.split() and document["link"] == issued.link
    assert document["date"] and document["reference"].endswith("P-1") and document["qr"].startswith("<svg")
    again = letter_context(study, LetterWritten(issued, "en", "renewal"), letterhead_of(study), date(2031, 5, 4))
    assert again["paragraphs"][0].startswith("In this study, consent is valid only for a limited time."), "the reason"
    assert again["paragraphs"][-1] == "Please answer by 4 May 2031. You can still answer after that day."


def test_letters_use_the_institutions_words_and_record_them(study: Study, issued: IssuedInvitation) -> None:
    markup = '#panic("no") $x$ = *a* #include "letters.typ" <b>'
    texts = {"refusal": " Your treatment does not depend on it. ", "text": f"First.\n{markup}", "salutation": ""}
    head = letterhead_save(study=study, texts={"en": texts}, logo=logo_read(png()), acting_user=None)
    kept = {"refusal": "Your treatment does not depend on it.", "text": f"First.\n{markup}"}
    assert head.texts == {"en": kept}
    document = letter_context(study, LetterWritten(issued, "en"), head)
    assert document["paragraphs"] == ["First.", markup, "Your treatment does not depend on it."]
    assert document["salutation"] == "Dear Sir or Madam,"
    letter = LetterWritten(issued, "en", "", "#[a]\n= b")
    assert letters_pdf(study, [letter]).startswith(b"%PDF"), "markup is printed as text"
    change = ConfigurationChange.objects.filter(model="consent.letterhead").latest("sequence")
    assert change.after["texts"] == {"en": kept} and list(change_faults(study)) == []
    Letterhead.objects.filter(pk=head.pk).update(texts={"en": {"closing": "Mine"}})
    assert any("texts differs from the record" in fault for fault in change_faults(study))


def test_only_visible_parts_of_a_logo_are_kept_and_only_small_pngs_taken() -> None:
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Comment", "<script>alert(1)</script>")
    kept = base64.b64decode(logo_read(png(pnginfo=notes) + b"<script>alert(2)</script>"))
    assert b"script" not in kept and b"script" in png(pnginfo=notes)
    with Image.open(io.BytesIO(kept)) as picture:
        assert picture.size == (40, 20) and picture.info.get("Comment") is None
        assert picture.convert("RGB").getpixel((5, 5)) == (0, 80, 120)
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>"
    broken = [b"", svg, b"\x89PNG\r\n\x1a\n broken", png()[:60], b"GIF89a" + png()[6:]]
    for content in (*broken, png(1_601, 2), png() + b" " * 500_000):
        with pytest.raises(ValidationError, match="PNG"):
            logo_read(content)


def page(name: str, study: Study) -> str:
    return reverse(f"staff:{name}", args=[study.slug])


def letters_field(html: str) -> str:
    (field,) = re.findall(r'name="letters" value="([^"]*)"', html)
    return field.replace("&quot;", '"')


def test_new_codes_become_letters_and_addresses_are_not_kept(study: Study) -> None:
    steward = as_("olga")
    people = "pseudonym,answers,until,language,address\nP-1,,,de,Erika Example; 1 Street\nP-2"
    field = letters_field(steward.post(page("invitations", study), {"pseudonyms": people, "open_places": 0}).text)
    first, second = json.loads(field)
    assert first["language"] == "de" and first["address"] == "Erika Example\n1 Street"
    assert second["language"] == "" and second["address"] == ""
    answer = steward.post(page("letters_pdf", study), {"letters": field, "language": "en", "answer_by": "2031-05-04"})
    assert answer["Content-Type"] == "application/pdf" and b"/Count 2" in answer.content
    assert b"pdfuaid:part>1<" in answer.content and b"/StructTreeRoot" in answer.content
    assert answer["Content-Disposition"] == 'attachment; filename="letters-digits.pdf"'
    assert "no-store" in answer["Cache-Control"]
    assert not any("Erika" in str(row) for row in ConfigurationChange.objects.values())
    answer = steward.post(page("letters_pdf", study), {"letters": field, "language": "en", "answer_by": "soon"})
    assert answer.status_code == 422 and json.loads(letters_field(answer.text)) == json.loads(field), "no code is lost"


def test_unknown_letters_are_refused(study: Study, issued: IssuedInvitation) -> None:
    path = page("letters_pdf", study)
    for field in ("", "{}", "[]", "[1]", '[{"code": 1}]', '[{"code": "x"}]', "nonsense"):
        assert as_("olga").post(path, {"letters": field, "language": "en"}).status_code == 422, field
    factories.study_open("other")
    entries = [{"code": issued.code, "language": "", "address": "", "kind": ""}]
    path = reverse("staff:letters_pdf", args=["other"])
    answer = as_("olga").post(path, {"letters": json.dumps(entries), "language": "en"})
    assert answer.status_code == 422 and "These codes no longer work, because newer ones have" in text(answer)
    with pytest.raises(ValidationError, match="Row 2: the language"):
        invitees_read("pseudonym,answers,until,language\nP-1,,,xx")


def rows_of(parts: list) -> list[list[dict]]:
    """Return the cells of every row of a tree at any depth."""
    rows = []
    for part in parts:
        if isinstance(part, dict):
            rows += [part["parts"]] if part["tag"] == "tr" else rows_of(part["parts"])
    return rows


def test_a_receipt_is_a_letter_with_before_and_now_and_its_digests_on_a_page_of_their_own(study: Study) -> None:
    letterhead_save(study=study, texts={}, logo=logo_read(png()), acting_user=None)
    holder = factories.holder_create(study, "P-1")
    factories.consent_choose(holder=holder, level="HIGH", form=study.consent_forms.get())
    event = factories.consent_choose(holder=holder, level="LOW", form=study.consent_forms.get())
    document = receipt_context(event)
    assert document["salutation"] == "Dear Sir or Madam," and document["signature"] == "Dr Ada Example"
    assert "phone +49 30 1234" in document["questions"] and document["sentence"].startswith("On ")
    assert "withdraw at any time, without giving a reason" in document["changing"]
    assert "at most 56 in 100 at most 65 in 100" in words(document["columns"])
    widths = [[cell.get("columns", 1) for cell in row] for row in rows_of(document["columns"])]
    assert widths == [[1, 1], [2], [1, 1], [2], [1, 1]], "old and new are below their headings"
    first = {name: value for name, value in document.items() if name not in ("digests", "details")}
    assert not re.search("[0-9a-f]{64}", str(first)) and document["digests"] == receipt_digests(event)
    assert [value for _term, value in receipt_digests(event)] == [event.form.digest, receipt_number(event.hash)]
    pdf = receipt_pdf(event)
    assert b"/Count 2" in pdf and b"/Subtype/Image" in pdf and b"pdfuaid:part>1<" in pdf


def said(message: object) -> str:
    return json.dumps(message, ensure_ascii=False)


GUARDIAN = Answering(Answerer.GUARDIAN, date(2040, 1, 1), "guardian")


def test_the_form_has_all_that_an_institution_sends(study: Study, issued: IssuedInvitation) -> None:
    written = FormWritten("en", "P-1", issued=issued, address="Erika\n1 Street")
    document = FormsOnPaper(study).context(written, date(2031, 5, 4))
    assert document["sender"]["name"] == "University Hospital" and document["recipient"] == ["Erika", "1 Street"]
    assert document["salutation"] == "Dear Sir or Madam," and document["signature"] == "Dr Ada Example"
    assert document["declaration"] == []
    odds = ("Took part?", "Which records?", "56 in 100", "61 in 100")
    for name, parts in {
        "questions": ["phone +49 30 1234 (Monday to Friday, 9 to 12)"],
        "paragraphs": ["You may say no.", "Please answer by 4 May 2031."],
        "reading": ["Learn to read handwritten digits.", "It does not cover", "Where the records come from"],
        "decision": [factories.HARM["en"], "☐ ", *odds, "weaker protection"],
        "back": ["1 Hospital Road"],
        "version": ["Version 1"],
    }.items():
        assert [part for part in parts if part not in said(document[name])] == [], name
    assert document["code_box"]["code"] == issued.spelled.split() and document["code_box"]["qr"].startswith("<svg")
    sent_back = said({name: part for name, part in document.items() if name != "code_box"})
    assert issued.code not in sent_back.lower() and issued.spelled not in sent_back, "the code stays with the person"


def test_forms_go_out_behind_letters(study: Study) -> None:
    steward: Client = as_("olga")
    made = invitations_create(study=study, acting_user=None, pseudonyms=["P-1", "P-2"])
    codes = [{"code": new.code, "language": "de", "address": "", "kind": ""} for new in made]
    sent = {"letters": json.dumps(codes), "language": "en"}
    path = reverse("staff:letters_pdf", args=[study.slug])
    alone, together = (steward.post(path, sent | {"paper": paper}).content for paper in ("", "main"))
    assert alone.startswith(b"%PDF") and b"/Count 2" in alone
    assert b"pdfuaid:part>1<" in together and len(together) > len(alone) and b"/Count 2" not in together
