"""Tests of the home page, sign-in and language choice."""

import re

import pytest
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.test import Client
from django.urls import reverse
from django.views import defaults

from consent import services
from consent.models import Study
from consent.services.accounts import administrator_set
from tests import factories
from tests.pages import as_
from tests.training.runs import TABLE_RUN, run_draft, study_with_table
from training.services.head_counts import head_counts_enter

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    return factories.study_open()


def signed_in(name: str, study: Study, role: str = "") -> Client:
    user = factories.user_create(name)
    if role:
        services.membership_add(study=study, user=user, role=role, acting_user=None)
    return as_(user)


def links(client: Client, path: str = "/") -> set[str]:
    """The words of the navigation's links."""
    navigation = re.search(r'<nav class="site-nav".*?</nav>', client.get(path).content.decode(), re.DOTALL)
    return set(re.findall(r"<a [^>]*>(.*?)</a>", navigation.group()))


def test_a_holder_goes_straight_to_their_studies(study: Study) -> None:
    holder = signed_in("hanna", study)
    factories.holder_create(study, user=factories.user_create("hanna"))
    assert holder.get("/").url == reverse("consent:my_studies")
    assert links(holder, "/my/") == {"My studies", "My account"}


def test_the_home_page_tells_people_newest_run_and_share_left() -> None:
    study = study_with_table("digits")
    client = signed_in("otto", study, "operator")
    assert "Newest run" not in client.get("/").content.decode()
    counts = {"HIGH": 120, "AVERAGE": 310, "LOW": 0}
    head_counts_enter(study=study, acting_user=factories.user_create("otto"), counts=counts)
    run = run_draft(study, **TABLE_RUN)
    page = client.get("/").content.decode()
    assert ">430 people; 100.0 % of every cap is free<" in page and f"/runs/{run.pk}/" in page
    page = signed_in("rita", study, "researcher").get("/").content.decode()
    assert run.title in page and "430" not in page and "of every cap" not in page


def test_a_role_finds_its_studies_and_no_others(study: Study) -> None:
    factories.study_open("elsewhere")
    guide = "Your way to a first run"
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
    assert "Ask the operator" in as_("somebody").get("/").text


def test_signing_in_and_out(client: Client) -> None:
    assert "only as much as each" in client.get("/").text and links(client) == {"Sign in"}
    assert "E-mail address or user name" in client.get("/sign-in/").text
    for name in ("hanna", "hanna@example.org"):
        factories.user_create(name)
        fields = {"login": name, "password": factories.PASSWORD, "next": "/my/"}
        wrong = client.post("/sign-in/", fields | {"password": "wrong"})
        assert "There is no account with this name and this password." in wrong.text
        assert client.post("/sign-in/", fields).url == "/my/"
        assert client.get("/sign-out/").status_code == 405
        assert client.post("/sign-out/").url == "/"
        assert client.get("/my/").status_code == 302
    assert client.post("/sign-in/", fields | {"next": "https://example.org/"}).url == "/", "to no other site"


@pytest.mark.parametrize("view", [defaults.bad_request, defaults.permission_denied, defaults.page_not_found])
def test_errors_say_what_to_do_and_not_what_happened_inside(view, study: Study) -> None:
    page = view(HttpRequest(), exception=RuntimeError("a secret")).content.decode()
    assert "Go to the start page" in page and "secret" not in page
    assert "Something went wrong on our side" in render_to_string("500.html"), "without what may have failed"


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
    assert "Kein Lauf ist so" in client.get(page).content.decode()
    client.post("/sign-out/")
    assert "Aus Ihren Daten lernen" in client.get("/").content.decode()


@pytest.mark.parametrize("method", ["TRACE", "PROPFIND"])
def test_methods_that_no_page_knows_are_not_allowed(client: Client, method: str) -> None:
    client.force_login(factories.user_create("hanna"))
    for address in ("/", "/healthz", "/readyz", "/privacy/", "/glossary/", "/my/", "/join/x/", "/api/v1/"):
        assert client.generic(method, address).status_code == 405, address
    assert client.generic(method, "/sign-in/").status_code == 302


def test_a_page_that_is_not_allowed_names_who_can_change_that(study: Study) -> None:
    researcher = signed_in("rita", study, "researcher")
    of_study = researcher.get(reverse("staff:members", args=[study.slug]))
    assert of_study.status_code == 403 and "Your role in this study" in of_study.text
    for page in ("queue", "staff_accounts", "staff:study_new"):
        other = as_("nobody").get(reverse(page)) if page == "queue" else researcher.get(reverse(page))
        assert other.status_code == 403, page
        assert "ask the administration of this site" in other.text and "study" not in other.text.split("<main")[1], page


def test_closed_studies_come_last_and_have_nothing_left(study: Study) -> None:
    over = factories.study_open("over", title="A study that is over")
    services.membership_add(study=over, user=factories.user_create("otto"), role="operator", acting_user=None)
    operator = signed_in("otto", study, "operator")

    def cards() -> list[str]:
        return operator.get("/").text.split("All studies")[1].split("<h3>")[1:]

    assert "A study that is over" in cards()[0] and all("cap is free" in card for card in cards())
    Study.objects.filter(pk=over.pk).update(closed_at="2026-01-01T00:00:00Z")
    first, last = cards()
    assert study.title in first and "cap is free" in first
    assert "A study that is over" in last and "closed" in last and "cap is free" not in last
