"""Recruitment page."""

import re

import pytest

from consent import services
from consent.models import Role, Study
from consent.permissions import ROLE_PERMISSIONS
from tests import factories
from tests.pages import as_
from tests.snapshots import built_once
from tests.training.runs import consents_give

pytestmark = pytest.mark.django_db


@pytest.fixture
@built_once
def study() -> Study:
    study = factories.study_open()
    services.holders_register(study=study, pseudonyms=[f"P-{number}" for number in range(7)])
    consents_give(study, "HA-")
    return study


def page_for(study: Study, role: str) -> str:
    services.membership_add(study=study, user=factories.user_create("reader"), role=role, acting_user=None)
    client = as_("reader")
    html = client.get(f"/studies/{study.slug}/recruitment/").content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html.replace("</script>", "")))


@pytest.mark.parametrize("role", [Role.STEWARD, Role.AUDITOR])
def test_exact_numbers_and_their_course_are_for_those_who_handle_consents(study: Study, role: str) -> None:
    page = page_for(study, role)
    assert "High protection 3" in page
    assert "Over time" in page
    assert "Not for publication." in page


def test_rounded_group_sizes_are_hidden_like_exact_ones(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    for role in (Role.RESEARCHER, Role.OPERATOR, Role.COMMITTEE):
        assert "Asked" not in page_for(study, role)
        services.membership_remove(membership=study.memberships.get(user__username="reader"), acting_user=None)
    monkeypatch.setitem(ROLE_PERMISSIONS, Role.AUDITOR, ROLE_PERMISSIONS[Role.AUDITOR] - {"consent.view_group_sizes"})
    assert "Asked" not in page_for(study, Role.AUDITOR)
