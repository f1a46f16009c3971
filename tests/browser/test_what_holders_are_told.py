"""Recipients, stored records and uses, as pages in a browser tell holders of them."""

import pytest
from django.urls import reverse

from consent.models import DataHolder
from consent.services import holder_link
from tests import factories
from tests.training.asking import CLEAR_RUN, batch_ask
from tests.training.runs import run_start, study_with_table

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TITLE, PURPOSE = "ablation 7, sigma by hand", "Learn to tell three kinds of flowers apart."


@pytest.fixture
def study():
    """A study with recipients and a time of storage, whose records one run of everybody has asked."""
    study = study_with_table(holders=12, recipients="The state archive.", retention="Until 2030.")
    batch_ask(run_start(study, **CLEAR_RUN, title=TITLE, purpose=PURPOSE))
    holder_link(holder=DataHolder.objects.filter(study=study).earliest("pk"), user=factories.user_create("hanna"))
    return study


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_recipients_stored_records_and_uses_are_told_truly(visit, study, size: str) -> None:
    site = visit(size)
    site.sign_in("hanna")
    main = site.page.get_by_role("main")

    site.open(reverse("consent:study", args=[study.slug]))
    main.get_by_text("Four questions: is it clear?").click()
    main.locator("details[data-right] > summary", has_text=study.controller).click()
    main.get_by_text("Besides, these see them: The state archive.").wait_for()
    assert main.get_by_text("Nobody gets your records").count() == 0
    site.fits()

    site.open(reverse("consent:withdraw", args=[study.slug]))
    site.says(
        "You then choose: your stored records are erased here within a day, or they stay stored and are not used."
    )
    site.says("How long they are stored: Until 2030.")
    assert main.get_by_role("radio", checked=True).count() == 0
    site.fits()

    site.open(reverse("consent:uses", args=[study.slug]))
    site.says("Learning no. 1")
    site.says(PURPOSE)
    assert TITLE not in site.page.content()
    site.fits()
