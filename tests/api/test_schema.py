"""The API's own description."""

import io
import re
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client

from tests.api.test_secrets import api_names


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """Fails where anything about the schema is unclear to drf-spectacular."""
    out = io.StringIO()
    call_command("spectacular", "--fail-on-warn", "--validate", stdout=out)
    return yaml.safe_load(out.getvalue())


def test_every_endpoint_is_described_with_its_errors(schema: dict[str, Any]) -> None:
    assert len(schema["paths"]) == len(api_names())
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            assert operation.get("description"), where
            assert "application/problem+json" in operation["responses"]["default"]["content"], where


def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    names = set(re.findall(r"#/components/schemas/(\w+)", yaml.safe_dump(schema)))
    assert names <= set(schema["components"]["schemas"])


def test_what_is_sent_comes_with_an_example(schema: dict[str, Any]) -> None:
    for path in ("/api/v1/runs", "/api/v1/runs/plan", "/api/v1/models/{id}/predict"):
        body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        assert body["examples"], path


@pytest.mark.django_db
def test_the_pages_need_no_inline_script() -> None:
    client = Client()
    page = client.get("/api/docs")
    assert page.status_code == 200
    html = page.content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", html)
    script = client.get("/api/docs?script=")
    assert script["Content-Type"].startswith("application/javascript")
    assert "/api/schema" in script.content.decode()
    assert client.get("/api/schema").status_code == 200
