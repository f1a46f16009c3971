"""What all pages of staff share: the search, and lists that readers save."""

from typing import Any

import pytest
from django.urls import reverse

from consent.models import DataHolder, Study
from ipate_web.accounts.models import SavedList
from ipate_web.staff.saved import MOST
from tests.pages import as_, study_with_roles, text, url
from tests.training.runs import TABLE_RUN, run_draft, study_with_table

pytestmark = pytest.mark.django_db
SEARCH = "/search/"


@pytest.fixture
def study() -> Study:
    study = study_with_roles()
    run_draft(study, title="Tell lengths apart", **TABLE_RUN)
    return study


def found(person: str, words: str, study: Study | None = None, **more: Any) -> str:
    sent = {"words": words, "study": study.slug if study else ""} | more
    return text(as_(person).post(SEARCH, sent)).partition("look them up.")[2]


def test_the_search_finds_what_a_reader_may_open_and_nothing_else(study: Study) -> None:
    assert "Tell lengths apart" in found("researcher", "LENGTHS tell")
    assert "Tell lengths apart" in found("operator", str(study.runs.get().pk))
    assert study.title in found("auditor", study.slug)
    dataset = study.datasets.filter(kind="private").get()
    assert dataset.name in found("operator", dataset.name) and dataset.name not in found("researcher", dataset.name)
    assert "Release register" in found("operator", "release reg", study)
    assert "Release register" not in found("researcher", "release reg", study), "pages by permission"
    assert "Nothing found." in found("operator", "release reg"), "pages of the study one is in"
    elsewhere = study_with_table("other", title="Elsewhere")
    run_draft(elsewhere, title="Lengths of others", **TABLE_RUN)
    assert "others" not in found("researcher", "lengths") and "Nothing found." in found("operator", "others", elsewhere)
    assert as_("stranger").post(SEARCH, {"words": "lengths"}).status_code == 403
    assert "<main" not in as_("operator").post(SEARCH, {"words": "lengths", "part": "1"}).text


def test_people_are_found_by_their_whole_code_by_those_who_look_them_up(study: Study) -> None:
    code = DataHolder.objects.filter(study=study).first().pseudonym
    page = as_("steward").post(SEARCH, {"words": code})
    assert (
        f'name="pseudonym" value="{code}"' in page.text and reverse("staff:holder_look", args=[study.slug]) in page.text
    )
    assert "Nothing found." in found("steward", code[:-1]), "a part of a code finds nobody"
    for person in ("operator", "committee", "researcher", "auditor"):
        assert code not in found(person, code)
    opened = as_("steward").post(url("holder_look", study), {"pseudonym": code})
    assert opened.status_code == 200 and f'value="{code}"' in opened.text, "a reason is asked there"


def test_a_reader_saves_a_choice_of_a_list_and_deletes_it(study: Study) -> None:
    client, address = as_("researcher"), url("list_save", study)
    sent = {"page": "runs", "name": "Drafts", "query": "status=draft&search=&page=2"}
    for _ in range(2):
        assert client.post(address, sent)["Location"] == url("runs", study) + "?status=draft"
    page = client.get(url("runs", study)).text
    assert SavedList.objects.get().query == "status=draft" and "?status=draft" in page
    assert "Drafts" not in as_("operator").get(url("runs", study)).text, "others have their own"
    for wrong in ({"page": "invitations"}, {"page": ""}):
        assert client.post(address, sent | wrong).status_code == 404
    client.post(address, sent | {"name": " "})
    for number in range(MOST):
        client.post(address, sent | {"name": f"Number {number}"})
    assert SavedList.objects.count() == MOST
    client.post(address, {"page": "runs", "name": "Drafts"})
    assert not SavedList.objects.filter(name="Drafts").exists()
