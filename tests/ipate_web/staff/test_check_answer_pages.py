"""Pages that say which sentence people misunderstand, and the button that counts answers."""

import re

import pytest
from django.urls import reverse

from accounting.models import Release
from accounting.services import release_record
from accounting.shares import share_free
from consent.models import CheckAnswers, Study
from consent.questions import KEYS
from consent.selectors import consent_form_in_force
from consent.services import check_answer_keep
from tests import factories
from tests.pages import as_, roles_fill, text, url
from tests.snapshots import built_once
from tests.training.runs import study_with_consents

pytestmark = pytest.mark.django_db


@pytest.fixture
@built_once
def study() -> Study:
    return roles_fill(study_with_consents("checks"))


def counted(study: Study, **right: int) -> None:
    """A count in which of a thousand answers to each question so many were right."""
    numbers = [{"question": key, "right": right.get(key, 500), "wrong": 1000 - right.get(key, 500)} for key in KEYS]
    content = {"form_version": 1, "sigma": 10.0, "questions": numbers}
    release_record(study=study, kind=Release.Kind.ANSWERS, content=content)


def test_before_a_count_the_editor_names_each_question_and_its_sentence(study: Study) -> None:
    for page in ("consent_forms", "consent_form_new"):
        html = text(as_("olga" if page == "consent_forms" else "committee").get(url(page, study)))
        assert "Answers were not counted yet." in html
        assert "What happens if I withdraw?" in html
        assert "My records are used for nothing new. Yes, from that moment." in html


def test_the_question_answered_worst_comes_first_with_its_interval(study: Study) -> None:
    counted(study, odds=310, access=930)
    page = text(as_("committee").get(url("consent_form_new", study)))
    assert "About 31 of 100 answered this right, between 29 and 33." in page
    places = [page.index(words) for words in ("what is that?", "What does high protection mean?", "Who sees my")]
    assert places == sorted(places)


def test_few_answers_are_said_to_be_hidden(study: Study) -> None:
    content = {"form_version": 1, "sigma": 76.0, "questions": [{"question": "odds", "right": 9, "wrong": -3}]}
    release_record(study=study, kind=Release.Kind.ANSWERS, content=content)
    assert "Too few answers: the noise hides how many were right." in text(
        as_("committee").get(url("consent_form_new", study))
    )


def test_an_operator_counts_and_nothing_stays(study: Study) -> None:
    holder, form = study.holders.earliest("pk"), consent_form_in_force(study)
    check_answer_keep(holder=holder, form=form, place=0, right=True)
    operator, address = as_("olga"), reverse("staff:check_answers", args=[study.slug])
    page = text(operator.get(url("consent_forms", study)))
    assert "with noise of standard deviation 76 in each number. That uses 1.0 % of the smallest cap" in page
    answer = operator.post(address, follow=True)
    assert answer.redirect_chain == [(url("consent_forms", study), 302)]
    assert "None of them is stored any more." in text(answer)
    assert CheckAnswers.objects.get().answered == 0
    assert share_free(study) == pytest.approx(0.99)
    assert "answers to check questions" in text(operator.get(url("ledger", study)))
    assert "Answers were counted before." in text(operator.get(url("consent_forms", study)))


def test_a_second_click_counts_no_answers_that_were_cleared(study: Study) -> None:
    """It would charge everybody again, and noise alone would take the place of what was counted."""
    check_answer_keep(holder=study.holders.earliest("pk"), form=consent_form_in_force(study), place=0, right=True)
    operator = as_("olga")
    page = operator.get(url("consent_forms", study)).text
    follows = re.search(r'name="follows" value="(\d+)"', page).group(1)
    for _ in range(2):
        answer = operator.post(reverse("staff:check_answers", args=[study.slug]), {"follows": follows}, follow=True)
    assert "Nothing was drawn again." in text(answer)
    assert Release.objects.filter(study=study).count() == 1
    assert share_free(study) == pytest.approx(0.99)


def test_the_committee_reads_what_was_counted_and_counts_nothing(study: Study) -> None:
    committee = as_("committee")
    assert "Count the answers" not in text(committee.get(url("consent_forms", study)))
    assert committee.post(reverse("staff:check_answers", args=[study.slug])).status_code == 403
    assert not Release.objects.exists()


@pytest.mark.slow
def test_no_page_says_how_many_answers_are_stored(study: Study) -> None:
    form, pages = consent_form_in_force(study), []
    for place, holder in enumerate([None, *study.holders.order_by("pk")]):
        if holder is not None:
            check_answer_keep(holder=holder, form=form, place=place % len(KEYS), right=bool(place % 2))
        page = as_("olga").get(url("consent_forms", study)).content.decode()
        pages.append(re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", page))
    assert len(set(pages)) == 1


def test_a_study_without_a_form_shows_nothing_of_it() -> None:
    study = factories.study_create("early")
    assert "What people understand" not in text(as_("olga").get(url("consent_forms", study)))
