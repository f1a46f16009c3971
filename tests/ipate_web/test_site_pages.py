"""Name, logo, privacy notice and accessibility statement of the installation, and the zone in which times are shown."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone, translation
from django.utils.formats import date_format, localize

from ipate_web import environment as env
from ipate_web.time_zones import COOKIE, reader_zone

pytestmark = pytest.mark.django_db


def test_the_installations_name_logo_and_contact_are_shown(client: Client, settings: Any, tmp_path: Path) -> None:
    assert client.get("/logo").status_code == 404 and "– iPATE</title>" in client.get("/").content.decode()
    picture = tmp_path / "logo.svg"
    picture.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    settings.SITE_NAME, settings.SITE_LOGO = "Clinic & Friends", str(picture)
    settings.SITE_OPERATOR, settings.SITE_CONTACT = "Clinic, 1 Road", "site@example.org"
    page = client.get("/privacy/").content.decode()
    assert "– Clinic &amp; Friends</title>" in page and '<img src="/logo"' in page
    assert "Clinic, 1 Road" in page and "mailto:site@example.org" in page
    served = client.get("/logo")
    assert served["Content-Type"] == "image/svg+xml" and b"".join(served.streaming_content) == picture.read_bytes()
    assert "default-src 'self'" in served["Content-Security-Policy"], "no script of a picture runs"


def test_an_installation_can_say_it_in_its_own_words(client: Client, settings: Any, tmp_path: Path) -> None:
    assert "followed" in client.get("/privacy/").content.decode()
    settings.SITE_PAGES = str(tmp_path)
    (tmp_path / "privacy.en.md").write_text("# Ours\n<script>x</script> **own words**")
    (tmp_path / "privacy.de.md").write_text("Eigene *Worte*", encoding="utf-8")
    page = client.get("/privacy/").content.decode()
    assert "<strong>own words</strong>" in page and "<script>x" not in page and "followed" not in page
    client.cookies["django_language"] = "de"
    assert '<div class="prose" lang="de">' in client.get("/privacy/").content.decode()
    assert "WCAG" in client.get("/accessibility/").content.decode(), "what is not replaced stays"


def test_a_logo_that_is_not_there_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kind = env.file_of({".svg", ".png"})
    (tmp_path / "logo.txt").touch()
    for path in (tmp_path / "logo.svg", tmp_path / "logo.txt"):
        monkeypatch.setenv("IPATE_SITE_LOGO", str(path))
        with pytest.raises(ImproperlyConfigured, match="IPATE_SITE_LOGO should be the path of a file"):
            env.read("IPATE_SITE_LOGO", kind, default="")


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
