"""One person's choice: seen by staff only with the permission and a reason, and never without a record."""

import re

import pytest
from django.db import DatabaseError, connection, transaction

from consent import services
from consent.models import LevelAccess, Role, Study
from tests import factories
from tests.pages import as_, text

pytestmark = pytest.mark.django_db

LOOK, LOOKS = "/studies/digits/recruitment/person/", "/studies/digits/recruitment/looks/"


@pytest.fixture
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


def test_who_has_not_decided_is_looked_at_all_the_same(study: Study) -> None:
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
