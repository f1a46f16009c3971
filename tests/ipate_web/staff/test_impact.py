"""Summary for the data protection impact assessment, made from the study's own data."""

import pytest
from django.urls import reverse
from django.utils import translation

from consent.models import Study
from ipate_web.staff.impact import impact_markdown
from tests import factories
from tests.pages import as_

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    return factories.study_open(recipients="The archive | Acme.", title="Digits *and* more")


def url(study: Study, kind: str) -> str:
    return reverse("staff:study_impact", args=[study.slug, kind])


def test_it_says_data_purposes_levels_risks_and_who_decided(study: Study) -> None:
    answer = as_("olga").get(url(study, "md"))
    document = answer.content.decode()
    assert answer["Content-Disposition"] == 'attachment; filename="digits-impact.md"'
    for part in (
        "| Purpose | Learn to read handwritten digits. |",
        "| Which data | Digits that you wrote. |",
        "| Who else sees raw records | The archive \\| Acme. |",
        "| Data protection officer | none is required |",
        "| High protection | 1 | 56 | 61 |",
        "| Risk | Measure | What remains |",
        "| Consent form, version 1 | olga | conrad |",
        study.consent_forms.get().digest[:16],
        "| ε policy, version 1 | carla | conrad |",
    ):
        assert part in document, part


def test_it_is_linked_from_the_study_and_is_a_pdf_as_well(study: Study) -> None:
    page = as_("olga").get(reverse("staff:study", args=[study.slug])).text
    assert url(study, "pdf") in page and url(study, "md") in page
    answer = as_("olga").get(url(study, "pdf"))
    assert answer["Content-Type"] == "application/pdf" and answer.content.startswith(b"%PDF-")
    assert as_("olga").get(url(study, "html")).status_code == 404


def test_it_names_no_account_that_is_gone(study: Study) -> None:
    for name in ("carla", "conrad"):
        factories.user_create(name).delete()
    document = as_("olga").get(url(study, "md")).content.decode()
    assert "| Consent form, version 1 | olga | deleted account |" in document
    assert "| ε policy, version 1 | deleted account | deleted account |" in document


def test_a_rehearsal_concerns_nobody() -> None:
    rehearsal = factories.study_create("try", rehearsal=True)
    assert as_("olga").get(url(rehearsal, "md")).status_code == 404
    assert url(rehearsal, "pdf") not in as_("olga").get(reverse("staff:study", args=["try"])).text


def test_an_unfinished_study_has_one_too() -> None:
    study = factories.study_create(retention="")
    with translation.override("en"):
        document = impact_markdown(study)
    assert "No ε policy is in force" in document and "Nothing is decided yet." in document
