"""Pages that count people with noise: head counts, and answers to check questions."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from accounting.group_budgets import head_counts
from accounting.models import HeadCount, Release
from accounting.shares import share_free
from consent.models import CheckAnswers, Study
from consent.permissions import ROLE_PERMISSIONS
from consent.promises.questions import KEYS
from consent.selectors import consent_form_in_force
from consent.services import check_answer_keep
from tests import factories
from tests.pages import as_, roles_fill, text, url
from tests.snapshots import built_once
from tests.training.runs import study_with_consents, study_with_table

pytestmark = pytest.mark.django_db


@pytest.fixture
def table() -> Study:
    """Ten holders have consented to each level."""
    return study_with_table()


@pytest.fixture
def operator(table: Study) -> Client:
    return as_("olga")


def counted(study: Study) -> dict[str, int]:
    return {count.level: count.count for count in head_counts(study)}


def test_the_page_says_what_a_drawing_costs_and_shows_what_was_drawn(table, operator, monkeypatch) -> None:
    HeadCount.objects.all().delete()
    address = url("head_counts", table)
    assert "uses 1.0 % of the smallest cap and cannot be undone; 100.0 % is free" in operator.get(address).text
    assert Release.objects.filter(study=table).count() == 1, "looking draws nothing"
    page = operator.post(address, {"draw": "1"}, follow=True)
    assert page.redirect_chain == [(address, 302)]
    assert share_free(table) == pytest.approx(0.99)
    drawn = head_counts(table)
    assert {count.sigma for count in drawn} == {32.0} and "drawn with noise, standard deviation 32" in page.text
    assert all(f'<td class="number">{count.count}</td>' in page.text for count in drawn)
    assert "± 32, drawn with noise" in operator.get(url("study", table)).text
    monkeypatch.setitem(ROLE_PERMISSIONS, "operator", ROLE_PERMISSIONS["operator"] - {"consent.view_group_sizes"})
    page = operator.get(address).text
    assert all(f'<td class="number">{count.count}</td>' in page for count in drawn), "in place of exact numbers"


@pytest.fixture
@built_once
def study() -> Study:
    return roles_fill(study_with_consents("checks"))


def test_an_operator_counts_once_and_nothing_stays(study: Study) -> None:
    """A second click would charge everybody again, and noise alone would take the place of what was counted."""
    forms, address = url("consent_forms", study), reverse("staff:check_answers", args=[study.slug])
    committee, operator = as_("committee"), as_("olga")
    assert "Count the answers" not in text(committee.get(forms))
    assert committee.post(address).status_code == 403
    assert not Release.objects.exists()
    check_answer_keep(holder=study.holders.earliest("pk"), form=consent_form_in_force(study), place=0, right=True)
    page = operator.get(forms)
    assert "with noise of standard deviation 76 added to each number. This uses 1.0 % of the smallest cap" in text(page)
    follows = re.search(r'name="follows" value="(\d+)"', page.text).group(1)
    answer = operator.post(address, {"follows": follows}, follow=True)
    assert answer.redirect_chain == [(forms, 302)]
    assert "The answers have been counted and are no" in text(answer)
    assert "so nothing was drawn again." in text(operator.post(address, {"follows": follows}, follow=True))
    assert CheckAnswers.objects.get().answered == 0
    assert Release.objects.filter(study=study).count() == 1
    assert share_free(study) == pytest.approx(0.99)
    assert "answers to check questions" in text(operator.get(url("ledger", study)))
    assert "Answers have been counted before" in text(operator.get(forms))


def test_no_page_says_how_many_answers_are_stored(study: Study) -> None:
    form, pages = consent_form_in_force(study), set()
    for place, holder in enumerate([None, *study.holders.order_by("pk")[:4]]):
        if holder is not None:
            check_answer_keep(holder=holder, form=form, place=place % len(KEYS), right=bool(place % 2))
        page = as_("olga").get(url("consent_forms", study)).text
        pages.add(re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", page))
    assert len(pages) == 1
    early = factories.study_create("early")
    assert "What people understand" not in text(as_("olga").get(url("consent_forms", early))), "there is no form"
