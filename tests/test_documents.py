"""The site of documents, as MkDocs builds it and the application serves it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typst
from django.conf import settings
from django.test import Client

import ipate_web.staff.urls
from consent import services
from consent.models import Role
from ipate_web.staff.help import EVERYWHERE, SECTIONS
from tests import factories
from tests.everything import addresses

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

ROOT = Path(settings.BASE_DIR)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of documents. A link or a section that is not there ends the build."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_documents_are_served_where_they_are_built(built: Path, settings: Any, client: Client) -> None:
    assert client.get("/docs/").status_code == 404 and b"/docs/" not in client.get("/").content
    settings.DOCUMENTS = built
    assert b'href="/docs/"' in client.get("/").content
    front = client.get("/docs/")
    assert front.status_code == 200 and "default-src 'self'" in front["Content-Security-Policy"]
    assert b"<h1" in b"".join(front.streaming_content)
    assert client.get("/docs/consent.html").status_code == 200
    assert b"".join(client.get("/docs/gaussian-accounts.pdf").streaming_content).startswith(b"%PDF-")
    assert client.get("/docs/nothing.html").status_code == 404
    assert client.get("/docs/%2e%2e/%2e%2e/etc/passwd").status_code == 400
    assert client.post("/docs/").status_code == 405


def test_the_picture_of_the_architecture_is_drawn_from_its_source() -> None:
    drawn = typst.compile(ROOT / "docs" / "architecture.typ", format="svg")
    assert drawn == (ROOT / "docs" / "architecture.svg").read_bytes(), "run: make pictures"


def test_help_on_pages_of_staff_leads_to_sections_that_are_there(built: Path, settings: Any, client: Client) -> None:
    settings.DOCUMENTS = built
    names = {name for name in addresses(ipate_web.staff.urls.urlpatterns) if name in SECTIONS}
    assert names == set(SECTIONS), "no page is called so"
    for target in {EVERYWHERE, *SECTIONS.values()}:
        page, _, section = target.partition("#")
        text = (built / page).read_text(encoding="utf-8")
        assert not section or f' id="{section}"' in text, target
    study = factories.study_open()
    services.membership_add(study=study, user=factories.user_create("olga"), role=Role.OPERATOR, acting_user=None)
    client.force_login(factories.user_create("olga"))
    assert b'href="/docs/choosing-a-method.html"' in client.get(f"/studies/{study.slug}/runs/").content


def test_the_security_policy_lets_every_page_of_documents_work(built: Path) -> None:
    """Nothing within a page that the policy would block, nothing from another site."""
    pages = list(built.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<script>|<style|\sstyle=|\son[a-z]+=\"", text), page
        assert not re.search(r'(src|<link[^>]* href)="https?:', text), page
