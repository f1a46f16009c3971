"""One person's choice: seen by staff only with the permission and a reason, and never without a record."""

import re
from itertools import product

import pytest
from django.db import DatabaseError, connection, transaction

from consent import services
from consent.models import ConsentEvent, LevelAccess, Role, Study
from consent.receipts import receipt_code, receipt_number
from tests import factories
from tests.pages import as_, text
from tests.snapshots import built_once

pytestmark = pytest.mark.django_db

CHECK = "/studies/digits/recruitment/receipt/"
LOOK, LOOKS = "/studies/digits/recruitment/person/", "/studies/digits/recruitment/looks/"


@pytest.fixture
@built_once
def study() -> Study:
    study = factories.study_open()
    holder = factories.holder_create(study, "P-1")
    factories.holder_create(study, "P-2")
    services.consent_give(holder=holder, level="LOW", form=study.consent_forms.get(), acting_user=None)
    services.membership_add(study=study, user=factories.user_create("aud"), role=Role.AUDITOR, acting_user=None)
    return study


def test_a_look_shows_the_choice_and_is_on_record_for_the_auditor(study: Study) -> None:
    page = text(as_("olga").post(LOOK, {"pseudonym": "P-1", "reason": "They called."}))
    assert "Consent given: low protection (" in page
    assert "Your look is on record." in page
    log = text(as_("aud").get(LOOKS))
    assert "olga P-1 They called." in re.sub(r"(olga|P-1)", r"\1 ", log).replace("  ", " ")
    assert "low" not in log.lower().replace("follow", ""), "the record does not tell what was seen"


def test_a_look_says_what_counts(study: Study) -> None:
    factories.form_publish(study, {"en": "More."}, renewal="required")
    page = text(as_("olga").post(LOOK, {"pseudonym": "P-1", "reason": "They called."}))
    assert "Consent given: low protection" in page
    assert "It does not count until they have answered the new form." in page


def test_look_at_an_undecided_holder_is_recorded_too(study: Study) -> None:
    assert "has not decided" in text(as_("olga").post(LOOK, {"pseudonym": "P-2", "reason": "They called."}))
    assert LevelAccess.objects.get().holder.pseudonym == "P-2"


@pytest.mark.parametrize(
    ("data", "message"),
    [({"pseudonym": "P-1", "reason": " "}, "Reason: This field is required."),
     ({"pseudonym": "P-9", "reason": "Why not"}, "Nobody in this study is called so.")],
)  # fmt: skip
def test_without_a_reason_or_a_holder_nothing_is_shown(study: Study, data: dict[str, str], message: str) -> None:
    response = as_("olga").post(LOOK, data)
    assert response.status_code == 422
    assert message in text(response)
    assert "LOW" not in text(response)
    assert not LevelAccess.objects.exists()


def test_the_record_cannot_be_changed(study: Study) -> None:
    as_("olga").post(LOOK, {"pseudonym": "P-1", "reason": "They called."})
    with connection.cursor() as cursor, pytest.raises(DatabaseError), transaction.atomic():
        cursor.execute("DELETE FROM consent_levelaccess")
    assert list(LevelAccess.chain_faults(study.pk)) == []


def test_the_auditor_does_not_look(study: Study) -> None:
    assert as_("aud").post(LOOK, {"pseudonym": "P-1", "reason": "Curious"}).status_code == 403
    assert not LevelAccess.objects.exists()


# --- A receipt that somebody reads out ------------------------------------------------------------------------------


@pytest.fixture
def event(study: Study) -> ConsentEvent:
    return ConsentEvent.objects.get()


def test_a_receipt_is_found_by_what_is_read_out_and_tells_no_choice(study: Study, event: ConsentEvent) -> None:
    number = receipt_number(event.hash)
    heard = [receipt_code(number), receipt_code(number).lower().replace("-", " "), number]
    for who, number in product(("olga", "aud"), heard):
        page = text(as_(who).post(CHECK, {"number": number}))
        assert "The decision is on record P-1," in page and "It is the last decision of this person." in page
        assert "The record is as it was written." in page
        assert "given" not in page and not re.search(r"\b(low|average|high) protection", page.lower())
    assert not LevelAccess.objects.exists()


def test_a_refusal_and_a_consent_look_the_same(study: Study, event: ConsentEvent) -> None:
    other = factories.holder_create(study, "P-3")
    refusal = services.consent_refuse(holder=other, form=study.consent_forms.get(), acting_user=None)
    pages = [
        text(as_("olga").post(CHECK, {"number": receipt_code(receipt_number(row.hash))})) for row in (event, refusal)
    ]
    consent, refused = (re.search(r"The decision is on record.*as it was written", page).group() for page in pages)
    assert re.sub(r"P-\d, .*?, version", "", consent) == re.sub(r"P-\d, .*?, version", "", refused)


def test_an_older_receipt_is_said_to_be_older(study: Study, event: ConsentEvent) -> None:
    services.consent_withdraw(holder=event.holder, acting_user=None)
    page = text(as_("olga").post(CHECK, {"number": receipt_code(receipt_number(event.hash))}))
    assert "This person has decided again since" in page and "withdr" not in page.split("on record")[1]


def test_a_misheard_code_stays_and_its_group_is_named(study: Study, event: ConsentEvent) -> None:
    groups = receipt_code(receipt_number(event.hash)).split("-")
    groups[1] = groups[1][:4] + ("0" if groups[1][4] != "0" else "1")
    answer = as_("olga").post(CHECK, {"number": " ".join(groups)})
    assert answer.status_code == 422 and f"Group 2 ({groups[1]})" in text(answer)
    assert f'value="{" ".join(groups)}"' in answer.text


def test_a_receipt_of_another_study_is_not_found(study: Study) -> None:
    other = factories.study_open("letters")
    holder = factories.holder_create(other, "P-9")
    event = services.consent_give(holder=holder, level="LOW", form=other.consent_forms.get(), acting_user=None)
    answer = as_("olga").post(CHECK, {"number": receipt_code(receipt_number(event.hash))})
    assert answer.status_code == 422 and "No decision of this study has this receipt." in text(answer)
    assert "P-9" not in text(answer)


def test_operator_checks_no_receipt(study: Study, event: ConsentEvent) -> None:
    services.membership_add(study=study, user=factories.user_create("com"), role=Role.COMMITTEE, acting_user=None)
    assert as_("com").post(CHECK, {"number": receipt_code(receipt_number(event.hash))}).status_code == 403
