import re

import pytest
from django.test import Client

from consent import services
from consent.models import Role, Study
from tests import factories
from tests.training.runs import consents_give

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    study = factories.study_open()
    services.holders_register(study=study, pseudonyms=[f"P-{number}" for number in range(7)])
    consents_give(study, "HA-")
    return study


def page_for(study: Study, role: str) -> str:
    services.membership_add(study=study, user=factories.user_create("reader"), role=role)
    client = Client()
    client.force_login(factories.user_create("reader"))
    html = client.get(f"/studies/{study.slug}/recruitment/").content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html.replace("</script>", "")))


@pytest.mark.parametrize("role", [Role.COMMITTEE, Role.OPERATOR, Role.AUDITOR])
def test_staff_see_exact_numbers_and_their_course(study: Study, role: str) -> None:
    page = page_for(study, role)
    assert "High protection 3" in page
    assert "Over time" in page
    assert "Not for publication." in page


def test_researchers_see_rounded_numbers_and_no_course(study: Study) -> None:
    page = page_for(study, Role.RESEARCHER)
    assert "High protection fewer than 20" in page
    assert "Asked fewer than 20" in page
    assert "Over time" not in page
