"""What people and programs read while the database is away, and where an address leads nowhere."""

import errno
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.fixture
def broken(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of a site whose database has gone away."""

    def away(*_: object, **__: object) -> Any:
        raise OperationalError("connection refused")

    client.raise_request_exception = False
    monkeypatch.setattr("django.db.models.sql.compiler.SQLCompiler.execute_sql", away)
    return client


def test_pages_say_that_the_database_is_away(broken: Client) -> None:
    broken.cookies["sessionid"] = "a" * 32
    for response in (
        broken.get("/my/"),
        broken.post("/sign-in/", {"login": "ada", "password": "a long password"}),
        broken.post("/join/", {"code": "AAAA"}),
    ):
        assert (response.status_code, response["Retry-After"]) == (503, "30")
        assert "database is not responding" in response.content.decode()


def test_programs_read_a_problem_document_while_the_database_is_away(broken: Client) -> None:
    response = broken.get("/api/v1/studies", headers={"Authorization": "Bearer ipate_0123456789abcdef"})
    assert (response.status_code, response["Retry-After"]) == (503, "30")
    assert response["Content-Type"] == "application/problem+json"
    assert "Send the request again later" in response.json()["detail"]


def test_programs_read_a_problem_document_after_any_other_failure(client, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("a defect")

    client.raise_request_exception = False
    monkeypatch.setattr("ipate_web.api.models.KeyList.get", fail)
    response = client.get("/api/v1/keys")
    assert (response.status_code, response["Content-Type"]) == (500, "application/problem+json")
    assert "a defect" not in response.content.decode()


def test_a_full_disk_is_no_defect(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    client.raise_request_exception = False
    for address, name in (
        ("/api/v1/keys", "ipate_web.api.models.KeyList.get"),
        ("/glossary/", "consent.wording.glossary.render"),
    ):
        monkeypatch.setattr(name, fail)
        response = client.get(address)
        assert (response.status_code, response["Retry-After"]) == (503, "30"), address
        assert "disk is full" in response.content.decode()


@pytest.mark.parametrize("address", ["/api/", "/api/v2/studies", "/api/nothing"])
def test_programs_read_a_problem_document_for_an_address_that_leads_nowhere(client: Client, address: str) -> None:
    response = client.get(address)
    assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json")


def test_the_schema_is_rendered_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = client.get("/api/schema?format=json")
    monkeypatch.setattr("drf_spectacular.generators.SchemaGenerator.get_schema", None)
    again = client.get("/api/schema?format=json")
    assert first.content == again.content and first["ETag"] == again["ETag"]
    unchanged = client.get("/api/schema?format=json", headers={"If-None-Match": first["ETag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
