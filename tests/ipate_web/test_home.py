"""The home page, sign-in and language; name, logo and notices of the installation, and the time zone of shown times."""

import csv
import errno
import io
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.formats import date_format, localize
from django.views import defaults

from consent.models import Study
from consent.services.accounts import administrator_set
from ipate_web.lists import Column, Reader
from ipate_web.middleware import COOKIE, reader_zone
from ipate_web.run_list import RUNS
from tests import factories
from tests.factories import user_create
from tests.pages import as_, url
from tests.training.runs import TABLE_RUN, run_draft, study_with_table
from training.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    return factories.study_open()


def signed_in(name: str, study: Study, role: str = "") -> Client:
    return as_(factories.member(study, name, role) if role else name)


def links(client: Client, path: str = "/") -> set[str]:
    """Return the labels of the navigation's links."""
    navigation = re.search(r'<nav class="site-nav".*?</nav>', client.get(path).content.decode(), re.DOTALL)
    return set(re.findall(r"<a [^>]*>(.*?)</a>", navigation.group()))


def test_a_holder_goes_straight_to_their_studies(study: Study) -> None:
    holder = signed_in("hanna", study)
    factories.holder_create(study, user=factories.user_create("hanna"))
    assert holder.get("/").url == reverse("consent:my_studies")
    assert links(holder, "/my/") == {"My studies", "My account"}


def test_a_role_finds_its_studies_and_no_others(study: Study) -> None:
    factories.study_open("elsewhere")
    guide = "Your first run"
    for role in ("operator", "committee", "auditor", "researcher"):
        client = signed_in(role, study, role)
        page = client.get("/").text
        assert "Study digits" in page and "Study elsewhere" not in page, role
        assert "Studies" in links(client)
        assert ("API tokens" in links(client)) is (role in ("operator", "researcher")), role
        assert (guide in page) is (role == "operator"), role
        if role == "operator":
            assert reverse("staff:import_new", args=[study.slug]) not in page, "a data steward imports"
    ada = factories.user_create("ada")
    administrator_set(user=ada, appointed=True, acting_user=None)
    assert links(as_(ada)) >= {"API tokens", "API docs", "Staff accounts"}
    assert "Ask a study" in as_("somebody").get("/").text


def test_signing_in_and_out(client: Client) -> None:
    assert "only as much as that person allows" in client.get("/").text and links(client) == {"Sign in"}
    assert "Email address or user name" in client.get("/sign-in/").text
    for name in ("hanna", "hanna@example.org"):
        factories.user_create(name)
        fields = {"login": name, "password": factories.PASSWORD, "next": "/my/"}
        wrong = client.post("/sign-in/", fields | {"password": "wrong"})
        assert "The user name or password is wrong" in wrong.text
        assert client.post("/sign-in/", fields).url == "/my/"
        assert client.get("/sign-out/").status_code == 405
        assert client.post("/sign-out/").url == "/"
        assert client.get("/my/").status_code == 302
    assert client.post("/sign-in/", fields | {"next": "https://example.org/"}).url == "/", "to no other site"


@pytest.mark.parametrize("view", [defaults.bad_request, defaults.permission_denied, defaults.page_not_found])
def test_errors_say_what_to_do_and_not_what_happened_inside(view, study: Study) -> None:
    page = view(HttpRequest(), exception=RuntimeError("a secret")).content.decode()
    assert "Go to the start page" in page and "secret" not in page
    assert "Something went wrong on our side" in render_to_string("500.html"), "without the part that may have failed"


def test_pages_carry_no_inline_code_and_forbid_it(study: Study) -> None:
    holder = signed_in("hanna", study)
    factories.holder_create(study, user=factories.user_create("hanna"))
    for path in ("/my/", "/my/digits/", "/my/digits/choice/"):
        response = holder.get(path)
        html = response.content.decode()
        assert "default-src 'self'" in response["Content-Security-Policy"]
        assert {"camera=()", "geolocation=()", "microphone=()"} <= set(response["Permissions-Policy"].split(", "))
        assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=|javascript:", html), path


