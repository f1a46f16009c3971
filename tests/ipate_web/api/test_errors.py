"""All errors are problem documents and say what to do."""

import json
import re
from datetime import date
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client as BrowserClient
from rest_framework.throttling import UserRateThrottle

from consent.models import Study
from ipate_web.api import requests
from ipate_web.api.base import LEAST_NOTICE, ApiView, Retirement, Root
from ipate_web.api.problems import KINDS, PAGE
from ipate_web.tokens.models import ApiToken
from tests.factories import user_create
from tests.ipate_web.api.conftest import Client
from tests.ipate_web.api.test_secrets import api_patterns
from tests.training.runs import run_draft
from training.models import Run

pytestmark = pytest.mark.django_db


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status == KINDS[document["type"].removeprefix(f"{PAGE}#")].status
    assert response["Cache-Control"] == "no-store"
    return document


def test_strangers_are_told_how_to_sign_in(client: Client) -> None:
    stranger = client("")
    response = stranger.get("/api/v1/runs")
    assert "Authorization: Bearer" in problem(response, 401)["detail"]
    assert response["WWW-Authenticate"] == "Bearer"
    stranger.credentials(HTTP_AUTHORIZATION="Bearer ipate_0123456789")
    problem(stranger.get("/api/v1/runs"), 401)
    stranger.credentials(HTTP_AUTHORIZATION="Bearer ipate_ä")
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
def test_requests_up_to_the_limit_are_read_and_larger_ones_refused(client, sign_in, settings, monkeypatch) -> None:
    """Django reads the body of a browser's request before the API does."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2**18
    monkeypatch.setattr(requests, "MAX_BYTES", 2**18)
    user_create("ada")
    ada = client("ada") if sign_in == "token" else BrowserClient()
    if sign_in == "browser":
        ada.force_login(user_create("ben"))
    most = requests.MAX_BYTES
    for size, message in ((most - 100, "Correct the errors listed in “errors”"), (most + 1, "16 MiB")):
        response = ada.post("/api/v1/runs", json.dumps({"title": "a" * size}), content_type="application/json")
        assert message in problem(response, 400 if size < requests.MAX_BYTES else 413)["detail"]


def test_the_site_works_without_its_cache(client: Client, study: Study, settings) -> None:
    """No process listens on that port, as when Redis is restarted."""
    away = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:9/0"}
    settings.CACHES = settings.CACHES | {"default": away}
    assert client("researcher").get("/api/v1/runs").status_code == 200
    browser = BrowserClient()
    browser.force_login(user_create("olga"))
    assert browser.get(f"/studies/{study.slug}/").status_code == 200


def test_a_browser_session_needs_a_csrf_token_to_write(study: Study) -> None:
    browser = BrowserClient(enforce_csrf_checks=True)
    browser.force_login(user_create("researcher"))
    assert browser.get("/api/v1/runs").status_code == 200
    assert "CSRF" in problem(browser.post("/api/v1/runs", {}, content_type="application/json"), 403)["detail"]


def kind(response: Any) -> str:
    return response.json()["type"].partition("#")[2]


def test_the_type_of_a_problem_says_what_a_program_can_do(study: Study, run: Run, client: Client) -> None:
    ada, olga = client("researcher"), client("operator")
    reading, secret = ApiToken.objects.create(user_create("operator"), name="reads")
    ApiToken.objects.filter(pk=reading.pk).update(scopes=["read"])
    weak = client("")
    weak.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    draft = f"/api/v1/runs/{run_draft(study, proposer=user_create('operator')).pk}"
    kinds = {
        "not-signed-in": client("").get("/api/v1/runs"),
        "invalid-json": ada.post("/api/v1/runs", "{", content_type="application/json"),
        "invalid-fields": ada.post("/api/v1/runs", {}, format="json"),
        "invalid-data": ada.post(f"/api/v1/models/{run.pk}/predict", {"rows": [{"age": "old"}]}, format="json"),
        "missing-scope": weak.post(f"{draft}/approve", {}, format="json"),
        "not-permitted": ada.post(f"{draft}/approve", {}, format="json"),
        "second-person": olga.post(f"{draft}/approve", {}, format="json"),
        "state-conflict": olga.post(f"/api/v1/runs/{run.pk}/cancel", {}, format="json"),
        "not-found": ada.get("/api/v1/studies/nowhere"),
    }
    assert {name: kind(response) for name, response in kinds.items()} == {name: name for name in kinds}
    assert [problem(response, KINDS[name].status)["title"] for name, response in kinds.items()]


@pytest.mark.parametrize("debug", [False, True])
def test_addresses_without_an_api_say_where_it_is(settings: Any, debug: bool) -> None:
    settings.DEBUG = debug
    stranger = BrowserClient()
    for path in ("/api", "/api/", "/api/v2", "/api/v2/runs", "/api/runs/", "/api/nothing"):
        for method in (stranger.get, stranger.post):
            response = method(path)
            assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json"), path
            assert "/api/v1/" in response.json()["detail"]
    for method in (stranger.get, stranger.post):
        response = method("/api/v1")
        assert (response.status_code, response["Location"]) == (308, "/api/v1/"), "301 would turn POST into GET"


def test_plain_http_is_refused_instead_of_redirected(client: Client, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    ada = client("ada")
    for method in (ada.get, ada.post):
        assert kind(method("/api/v1/runs")) == "https-required"
    assert ada.get("/api/v1/runs", secure=True).status_code == 200


def test_headers_say_how_many_requests_are_left(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UserRateThrottle, "rate", "3/min", raising=False)
    cache.clear()
    ada = client("ada")
    for left in (2, 1, 0):
        response = ada.get("/api/v1/")
        assert response["RateLimit-Policy"] == '"user";q=3;w=60'
        assert re.fullmatch(rf'"user";r={left};t=\d+', response["RateLimit"]), response["RateLimit"]
    refused = ada.get("/api/v1/")
    assert kind(refused) == "too-many-requests"
    assert refused["RateLimit"].startswith('"user";r=0;') and int(refused["Retry-After"]) > 0
    cache.clear()


def test_deprecated_operations_announce_their_removal_a_year_ahead(client: Client, monkeypatch) -> None:
    monkeypatch.setattr(Root, "retirement", Retirement(since=date(2027, 1, 1), sunset=date(2028, 2, 1)))
    response = client("ada").get("/api/v1/")
    assert response["Deprecation"] == "@1798761600" and response["Sunset"] == "Tue, 01 Feb 2028 00:00:00 GMT"
    for view in (each.callback.cls for each in api_patterns().values()):
        end = view.retirement if issubclass(view, ApiView) else None
        assert end is None or end.sunset - end.since >= LEAST_NOTICE
