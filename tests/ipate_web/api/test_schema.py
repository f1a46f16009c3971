"""The API's own description."""

import io
import re
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client as BrowserClient

from consent.models import Study
from learning.formats import catalogue_load
from tests.ipate_web.api.conftest import Client
from tests.ipate_web.api.test_runs import proposal
from tests.ipate_web.api.test_secrets import api_patterns
from tests.training.runs import run_draft
from training.demonstration import people, rehearsal_build, study_build
from training.models import Run
from training.services.head_counts import head_counts_draw

pytestmark = pytest.mark.slow

SENT = {
    "/api/v1/runs": ("researcher", 201),
    "/api/v1/runs/plan": ("researcher", 200),
    "/api/v1/runs/{id}/approve": ("operator", 200),
    "/api/v1/models/{id}/predict": ("researcher", 200),
}
"""Who sends something where, and how it is answered."""


def examples(schema: dict[str, Any], path: str) -> list[dict[str, Any]]:
    body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert body["examples"], path
    return [example["value"] for example in body["examples"].values()]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """Fails where anything about the schema is unclear to drf-spectacular, or a reference leads nowhere."""
    out = io.StringIO()
    call_command("spectacular", "--fail-on-warn", "--validate", stdout=out)
    found = yaml.safe_load(out.getvalue())
    names = set(re.findall(r"#/components/schemas/(\w+)", out.getvalue()))
    assert names <= set(found["components"]["schemas"])
    return found


def test_every_endpoint_is_described_with_its_errors(schema: dict[str, Any]) -> None:
    assert len(schema["paths"]) == len(api_patterns())
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            assert operation.get("description"), where
            problems = {status: message for status, message in operation["responses"].items() if status >= "4"}
            expected = {"400", "429"} if not operation.get("security") else {"400", "401", "403", "429"}
            assert expected <= set(problems) and "default" not in operation["responses"], where
            assert ("404" in problems) == ("{" in path), where
            for message in problems.values():
                assert message["description"] and "application/problem+json" in message["content"], where


def test_every_example_works(schema: dict[str, Any], study: Study, tryout: Study, run: Run, client: Client) -> None:
    """With the names and numbers of a study that there is."""
    for path, (role, status) in SENT.items():
        for example in examples(schema, path):
            if not all(isinstance(row, dict) for row in example.get("rows", [])):
                continue  # images, and this run learned from a table
            if "private_dataset" in example:
                proposed = proposal(tryout if "rehearsed" in example else study)
                own = {name: value for name, value in proposed.items() if name == "study" or name.endswith("_dataset")}
                own = {name: value for name, value in own.items() if name in example}
                example = {**example, **own}
            pk = str(run_draft(study).pk if path.endswith("approve") else run.pk)
            answer = client(role).post(path.replace("{id}", pk), example, format="json")
            assert answer.status_code == status, (path, answer.content)


@pytest.mark.exhaustive
@pytest.mark.django_db(reset_sequences=True, transaction=True)
def test_every_example_of_a_proposal_works_on_the_demo(schema: dict[str, Any], client: Client) -> None:
    """As it stands, with the names and numbers that ``make demo`` gives a new installation."""

    def track(each: Iterable[Any], _description: str, _total: int) -> Iterable[Any]:
        return each

    splits, (users, _logins) = catalogue_load("digits"), people()
    study, _datasets = study_build("digits", splits, users, track)
    rehearsal_build("digits", splits, users)
    head_counts_draw(study=study, acting_user=users["operator2"])
    for example in examples(schema, "/api/v1/runs"):
        for path, status in (("/api/v1/runs/plan", 200), ("/api/v1/runs", 201)):
            answer = client("demo-operator2").post(path, example, format="json")
            assert answer.status_code == status, (example["title"], path, answer.content)


@pytest.mark.django_db
def test_the_pages_need_no_inline_script() -> None:
    client = BrowserClient()
    page = client.get("/api/docs")
    assert page.status_code == 200
    html = page.content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", html)
    script = client.get("/api/docs?script=")
    assert script["Content-Type"].startswith("application/javascript")
    assert "/api/schema" in script.content.decode()
    assert client.get("/api/schema").status_code == 200