def test_a_chosen_language_is_kept_on_every_page_and_after_signing_out(study: Study) -> None:
    client = signed_in("olga", study)
    page = "/studies/digits/runs/?status=draft"
    assert f'name="next" value="{page}"' in client.get(page).content.decode()
    response = client.post("/language/setlang/", {"language": "de", "next": page})
    assert response["Location"] == page
    assert int(client.cookies["django_language"]["max-age"]) > 30 * 24 * 3600
    assert "Keine passenden Läufe" in client.get(page).content.decode()
    client.post("/sign-out/")
    assert "Aus Ihren Daten lernen" in client.get("/").content.decode()


@pytest.mark.parametrize("method", ["TRACE", "PROPFIND"])
def test_unknown_http_methods_are_not_allowed(client: Client, method: str) -> None:
    client.force_login(factories.user_create("hanna"))
    for address in ("/", "/healthz", "/readyz", "/privacy/", "/glossary/", "/my/", "/join/x/", "/api/v1/"):
        assert client.generic(method, address).status_code == 405, address
    assert client.generic(method, "/sign-in/").status_code == 302


NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def shown(cookie: str | None) -> str:
    """Return noon in UTC as a page shows it."""
    request = RequestFactory().get("/")
    if cookie is not None:
        request.COOKIES[COOKIE] = cookie
    page = reader_zone(lambda request: HttpResponse(localize(timezone.localtime(NOON).strftime("%H:%M %Z"))))
    return page(request).content.decode()


def test_times_are_in_the_browsers_zone() -> None:
    assert shown("Europe/Berlin") == "14:00 CEST"
    assert timezone.get_current_timezone_name() == "UTC"  # the next reader starts with the default


@pytest.mark.parametrize("cookie", [None, "", "Nowhere", "Europe", "../../etc/passwd", "/etc/localtime"])
def test_an_unknown_zone_means_the_sites_zone(cookie: str | None) -> None:
    assert shown(cookie) == "12:00 UTC"


@pytest.mark.parametrize(("language", "said"), [("en", "2026-07-01 12:00"), ("de", "01.07.2026 12:00")])
def test_dates_cannot_be_misread(language: str, said: str) -> None:
    with translation.override(language):
        assert date_format(NOON, "SHORT_DATETIME_FORMAT") == said


