"""A new form that has to be answered: every page of the holder tells the same, and it is true."""

import re

import pytest
from django.urls import reverse

from consent import services
from consent.selectors import consent_form_in_force
from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

STATUS = "Your records are not used now. You agreed (low protection), but there is new information since."
#: What would say that the records are used.
TAKING_PART = re.compile("You take part:|That stands until you decide|your decision stands")
PAGES = ("study", "choice", "my_studies", "uses", "receipt")


@pytest.fixture
def study():
    """Hanna took part; what she agreed to was replaced by a form that asks her again."""
    study = factories.study_open(title="Reading digits")
    holder = factories.holder_create(study, user=factories.user_create("hanna"))
    services.consent_give(holder=holder, level="LOW", form=consent_form_in_force(study), acting_user=holder.user)
    added = {"en": factories.FORM["en"] + "\n\nAnd **more**.", "de": factories.FORM["de"] + "\n\nUnd **mehr**."}
    factories.form_publish(study, added, renewal="required")
    return study


def address(page: str, slug: str) -> str:
    arguments = {"my_studies": [], "receipt": [slug, 1]}.get(page, [slug])
    return reverse(f"consent:{page}", args=arguments)


def test_every_page_says_that_the_records_are_not_used_and_what_to_do(visit, study) -> None:
    site = visit("phone")
    site.sign_in("hanna")
    main = site.page.get_by_role("main")
    for page in PAGES:
        site.open(address(page, study.slug))
        site.says(STATUS)
        assert main.get_by_text(STATUS).count() == 1, page
        assert main.get_by_text(TAKING_PART).count() == 0, page
        assert main.get_by_text("ead it and decide again").count() == 1, page
        site.fits()
        if page in ("study", "choice"):
            site.says("You agreed to version 1. Version 2 differs in these lines:")
        if page != "study":
            site.press("Read and decide again")
            site.says("What has changed since you agreed")
    site.page.get_by_label("Low protection").check()
    site.press("Continue")
    site.press("Yes, this is my decision")
    for page in PAGES:
        site.open(address(page, study.slug))
        site.says("You take part: low protection.")
        assert main.get_by_text("are not used now").count() == 0, page
