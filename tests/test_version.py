"""The version of the software: one, wherever it is told."""

import tomllib
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from common import __version__
from tests.factories import user_create

ROOT = Path(settings.BASE_DIR)


def test_the_client_and_the_list_of_changes_have_it() -> None:
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())
    assert client["project"]["version"] == __version__
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"  version = {{{__version__}}}," in (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert next(heading for heading in headings if heading != "## Unreleased").startswith(f"## {__version__} – ")


@pytest.mark.django_db
def test_pages_about_the_site_show_it(client: Client) -> None:
    for path in ("/privacy/", "/accessibility/"):
        assert f"Software: iPATE {__version__}<" in client.get(path).content.decode()


@pytest.mark.slow
@pytest.mark.django_db
def test_the_root_of_the_api_and_its_schema_tell_it(client: Client) -> None:
    client.force_login(user_create("rita"))
    root = client.get("/api/v1/").json()
    assert root["version"] == __version__
    assert client.get(root["documentation"]).status_code == 200
    assert client.get(root["schema"], {"format": "json"}).json()["info"]["version"] == __version__
