"""Features of all staff pages: the search, and lists whose filters readers save."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import caches
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from common.models import Pulse
from consent.models import DataHolder, Study, WebhookEndpoint
from consent.services import consent_withdraw
from consent.services.holders import holder_level_access
from consent.services.invitations import link_reissue
from consent.services.webhooks import endpoint_test
from ipate_web.accounts.models import SavedList
from ipate_web.staff.pages import study_state
from ipate_web.staff.saved import MOST
from tests.factories import study_create, user_create
from tests.pages import as_, study_with_finished_run, study_with_roles, text, url
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, batch_ask, run_ask
from tests.training.runs import TABLE_RUN, run_approve, run_draft, run_teach, study_with_table
from training.models import Run, Verification
from training.services.students import student_withdraw
from training.watch import watch_of

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
    assert "Release register" not in found("researcher", "release reg", study), "pages, depending on permissions"
    assert "Nothing found." in found("operator", "release reg"), "pages of the current study"
    elsewhere = study_with_table("other", title="Elsewhere")
    run_draft(elsewhere, title="Lengths of others", **TABLE_RUN)
    assert "others" not in found("researcher", "lengths") and "Nothing found." in found("operator", "others", elsewhere)
    assert as_("stranger").post(SEARCH, {"words": "lengths"}).status_code == 403
    assert "<main" not in as_("operator").post(SEARCH, {"words": "lengths", "part": "1"}).text


def test_the_search_speaks_the_readers_language_and_leads_to_models() -> None:
    run = study_with_finished_run().runs.get()
    Study.objects.filter(pk=run.study_id).update(translations={"de": {"title": "Längen erkennen"}})
    german = Client(headers={"accept-language": "de"})
    german.force_login(user_create("olga"))
    groups = german.post(SEARCH, {"words": "längen"}).context["groups"]
    assert [(hit.text, hit.url) for group in groups for hit in group.hits] == [
        ("Längen erkennen", url("study", run.study))
    ]
    groups = german.post(SEARCH, {"words": str(run.pk)}).context["groups"]
    found = [(hit.url, hit.where) for group in groups for hit in group.hits]
    assert found == [(url(page, run), "Längen erkennen") for page in ("run", "model")]
    assert "Längen erkennen" in german.get(url("ledger_report", run)).text


def test_stewards_find_people_by_their_whole_code_and_open_their_pages(study: Study) -> None:
    holder = DataHolder.objects.filter(study=study).first()
    code, address = holder.pseudonym, reverse("staff:person", args=[study.slug, holder.public_id])
    assert f'href="{address}"' in as_("steward").post(SEARCH, {"words": code}).text
    assert "Nothing found." in found("steward", code[:-1]), "a partial code finds nobody"
    for person in ("operator", "committee", "researcher", "auditor"):
        assert code not in found(person, code)
    look = f"{url('holder_look', study)}?person={holder.public_id}"
    assert look in as_("steward").get(address).text and f'value="{code}"' in as_("steward").get(look).text


def test_a_reader_saves_a_choice_of_a_list_and_deletes_it(study: Study) -> None:
    client, address = as_("researcher"), url("list_save", study)
    sent = {"page": "runs", "name": "Drafts", "query": "status=draft&search=&page=2"}
    for _ in range(2):
        assert client.post(address, sent)["Location"] == url("runs", study) + "?status=draft"
    page = client.get(url("runs", study)).text
    assert SavedList.objects.get().query == "status=draft" and "?status=draft" in page
    assert "Drafts" not in as_("operator").get(url("runs", study)).text, "other people have separate lists"
    for wrong in ({"page": "invitations"}, {"page": ""}):
        assert client.post(address, sent | wrong).status_code == 404
    client.post(address, sent | {"name": " "})
    for number in range(MOST):
        client.post(address, sent | {"name": f"Number {number}"})
    assert SavedList.objects.count() == MOST
    client.post(address, {"page": "runs", "name": "Drafts"})
    assert not SavedList.objects.filter(name="Drafts").exists()


def test_the_header_shows_the_state_of_the_study_and_its_warnings(study: Study, django_assert_max_num_queries) -> None:
    def header(person: str) -> str:
        return text(as_(person).get(url("runs", study)).text.partition("<header")[2].partition("</header")[0])

    def state() -> str:
        with django_assert_max_num_queries(2):
            return study_state(study, watch).words

    assert "Asking people" in header("researcher") and "warning" not in header("operator")
    Verification.objects.create(study=study, verified_at=timezone.now(), faults=1, fault_for_deciders=True)
    Study.objects.filter(pk=study.pk).update(budget_warning=0.1)
    Pulse.objects.create(name=f"budget {study.pk}", at=timezone.now(), note="HIGH1")
    shown = header("operator")
    assert (
        "2 warnings" in shown and "The verification found a fault." in shown and "A privacy group has little" in shown
    )
    page = as_("operator").get(url("runs", study)).text
    assert f'href="{url("ledger_check", study)}"' in page and f'href="{url("study", study)}#budgets"' in page
    assert "warning" not in header("researcher"), "only people who see the dashboard"
    study.refresh_from_db()
    watch = watch_of(study)
    assert state() == "asking people"
    study.closed_at = timezone.now()
    assert state() == "closed"
    study, watch = study_create("later"), replace(watch, locked=True)
    assert state() == "locked"
    watch = None
    assert state() == "in preparation"


#: Page of a list → a person who may see it, and a column by which it can be sorted.
LISTS = {
    "changes": ("auditor", "number"),
    "holder_looks": ("auditor", "when"),
    "holder_looks?record=links": ("auditor", "when"),
    "disposals": ("steward", "when"),
    "webhooks": ("operator", "when"),
    "members": ("auditor", "when"),
}


def test_every_list_is_sorted_filtered_and_downloaded(study: Study) -> None:
    steward, holders = user_create("steward"), study.holders.order_by("pk")
    for holder in holders[:2]:
        holder_level_access(study=study, pseudonym=holder.pseudonym, acting_user=steward, reason="They called.")
        link_reissue(study=study, pseudonym=holder.pseudonym, acting_user=steward, reason="Lost the letter.")
        consent_withdraw(holder=holder, acting_user=None)
    operator = user_create("operator")
    endpoint = WebhookEndpoint.objects.create(study=study, url="https://example.org/", events=[], created_by=operator)
    for _ in range(2):
        endpoint_test(endpoint=endpoint)
    for name, (person, column) in LISTS.items():
        page, _, record = name.partition("?")
        client, address = as_(person), url(page, study)
        chosen = {"record": "links", "size": "200"} if record else {"size": "200"}
        orders = [client.get(address, chosen | {"sort": sort}) for sort in (column, f"-{column}")]
        first, last = ((page.context.get("changes") or page.context["list"]).rows for page in orders)
        assert len(first) > 1 and first == last[::-1], name
        file = client.get(address, chosen | {"format": "csv"}).getvalue().decode().splitlines()
        assert len(file) == len(first) + 1, name
        assert "No matching entries" in client.get(address, chosen | {"until": "1999-12-31"}).text, name


#: Language and time zone; the two zones in the Pacific are never on the same day.
READERS = (("en", "Pacific/Kiritimati"), ("en", "Pacific/Pago_Pago"), ("de", "Europe/Berlin"))
#: A cache that stores nothing.
NOTHING_KEPT = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="\w+"')


def states(fields: dict[str, Any]) -> Iterator[Run]:
    """Yield a run after every event that changes the texts about it."""
    run, olga = run_draft(study_with_table(), title="A first title", **fields), user_create("olga")
    yield run
    Run.objects.filter(pk=run.pk).update(title="A second title")
    run.refresh_from_db()
    yield run
    run = run_approve(run=run, acting_user=olga, share=0.5)
    yield run
    for work in (run_teach, batch_ask, batch_ask, run_ask):
        run = work(run)
        yield run
    assert run.status == Run.Status.FINISHED and run.student is not None
    student_withdraw(run=run, version=run.student.version, reason="The labels were wrong.", acting_user=olga)
    run.refresh_from_db()
    yield run


def reader(language: str, zone: str) -> Client:
    client = Client(headers={"accept-language": language})
    client.cookies["zone"] = zone
    client.force_login(user_create("olga"))
    return client


def pages(run: Run, client: Client) -> dict[str, str]:
    """Return the text of every page with cached parts, without the tokens of its forms."""
    addresses = [url("study", run.study), url("runs", run.study), url("run", run), url("run_live", run)]
    found = {address: client.get(address) for address in addresses}
    assert all(page.status_code == 200 for page in found.values())
    return {address: TOKEN.sub("", page.text) for address, page in found.items()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("fields", [TABLE_RUN, ASKING_RUN, SAMPLED_RUN], ids=["pate", "neighbours", "sampled"])
def test_pages_say_the_same_with_kept_parts_as_without(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In each state of a run, the cache contains parts of earlier states.

    A finished run, of which everything is shown, is viewed by different readers in turn.
    """
    caches["template_fragments"].clear()
    readers = [reader(*each) for each in READERS]
    for run in states(fields):
        looking = readers if run.status == Run.Status.FINISHED else readers[:1]
        with monkeypatch.context() as patch:
            now = timezone.now()
            patch.setattr(timezone, "now", lambda now=now: now)  # the remaining time of a run is shown
            found = [pages(run, each) for each in looking]
            with override_settings(CACHES=settings.CACHES | {"template_fragments": NOTHING_KEPT}):
                assert found == [pages(run, each) for each in looking], run.status
