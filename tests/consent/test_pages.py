"""The data holders' pages."""

import math
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from accounting.caps import caps_of
from consent import selectors
from consent.models import CheckAnswers, DataHolder, Study
from consent.promises.questions import questions
from tests import factories
from tests.consent.conftest import Decide, answer, events, url
from tests.factories import user_create
from tests.pages import text


@pytest.fixture
def browser(hanna: User) -> Client:
    """Return Hanna, signed in, in a client that checks for cross-site request forgery like the real site."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(hanna)
    return client


def rows(response) -> list[list[str]]:
    """Return the cells of each row of a page's tables."""
    found = re.findall(r"<tr>(.*?)</tr>", response.text, re.DOTALL)
    return [[cell.strip() for cell in re.findall(r"(?s)<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in found]


def token(client: Client, path: str) -> str:
    return re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get(path).content.decode()).group(1)


def submit(client: Client, name: str, holder: DataHolder, choice: str = "", **data: object):
    """Send the decision form as it is on the study's page."""
    study, last = holder.study, selectors.promise_last(holder)
    sent = {"csrfmiddlewaretoken": token(client, url("study", study)), "promise": repr(last.epsilon) if last else ""}
    return client.post(url(name, study), answer(study, choice, **sent | data))


def checked(client: Client, holder: DataHolder, choice: str):
    """Return the page that asks to confirm a choice."""
    return client.get(submit(client, "study", holder, choice).url)


def test_the_study_page_says_who_asks_for_what_and_the_odds(browser: Client, holder: DataHolder) -> None:
    response = browser.get(url("study", holder.study))
    caps = caps_of([1.0, 2.0, 3.0], holder.study.delta)
    average, low = (math.ceil(float(cap) / float(caps[0])) for cap in caps[1:])
    assert (average, low) == (4, 8)
    for part in (
        *("University Hospital", "Learn to read handwritten digits.", "study@example.org", "Version 1 of this"),
        "If both answers are equally likely beforehand,",
        "Took part? 56 in 100 Which records? 61 in 100",
        "Took part? 60 in 100 Which records? 70 in 100",
        "Took part? 65 in 100 Which records? 77 in 100",
        "Took part? 50 in 100 Which records? 50 in 100 Your records are not used.",
        "General facts about people like you can be found out whether or not you take part.",
        f"up to {average} times (average) or {low} times (low) as much from your records as at high",
        *("sent over a network", "your family", "several pseudonyms", "other studies"),  # not covered by the limit
        *("You can complain to", "no other consequences", "download a copy", "corrected", "erased"),
        *("You can withdraw at any time.", "No computer program makes decisions about you here."),
    ):
        assert part in text(response), part
    assert rows(response)[1:] == [
        ["High protection", "1", "0.268", "56", "61"],
        ["Average protection", "2", "0.502", "60", "70"],
        ["Low protection", "3", "0.719", "65", "77"],
    ]
    assert "ε" not in re.sub(r"<details>.*?</details>", "", response.text, flags=re.DOTALL), "only experts see ε"


def test_odds_are_always_shown_with_their_condition(browser: Client, holder: DataHolder, give: Decide) -> None:
    give(holder, "HIGH")
    pages = [url(name, holder.study) for name in ("study", "choice", "uses")]
    for page in (*pages, url("my_studies"), reverse("consent:receipt", args=[holder.study.slug, 1])):
        html = text(browser.get(page))
        for match in re.finditer(r"(?:times|\d\d) in 100", html):
            assert "equally likely beforehand" in html[max(match.start() - 900, 0) : match.end() + 600], (page, match)


def test_all_pages_show_the_same_odds(browser: Client, hanna: User) -> None:
    study, right = factories.study_open("everywhere", delta=1e-3), 58
    holder = factories.holder_create(study, user=hanna)
    html = [browser.get(url("study", study)), checked(browser, holder, "HIGH")]
    submit(browser, "decide", holder, "HIGH")
    html += [browser.get(url("choice", study)), browser.get(reverse("consent:receipt", args=[study.slug, 1]))]
    assert f"Took part? {right} in 100" in " ".join(text(html[0]).split())
    assert [f"at most {right} times in 100 instead of 50" in text(response) for response in html[1:]] == [True] * 3
    export = browser.get(url("export", study)).json()
    assert export["decisions"][0]["extension"]["right_guesses_in_100"] == right
    browser.force_login(factories.member(study, "carla", "committee"))
    page = browser.get(reverse("staff:policies", args=[study.slug]))
    assert ["High protection", "1", f"{right} in 100"] in [row[:3] for row in rows(page)]


def test_one_of_four_equal_answers_is_needed_and_none_is_preselected(browser, holder, give) -> None:
    html = browser.get(url("study", holder.study)).text
    assert re.findall(r'type="radio" name="choice"[^>]*?\svalue="(\w+)"', html) == ["HIGH", "AVERAGE", "LOW", "NONE"]
    assert " checked" not in html
    for step, choice in (("study", ""), ("decide", "HIGHEST")):
        refused = submit(browser, step, holder, choice)
        assert refused.status_code == 422 and "Choose one of the four" in text(refused)
    assert events(holder) == []
    give(holder, "LOW")
    response = browser.get(url("study", holder.study))
    assert "You take part: low protection." in text(response)
    assert " checked" not in response.text


def opened(client: Client, holder: DataHolder, question: str, right: bool, also: dict[str, str] | None = None):
    """Send what the page sends when someone opens an answer."""
    page = client.get(url("study", holder.study)).content.decode()
    csrf = re.search(r'"csrfmiddlewaretoken": "(\w+)"', page).group(1)
    request = next(each for each in questions(holder, 56) if each.key == question)
    place = [answer.right for answer in request.answers].index(right)
    data = {"csrfmiddlewaretoken": csrf, "question": question, "answer": str(place), **(also or {})}
    return client.post(url("check_answer", holder.study), data)


def kept(client: Client, holder: DataHolder) -> list[dict[str, object]]:
    return client.get(url("export", holder.study)).json()["check_questions"]


def test_the_first_answer_to_a_check_question_is_kept_and_private(browser: Client, holder: DataHolder) -> None:
    for wrong in ({"question": "other"}, {"answer": "2"}, {"answer": ""}, {"answer": "x"}):
        assert opened(browser, holder, "odds", True, wrong).status_code == 400
    assert kept(browser, holder) == []
    for question, right in (("odds", False), ("odds", True), ("withdrawal", True)):
        assert opened(browser, holder, question, right).status_code == 204
    right = {"odds": False, "withdrawal": True}
    assert kept(browser, holder) == [{"form_version": 1, "first_answer_right": right, "counted": False}]
    assert "For each question, the site stores whether the first" in text(browser.get(url("study", holder.study)))
    csrf = token(browser, url("study", holder.study))
    Study.objects.filter(pk=holder.study_id).update(closed_at="2026-01-01T00:00:00Z")
    data = {"csrfmiddlewaretoken": csrf, "question": "odds", "answer": "0"}
    CheckAnswers.objects.all().delete()
    assert browser.post(url("check_answer", holder.study), data).status_code == 204
    assert not CheckAnswers.objects.exists(), "a closed study stores no answers"


def test_no_place_among_the_answers_is_always_the_right_one(study: Study) -> None:
    def right_places(holder: DataHolder) -> list[int]:
        return [[answer.right for answer in question.answers].index(True) for question in questions(holder, 56)]

    holders = [factories.holder_create(study, f"P-{n}") for n in range(30)]
    places = [right_places(holder) for holder in holders]
    assert [sum(each) for each in places] == [2] * 30, "two first and two second for everyone"
    assert all({each[n] for each in places} == {0, 1} for n in range(4)), "different for different people"
    assert places == [right_places(holder) for holder in holders], "the same each time"


def test_a_choice_takes_effect_only_after_it_was_checked(browser: Client, holder: DataHolder) -> None:
    page = checked(browser, holder, "HIGH")
    assert page.status_code == 200
    assert "Check your answer" in text(page)
    assert events(holder) == []
    for choice in ("NONE", "HIGH", "HIGH", "NONE", "NONE"):  # a second click changes nothing
        done = submit(browser, "decide", holder, choice)
        assert (done.status_code, done.url) == (302, url("choice", holder.study))
        if len(events(holder)) == 1:
            shown = text(browser.get(done.url))
            assert "You do not take part." in shown and "None of your records are stored here." in shown
    assert events(holder) == [("refused", ""), ("given", "HIGH"), ("withdrawn", "")]


def test_a_second_click_shows_the_decision_that_the_first_recorded(browser: Client, holder: DataHolder) -> None:
    for choice in ("HIGH", "LOW", "NONE", "HIGH"):
        checked(browser, holder, choice)
        last = selectors.promise_last(holder)
        sent = answer(holder.study, choice, promise=repr(last.epsilon) if last else "", weaker="on")
        sent["csrfmiddlewaretoken"] = token(browser, url("check", holder.study))
        for _click in range(2):
            done = browser.post(url("decide", holder.study), sent)
            assert (done.status_code, done.url) == (302, url("choice", holder.study))
        page = text(browser.get(done.url))
        assert page.count("Your decision is recorded") == 1
        assert "has changed" not in page and "already decided" not in page
    assert events(holder) == [("given", "HIGH"), ("changed", "LOW"), ("withdrawn", ""), ("given", "HIGH")]
    checked(browser, holder, "HIGH")
    assert "This is what you had already decided" in text(browser.get(submit(browser, "decide", holder, "HIGH").url))


@pytest.mark.parametrize("what", ["form", "policy"])
def test_changes_since_the_page_was_opened_must_be_read_first(browser: Client, holder: DataHolder, what: str) -> None:
    if what == "form":
        factories.form_publish(holder.study, {"en": "We ask for more now."})
    else:
        factories.policy_approve(holder.study, 2, 3, 4)
    for step in ("study", "decide"):
        response = submit(browser, step, holder, "HIGH", **{f"{what}_version": 1})
        assert response.status_code == 422
        assert {"form": "We ask for more now.", "policy": "68 in 100"}[what] in text(response)
        assert "has changed since you opened this page" in response.text
        assert f'name="{what}_version" value="2"' in response.text
        assert " checked" not in response.text
    assert events(holder) == []


def test_holder_asked_again_reads_changes_since_their_consent(browser, holder, give) -> None:
    give(holder, "HIGH")
    factories.form_publish(holder.study, {"en": factories.FORM["en"] + "\n\nAnd **more**."}, renewal="not_asked")
    factories.form_publish(holder.study, {"en": factories.FORM["en"] + "\n\nAnd **much more**."}, renewal="required")
    for name in ("study", "choice"):
        page = text(browser.get(url(name, holder.study)))
        assert "You agreed to version 1. Version 3 differs in these lines: added: And much more." in page
        changed = page[page.index("these lines:") :]
        assert "read handwriting" not in changed[:80], "unchanged text is left out"
    submit(browser, "decide", holder, "HIGH")
    assert "differs in these lines" not in text(browser.get(url("choice", holder.study)))


def test_withdrawing_takes_one_page_and_one_click(browser: Client, holder: DataHolder, give: Decide) -> None:
    path = url("withdraw", holder.study)
    assert browser.get(path).url == url("choice", holder.study), "nothing to withdraw yet"
    give(holder, "HIGH")
    page = browser.get(path)
    assert "Results released before that cannot be taken back" in text(page)
    assert "will then be erased here within a day, unless you tell us to keep them" in text(page)
    assert events(holder) == [("given", "HIGH")]

    csrf = {"csrfmiddlewaretoken": token(browser, path)}
    for _ in range(2):
        assert browser.post(path, csrf).url == url("choice", holder.study)
    assert events(holder) == [("given", "HIGH"), ("withdrawn", "")]
    assert "You withdrew." in text(browser.get(url("choice", holder.study)))


PAGES = ["study", "choice", "withdraw"]


def test_no_other_role_can_open_a_holders_pages(client: Client, holder: DataHolder) -> None:
    for page in (*PAGES, "decide"):
        path = url(page, holder.study)
        response = client.post(path) if page == "decide" else client.get(path)
        assert response.url == f"{reverse('account_login')}?next={path}"
    for who in ("another", "olga", "root"):
        client.force_login(user_create(who, is_superuser=who == "root"))
        for page in PAGES:
            assert client.get(url(page, holder.study)).status_code == 404, (who, page)
        for page in ("study", "decide", "withdraw"):
            assert client.post(url(page, holder.study), {"choice": "LOW"}).status_code == 404, (who, page)
        assert client.get("/my/no-such-study/").status_code == 404
    assert events(holder) == []


def test_no_decision_is_taken_for_another_site_and_no_cache_keeps_pages(browser, holder, give) -> None:
    give(holder, "HIGH")
    data = {"choice": "LOW", "form_version": 1, "policy_version": 1}
    for page in ("study", "decide", "withdraw"):
        response = browser.post(url(page, holder.study), data)
        assert response.status_code == 403
        assert "Your change was not saved" in text(response)
    assert events(holder) == [("given", "HIGH")]
    for page in PAGES:
        assert "no-store" in browser.get(url(page, holder.study))["Cache-Control"]


def test_deciding_needs_a_post(browser: Client, holder: DataHolder) -> None:
    refused = submit(browser, "decide", holder)
    assert refused.status_code == 422
    here = re.search(r'name="next" value="([^"]+)"', refused.content.decode()).group(1)
    # Choosing another language there requests that address, and shows the question again.
    assert browser.get(here, {"choice": "HIGH"})["Location"] == url("study", holder.study)
    assert events(holder) == []
    assert browser.post(url("choice", holder.study), {"csrfmiddlewaretoken": token(browser, "/my/")}).status_code == 405
