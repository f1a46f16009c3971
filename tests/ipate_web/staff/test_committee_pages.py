"""Tests of the ethics committee's page."""

from typing import Any

import pytest

from consent import selectors, services
from consent.models import ConflictOfInterest, Role, Study
from tests import factories
from tests.pages import as_, text
from tests.snapshots import built_once

pytestmark = pytest.mark.django_db
PAGE = "/studies/digits/committee/"
APPROVE = "/studies/digits/policies/2/approve/"


@pytest.fixture
@built_once
def study() -> Study:
    study = factories.study_open()
    for name, role in (("carla", Role.COMMITTEE), ("conrad", Role.COMMITTEE), ("chris", Role.CHAIR)):
        services.membership_add(study=study, user=factories.user_create(name), role=role, acting_user=None)
    return study


def policy_propose(study: Study, **fields: Any) -> None:
    values = {"high": 0.5, "average": 1, "low": 2, "reason": "Stricter."} | fields
    services.epsilon_policy_propose(study=study, acting_user=factories.user_create("carla"), **values)


@pytest.mark.slow
def test_the_page_counts_approvals_and_operators_read_conditions(study: Study) -> None:
    assert "It is on record." in text(as_("chris").post(PAGE, {"quorum": 2, "quorum_set": "1"}, follow=True))
    policy_propose(study)
    assert "0 of 2" in text(as_("conrad").get(PAGE))
    sent = {"conditions": "A report after six months.", "effective_from": ""}
    assert "It counts with the last one." in text(as_("conrad").post(APPROVE, sent, follow=True))
    assert "1 of 2" in text(as_("chris").get(PAGE))
    assert "A report after six months." not in text(as_("olga").get("/studies/digits/"))
    assert "Version 2 is in force." in text(as_("chris").post(APPROVE, {"effective_from": ""}, follow=True))
    for page in ("/studies/digits/", PAGE):
        assert "A report after six months." in text(as_("olga").get(page))


def test_the_chair_alone_sets_the_quorum(study: Study) -> None:
    for name in ("conrad", "olga"):
        assert as_(name).post(PAGE, {"quorum": 3, "quorum_set": "1"}).status_code == 403
    assert as_("chris").post(PAGE, {"quorum": 12, "quorum_set": "1"}).status_code == 422
    study.refresh_from_db()
    assert study.quorum == 1


def test_a_declared_conflict_blocks_the_members_next_approval(study: Study) -> None:
    page = text(as_("conrad").post(PAGE, {"reason": "I own shares.", "conflict": "1"}, follow=True))
    assert "I own shares." in page and "Declare one of yours" not in page
    assert as_("olga").post(PAGE, {"reason": "Mine.", "conflict": "1"}).status_code == 403
    assert ConflictOfInterest.objects.count() == 1
    policy_propose(study)
    assert "conflict of interest" in text(as_("conrad").post(APPROVE, {"effective_from": ""}, follow=True))
    assert selectors.policy_in_force(study).version == 1


@pytest.mark.slow
def test_the_committee_writes_the_example_of_harm_that_people_read(study: Study) -> None:
    other = factories.study_create("other", harm="")
    services.membership_add(study=other, user=factories.user_create("carla"), role=Role.COMMITTEE, acting_user=None)
    page = "/studies/other/committee/"
    assert "an example of harm" in text(as_("carla").get(page))
    assert as_("olga").post(page, {"harm_en": "Mine.", "harm": "1"}).status_code == 403
    assert as_("carla").post(page, {"harm_en": "", "harm": "1"}).status_code == 422
    html = text(as_("carla").post(page, {"harm_en": "An insurer asks for more.", "harm": "1"}, follow=True))
    assert "An insurer asks for more." in html
    factories.form_publish(other)
    factories.policy_approve(other)
    factories.holder_create(other, user=factories.user_create("hanna"))
    assert "An insurer asks for more." in text(as_("hanna").get("/my/other/"))
    assert as_("carla").post(page, {"harm_en": "Nothing.", "harm": "1"}).status_code == 422


def test_people_read_why_a_level_bears_a_name_that_says_too_much(study: Study) -> None:
    values = {"high": "1", "average": "2", "low": "8", "reason": "More of it."}
    refused = as_("carla").post("/studies/digits/policies/new/", values | {"confirmed": "1"})
    assert refused.status_code == 422 and "These names promise more than the odds hold" in text(refused)
    sent = values | {"name_reason": "The records are of machines.", "confirmed": "1"}
    as_("carla").post("/studies/digits/policies/new/", sent)
    as_("conrad").post(APPROVE, {"effective_from": ""})
    factories.holder_create(study, user=factories.user_create("hanna"))
    page = text(as_("hanna").get("/my/digits/"))
    assert "“low protection” protects less than its name says." in page
    assert "The reason, by the ethics committee: The records are of machines." in page
