"""Head counts: drawing them with noise, entering public ones, and that nothing exact is shown beside them."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from accounting.head_counts import head_counts
from accounting.models import HeadCount, Release
from accounting.shares import share_free
from consent.models import Study
from consent.permissions import ROLE_PERMISSIONS
from tests import factories
from tests.pages import as_
from tests.training.runs import TABLE_RUN, run_start, study_with_table
from training.services.head_counts import head_counts_draw

pytestmark = pytest.mark.django_db

ENTERED = {"enter": "1", "HIGH": "100", "AVERAGE": "200", "LOW": "300"}


@pytest.fixture
def study() -> Study:
    """Ten holders have consented to each level."""
    return study_with_table()


@pytest.fixture
def operator(study: Study) -> Client:
    return as_("olga")


def address(study: Study) -> str:
    return reverse("staff:head_counts", args=[study.slug])


def counted(study: Study) -> dict[str, int]:
    return {count.level: count.count for count in head_counts(study)}


def test_the_page_says_what_a_drawing_costs_before_it_is_made(study: Study, operator: Client) -> None:
    HeadCount.objects.all().delete()
    page = operator.get(address(study)).text
    for words in (
        "No head counts yet",
        "noise of standard deviation 32 is added",
        "uses 1.0 % of the smallest cap and cannot be taken back; 100.0 % is free",
        "They must not come from the consents.",
    ):
        assert words in page
    assert Release.objects.filter(study=study).count() == 1, "looking draws nothing"


def test_a_drawing_is_charged_shown_and_used(study: Study, operator: Client) -> None:
    page = operator.post(address(study), {"draw": "1"}, follow=True)
    assert page.redirect_chain == [(address(study), 302)]
    assert "The head counts are drawn." in page.text
    assert share_free(study) == pytest.approx(0.99)
    drawn = head_counts(study)
    assert {count.sigma for count in drawn} == {32.0}
    for count in drawn:
        assert f'<td class="number">{count.count}</td>' in page.text
    assert "drawn with noise, standard deviation 32" in page.text
    assert "Drawing again is charged again." in page.text
    overview = operator.get(reverse("staff:study", args=[study.slug])).text
    assert "± 32, drawn with noise" in overview
    assert "head counts" in overview


def test_a_form_that_is_sent_twice_draws_and_charges_once(study: Study, operator: Client) -> None:
    """By a second click, or Back and once more: everybody would pay twice for the same numbers."""
    follows = re.search(r'name="follows" value="(\d+)"', operator.get(address(study)).text).group(1)
    for _ in range(2):
        page = operator.post(address(study), {"draw": "1", "follows": follows}, follow=True)
    assert "There are newer numbers than when you opened the page. Nothing was drawn again." in page.text
    assert share_free(study) == pytest.approx(0.99)
    assert Release.objects.filter(study=study, charge__gt=0).count() == 1


def test_a_drawing_that_nothing_is_left_for_is_refused(study: Study, operator: Client) -> None:
    run_start(study, share=1.0, **TABLE_RUN)
    before = counted(study)
    page = operator.post(address(study), {"draw": "1"})
    assert "Only 0 of every holder&#x27;s cap is free" in page.text
    assert counted(study) == before
    assert Release.objects.filter(study=study, kind="head_counts").count() == 1


def test_a_closed_study_offers_no_drawing(study: Study, operator: Client) -> None:
    Study.objects.filter(pk=study.pk).update(closed_at="2026-01-01T00:00:00Z")
    page = operator.get(address(study)).text
    assert "What plans use now" in page and "This study was closed on" in page
    assert "Draw head counts" not in page and "Enter these numbers" not in page


def test_public_numbers_are_entered_and_cost_nothing(study: Study, operator: Client) -> None:
    page = operator.post(address(study), ENTERED, follow=True)
    assert "The numbers are entered." in page.text
    assert counted(study) == {"HIGH": 100, "AVERAGE": 200, "LOW": 300}
    assert "entered as a public number" in page.text
    assert share_free(study) == 1
    newest = Release.objects.filter(study=study).latest("sequence")
    assert (newest.charge, newest.recorded_by) == (0, factories.user_create("olga"))


@pytest.mark.parametrize(
    ("value", "message"),
    [("", "required"), ("-1", "greater than"), ("1.5", "whole number"), ("9" * 30, "less than or equal to 1000000000")],
)
def test_invalid_numbers_of_holders_are_refused(study: Study, operator: Client, value: str, message: str) -> None:
    before = counted(study)
    page = operator.post(address(study), {**ENTERED, "LOW": value})
    assert page.status_code == 422
    assert message in str(page.context["form"].errors["LOW"])
    assert "There is a problem" in page.text
    assert counted(study) == before


def test_without_a_policy_nothing_can_be_counted() -> None:
    study = factories.study_create("young")
    client = as_("olga")
    message = "The study has no approved ε policy."
    page = client.get(address(study))
    assert message in page.text
    assert "Draw head counts</button>" not in page.text
    for sent in ({"draw": "1"}, ENTERED):
        assert message in client.post(address(study), sent).text
    assert not Release.objects.exists()


def test_a_rehearsal_has_no_head_counts() -> None:
    study = factories.study_create("rehearsal", rehearsal=True)
    client = as_("olga")
    assert client.get(address(study)).status_code == 404
    assert client.post(address(study), ENTERED).status_code == 404


def test_drawn_numbers_are_shown_in_place_of_exact_ones(
    study: Study, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    head_counts_draw(study=study, acting_user=factories.user_create("olga"))
    monkeypatch.setitem(ROLE_PERMISSIONS, "operator", ROLE_PERMISSIONS["operator"] - {"consent.view_group_sizes"})
    page = operator.get(address(study)).text
    for count in head_counts(study):
        assert f'<td class="number">{count.count}</td>' in page
