"""The home page, sign-in, the language; name, logo and notices of the installation, and the zone of shown times."""

import re
from datetime import UTC, datetime

import pytest
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.formats import date_format, localize
from django.views import defaults

from consent import services
from consent.models import Study
from consent.services.accounts import administrator_set
from ipate_web.middleware import COOKIE, reader_zone
from tests import factories
from tests.pages import as_

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
    assert "only as much as each" in client.get("/").text and links(client) == {"Sign in"}
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
    assert "Keine passenden Läufe" in client.get(page).content.decode()
    client.post("/sign-out/")
    assert "Aus Ihren Daten lernen" in client.get("/").content.decode()


@pytest.mark.parametrize("method", ["TRACE", "PROPFIND"])
def test_methods_that_no_page_knows_are_not_allowed(client: Client, method: str) -> None:
    client.force_login(factories.user_create("hanna"))
    for address in ("/", "/healthz", "/readyz", "/privacy/", "/glossary/", "/my/", "/join/x/", "/api/v1/"):
        assert client.generic(method, address).status_code == 405, address
    assert client.generic(method, "/sign-in/").status_code == 302


NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def shown(cookie: str | None) -> str:
    """Noon in UTC as a page shows it."""
    request = RequestFactory().get("/")
    if cookie is not None:
        request.COOKIES[COOKIE] = cookie
    page = reader_zone(lambda request: HttpResponse(localize(timezone.localtime(NOON).strftime("%H:%M %Z"))))
    return page(request).content.decode()


def test_the_browsers_zone_counts() -> None:
    assert shown("Europe/Berlin") == "14:00 CEST"
    assert timezone.get_current_timezone_name() == "UTC"  # the next reader's page begins anew


@pytest.mark.parametrize("cookie", [None, "", "Nowhere", "Europe", "../../etc/passwd", "/etc/localtime"])
def test_an_unknown_zone_is_the_sites(cookie: str | None) -> None:
    assert shown(cookie) == "12:00 UTC"


@pytest.mark.parametrize(("language", "said"), [("en", "2026-07-01 12:00"), ("de", "01.07.2026 12:00")])
def test_no_reader_takes_the_day_for_the_month(language: str, said: str) -> None:
    with translation.override(language):
        assert date_format(NOON, "SHORT_DATETIME_FORMAT") == said
