"""Tests of the form on paper: what it says, in which language, of whom, and what is not sent back."""

import json
from datetime import date

import pytest
from django.test import Client
from django.urls import reverse

from consent.circumstances import Answering
from consent.html_trees import html_tree
from consent.models import Answerer, Study
from consent.paper_documents import FormsOnPaper, FormWritten
from consent.services.invitations import Invited, IssuedInvitation, invitations_create
from tests import factories
from tests.pages import as_

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    return factories.study_with_sender()


@pytest.fixture
def issued(study: Study) -> IssuedInvitation:
    (issued,) = invitations_create(study=study, acting_user=None, pseudonyms=[Invited("P-1")])
    return issued


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
        "questions": ["telephone +49 30 1234 (Monday to Friday, 9 to 12)"],
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


def test_a_form_speaks_one_language(study: Study) -> None:
    document = FormsOnPaper(study).context(FormWritten("de"))
    assert (document["lang"], document["subject"]) == ("de", "Frühe Zeichen")
    assert "56 von 100" in said(document["decision"])
    for part in ("Monday", "56 in 100", "Took part", "protection"):
        assert part not in said([document["decision"], document["questions"], document["decision_heading"]]), part


def test_variants_say_that_the_main_text_counts(study: Study) -> None:
    study.languages = ["en", "en-x-easy"]
    study.save()
    factories.form_publish(study, {"en": "Long words.", "de": "Lang.", "en-x-easy": "Short."})
    document = FormsOnPaper(study).context(FormWritten("en-x-easy"))
    assert "Short." in said(document["reading"]) and "The main text is what counts." in said(document["reading"])
    assert "en-x-easy" in document["version"], "staff enter it with the decision"
    assert "The main text" not in said(FormsOnPaper(study).context(FormWritten("en"))["reading"])


def test_a_guardian_reads_about_the_person_and_declares_the_right(study: Study) -> None:
    document = FormsOnPaper(study).context(FormWritten("en", "P-7", GUARDIAN))
    assert "You answer for P-7, as parent or guardian." in document["paragraphs"]
    assert "P-7's records" in said(document) and document["signed"] == "Your own name and signature"
    for part in ("☐ Parental responsibility", "☐ I may decide about this person's records."):
        assert part in said(document["declaration"])
    assert "power of attorney" not in said(document), "a right of proxies"
    for kept in ("your records", "whether you took part"):
        assert kept not in said([document["paragraphs"], document["decision"]])


def test_before_and_now_follow_from_policies_alone(study: Study) -> None:
    for name, level in (("P-1", "HIGH"), ("P-2", "LOW")):
        factories.consent_choose(
            holder=factories.holder_create(study, name), level=level, form=study.consent_forms.get()
        )
    factories.policy_approve(study, 2, 4, 8)
    forms = FormsOnPaper(study)
    first, second = (forms.context(FormWritten("en", name)) for name in ("P-1", "P-2"))
    assert first["decision"] == second["decision"], "nobody learns a choice from a form"
    for part in ("Before", "Now", "☐ Yes, I accept weaker protection than I was promised."):
        assert part in said(first["decision"])


@pytest.mark.slow
def test_forms_go_out_behind_letters(study: Study) -> None:
    steward: Client = as_("olga")
    codes = [
        {"code": new.code, "language": "de", "address": "", "kind": ""}
        for new in invitations_create(study=study, acting_user=None, pseudonyms=["P-1", "P-2"])
    ]
    sent = {"letters": json.dumps(codes), "language": "en"}
    path = reverse("staff:letters_pdf", args=[study.slug])
    alone, together = (steward.post(path, sent | {"paper": paper}).content for paper in ("", "main"))
    assert alone.startswith(b"%PDF") and b"/Count 2" in alone
    assert b"pdfuaid:part>1<" in together and len(together) > len(alone) and b"/Count 2" not in together


def test_pages_keep_their_form_on_paper_and_words_that_look_like_markup_are_words() -> None:
    (part,) = html_tree("<p>#panic() <script>x</script>&lt;b&gt; <em>a</em></p>")
    assert part == {"tag": "p", "parts": ["#panic() ", "x", "<b> ", {"tag": "em", "parts": ["a"]}]}
    tree = html_tree('<ul class="boxes">\n<li>☐ yes</li></ul><div lang="pt-br"><p>sim</p></div><div><hr></div>')
    assert [part["tag"] for part in tree] == ["boxes", "lang", "hr"] and tree[1]["lang"] == "pt"
