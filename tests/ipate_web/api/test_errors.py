"""Errors are problem documents, whatever goes wrong, and say what to do."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as BrowserClient

from consent.models import Study
from ipate_web.api import requests
from tests.factories import user_create
from tests.ipate_web.api.conftest import Client

pytestmark = pytest.mark.django_db


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert response["Cache-Control"] == "no-store"
    return document


def test_strangers_are_told_how_to_sign_in(client: Client) -> None:
    stranger = client("")
    response = stranger.get("/api/v1/runs")
    assert "Authorization: Bearer" in problem(response, 401)["detail"]
    assert response["WWW-Authenticate"] == "Bearer"
    stranger.credentials(HTTP_AUTHORIZATION="Bearer ipate_0123456789")
    problem(stranger.get("/api/v1/runs"), 401)
    ada = client("ada")
    User.objects.filter(username="ada").update(is_active=False)
    problem(ada.get("/api/v1/runs"), 401)


def test_what_cannot_be_read_or_answered(client: Client) -> None:
    ada = client("ada")
    assert "GET /api/docs" in problem(ada.get("/api/v1/runs/nonsense"), 404)["detail"]
    response = ada.delete("/api/v1/runs")
    problem(response, 405)
    assert response["Allow"] == "GET, POST, HEAD, OPTIONS"
    for body in ("{", '{"teachers": NaN}', "[" * 100_000, "[1]"):
        problem(ada.post("/api/v1/runs", body, content_type="application/json"), 400)
    problem(ada.post("/api/v1/runs", "a=b", content_type="application/x-www-form-urlencoded"), 415)
    problem(ada.get("/api/v1/runs", headers={"Accept": "text/html"}), 406)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("1e400", "1e400 is too large"),
        ("-1E+999", "is too large"),
        ("9223372036854775808", "Send an integer below 2^63"),
        ("1" * 5000, "Send an integer below 2^63"),
        ("Infinity", "Infinity is not a JSON number"),
        (r'"a\u0000b"', "U+0000"),
        (r'{"deep": ["\ud800"]}', "surrogate"),
        (r'{"\u0000": 1}', "U+0000"),
        ('{"a": 1, "a": 2}', "“a” is given twice"),
    ],
)
def test_json_that_no_database_can_hold_is_refused(client: Client, written: str, message: str) -> None:
    ada = client("ada")
    for field in ("private_dataset", "title", "choices", "share"):
        body = f'{{"{field}": {written}}}'
        answer = ada.post("/api/v1/runs", body, content_type="application/json")
        assert message in problem(answer, 400)["detail"], field
    escaped = ada.post("/api/v1/runs", r'{"title": "\\u0000"}', content_type="application/json")
    assert "U+0000" not in problem(escaped, 400)["detail"]  # a backslash and five characters


@pytest.mark.parametrize("written", ["1.5", "true", '"1"', "[1]"])
def test_only_an_integer_names_a_dataset(client: Client, written: str) -> None:
    body = f'{{"private_dataset": {written}}}'
    document = problem(client("ada").post("/api/v1/runs/plan", body, content_type="application/json"), 400)
    (message,) = [error["message"] for error in document["errors"] if error.get("field") == "private_dataset"]
    assert message.startswith("Incorrect type")


@pytest.mark.parametrize("written", ['"0.5"', '"nan"', "true"])
def test_a_text_or_a_truth_value_is_no_number(client: Client, written: str) -> None:
    answer = client("ada").post("/api/v1/runs/plan", f'{{"share": {written}}}', content_type="application/json")
    assert {"field": "share", "message": "Give a number, without quotation marks."} in problem(answer, 400)["errors"]


@pytest.mark.parametrize("sign_in", ["token", "browser"])
def test_requests_up_to_the_limit_are_read_and_larger_ones_refused(
    client: Client, sign_in: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django reads the body of a browser's request before the API does."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2**18
    monkeypatch.setattr(requests, "MAX_BYTES", 2**18)
    user_create("ada")
    ada = client("ada") if sign_in == "token" else BrowserClient()
    if sign_in == "browser":
        ada.force_login(user_create("ben"))
    for size, message in (
        (requests.MAX_BYTES - 100, "Correct what “errors” lists"),
        (requests.MAX_BYTES + 1, "16 MiB"),
    ):
        response = ada.post("/api/v1/runs", json.dumps({"title": "a" * size}), content_type="application/json")
        assert message in problem(response, 400 if size < requests.MAX_BYTES else 413)["detail"]


def test_without_its_cache_the_site_answers(client: Client, study: Study, settings) -> None:
    """Nobody listens on that port, as when Redis is restarted."""
    settings.CACHES = settings.CACHES | {
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:9/0"}
    }
    assert client("researcher").get("/api/v1/runs").status_code == 200
    browser = BrowserClient()
    browser.force_login(user_create("olga"))
    assert browser.get(f"/studies/{study.slug}/").status_code == 200


def test_a_browser_session_needs_a_csrf_token_to_write(study: Study) -> None:
    browser = BrowserClient(enforce_csrf_checks=True)
    browser.force_login(user_create("researcher"))
    assert browser.get("/api/v1/runs").status_code == 200
    assert "CSRF" in problem(browser.post("/api/v1/runs", {}, content_type="application/json"), 403)["detail"]