@pytest.fixture
def broken(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Return a client of a site whose database is unavailable."""

    def away(*_: object, **__: object) -> Any:
        raise OperationalError("connection refused")

    client.raise_request_exception = False
    monkeypatch.setattr("django.db.models.sql.compiler.SQLCompiler.execute_sql", away)
    return client


def test_pages_say_that_the_database_is_unavailable(broken: Client) -> None:
    broken.cookies["sessionid"] = "a" * 32
    for response in (
        broken.get("/my/"),
        broken.post("/sign-in/", {"login": "ada", "password": "a long password"}),
        broken.post("/join/", {"code": "AAAA"}),
    ):
        assert (response.status_code, response["Retry-After"]) == (503, "30")
        assert "database is not responding" in response.content.decode()


def test_programs_get_a_problem_document_while_the_database_is_unavailable(broken: Client) -> None:
    response = broken.get("/api/v1/studies", headers={"Authorization": "Bearer ipate_0123456789abcdef"})
    assert (response.status_code, response["Retry-After"]) == (503, "30")
    assert response["Content-Type"] == "application/problem+json"
    assert "Send the request again later" in response.json()["detail"]


def test_programs_get_a_problem_document_after_any_other_failure(client, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("a defect")

    client.raise_request_exception = False
    monkeypatch.setattr("ipate_web.api.models.KeyList.get", fail)
    response = client.get("/api/v1/keys")
    assert (response.status_code, response["Content-Type"]) == (500, "application/problem+json")
    assert "a defect" not in response.content.decode()


def test_a_full_disk_is_reported_as_unavailable(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    client.raise_request_exception = False
    failing = {"/api/v1/keys": "ipate_web.api.models.KeyList.get", "/glossary/": "consent.wording.glossary.render"}
    for address, name in failing.items():
        monkeypatch.setattr(name, fail)
        response = client.get(address)
        assert (response.status_code, response["Retry-After"]) == (503, "30"), address
        assert "disk is full" in response.content.decode()


def test_the_schema_is_rendered_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = client.get("/api/schema?format=json")
    monkeypatch.setattr("drf_spectacular.generators.SchemaGenerator.get_schema", None)
    again = client.get("/api/schema?format=json")
    assert first.content == again.content and first["ETag"] == again["ETag"]
    unchanged = client.get("/api/schema?format=json", headers={"If-None-Match": first["ETag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


@pytest.fixture
def drafts() -> list[Run]:
    study = study_with_table()
    return [run_draft(study, title=title, **TABLE_RUN) for title in ("Bee", "ant", "=cat")]


def test_a_column_is_described_in_one_place(drafts: list[Run], django_assert_num_queries: Any) -> None:
    """The query loads what the column's cells read, and the column is on the page and in the file."""
    seed = Column("seed", "Seed", lambda run, _reader: f"<{run.batch_size}>", fields=("batch_size",))
    listing = replace(RUNS, columns=(*RUNS.columns, seed))
    study, request = drafts[0].study, RequestFactory().get("/", {"columns": ["seed"], "sort": "title"})
    with django_assert_num_queries(3):  # names of proposers, number of rows, the rows
        page = listing.page(request, study.runs.all(), Reader(study))
        assert [column.name for column, _order, _direction in page.headings] == ["title", "seed"]
        assert all(row.endswith(f"<td>&lt;{drafts[0].batch_size}&gt;</td>") for row in page.rows)
    assert [re.sub("<.*?>", "", row.split("</th>")[0]) for row in page.rows] == ["=cat", "ant", "Bee"]
    assert "plan" in page.objects[0].get_deferred_fields()
    rows = list(csv.reader(io.StringIO("".join(page.csv()))))
    assert [row[0] for row in rows] == ["Run", "'=cat", "ant", "Bee"]


def test_a_reader_chooses_columns_order_rows_and_a_file(drafts: list[Run]) -> None:
    client, address = Client(), url("runs", drafts[0].study)
    client.force_login(user_create("olga"))
    page = client.get(address, {"sort": "proposed", "columns": ["status", "proposed"], "size": "20"}).text
    assert re.findall(r'aria-sort="(\w+)"', page) == ["ascending"] and "sort=-proposed" in page
    assert ">Method</th>" not in re.sub(r"\s+", "", page) and page.index("Bee") < page.index("=cat")
    assert client.get(address, {"sort": "-proposed"}).status_code == 200, "the default order has a name, too"
    for wrong in ({"sort": "seed"}, {"columns": "plan"}, {"size": "1000000"}, {"status": "lost"}):
        answer = client.get(address, wrong)
        assert answer.status_code == 422 and "Bee" in answer.text, wrong
    file = client.get(address, {"format": "csv", "search": "ant"})
    assert file["Content-Disposition"] == f'attachment; filename="{drafts[0].study.slug}-runs.csv"'
    rows = [row.split(",")[:2] for row in file.getvalue().decode().splitlines()]
    assert rows == [["Run", "Status"], ["ant", "draft"]]


def test_filters_of_a_page_and_of_the_api_are_the_same(drafts: list[Run]) -> None:
    runs = drafts[0].study.runs.all()
    form, parameters = RUNS.form(QueryDict(), runs, Reader(drafts[0].study)), RUNS.parameters("Parameters", "")().fields
    assert set(parameters) - set(form.fields) == {"study", "variant"}
    assert set(form.fields) - set(parameters) == {"columns", "size"}
