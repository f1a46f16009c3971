"""Recipients, stored records and uses, as pages in a browser tell holders of them."""

import pytest
from django.urls import reverse

from consent.models import CheckAnswers, DataHolder
from consent.questions import KEYS
from consent.selectors import consent_current
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


@pytest.mark.parametrize("keyboard", [False, True])
def test_the_first_answer_that_is_opened_is_sent_once(visit, study, keyboard: bool) -> None:
    site = visit("phone")
    site.sign_in("hanna")
    site.open(reverse("consent:study", args=[study.slug]))
    main = site.page.get_by_role("main")
    main.get_by_text("Four questions: is it clear?").click()
    assert not CheckAnswers.objects.exists()
    answer = main.locator("details[data-right] > summary", has_text=study.controller)
    with site.page.expect_response(lambda response: response.url.endswith("/check-answer/")) as sent:
        if keyboard:
            answer.press("Enter")
        else:
            answer.click()
    assert sent.value.status == 204
    kept = CheckAnswers.objects.get()
    assert (kept.answered, kept.right) == (1 << KEYS.index("access"),) * 2
    site.says("Nobody is shown it of one person.")
    site.fits()


def test_recipients_stored_records_and_uses_are_told_truly(visit, study) -> None:
    site = visit("phone")
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
        "Your stored records are then erased here, within a day. Only if you say that they stay, they stay stored "
        "and are not used."
    )
    site.says("How long they are stored: Until 2030.")
    assert main.get_by_role("radio", checked=True).count() == 0
    site.fits()

    site.open(reverse("consent:uses", args=[study.slug]))
    site.says("Learning no. 1")
    site.says(PURPOSE)
    assert TITLE not in site.page.content()
    site.fits()


def test_withdrawing_takes_as_many_clicks_as_are_told(visit, study) -> None:
    holder = DataHolder.objects.get(study=study, user__username="hanna")
    site = visit("phone")
    site.sign_in("hanna")
    site.open(reverse("consent:study", args=[study.slug]))  # where the link of an invitation leads
    site.page.get_by_text("If you change your mind").click()
    site.says("It takes three clicks here: “See my choice”, “Withdraw” and “Yes”. A letter to the study does the same.")
    for click in ("See my choice", "Withdraw", "Yes, withdraw my consent"):
        assert consent_current(holder).grants
        site.press(click)
    site.says("Your consent is withdrawn.")
    assert not consent_current(holder).grants
