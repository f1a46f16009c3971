"""Hostile requests at every address and in every role: no response has status 500, is HTML or takes too long.

The second test varies requests that the schema describes. The first breaks its rules: bytes that are not text, wrong
types, numbers too large for a database, and invalid ids, methods, headers and content types. IPATE_HOSTILE=500 sends
fewer.
"""

import json
import logging
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest
from django.test import Client
from rest_framework.throttling import SimpleRateThrottle

from consent.models import Role
from docs.generated import addresses
from ipate_web.tokens.models import ApiToken
from tests.factories import user_create

logger = logging.getLogger(__name__)

REQUESTS = int(os.environ.get("IPATE_HOSTILE", "5000"))
SLOW = {"run-plan", "run-planned", "model-predict", "schema"}
"""Requests that may take seconds, as documented: they compute a plan, load a model, or render the schema first."""
SECONDS = 1.0
METHODS = ("GET", "GET", "POST", "POST", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW")
IDS = (
    *("00000000-0000-0000-0000-000000000000", "1", "0", "-1", str(2**31), str(2**63)),
    *("x", "%00", "%ff", "..%2f", "ä" * 9),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**62, -(2**63), 0.5, -0.0, 1e308, 5e-324, "", " ", "1", "nan", "true"),
    *("a" * 70_000, "‮", "𝕏", "\t\n", "<script>", "%s%n", "'; --", [], [[]], [1, "a"], {}, {"": ""}, {"a": {"b": [{}]}}),
    *([None] * 2000, {str(number): number for number in range(2000)}, "2026-13-45", IDS[0]),
)
BODIES: tuple[bytes, ...] = (
    *(b"", b"{", b"null", b"[]", b'"text"', b"1e400", b"[" * 100_000, b'{"a": NaN}', b"\x00", b"\xff\xfe", b"{}" * 2),
    *(
        b'{"title": "\\u0000"}',
        b'{"title": "\\ud800"}',
        b'{"a": 1, "a": 2}',
        b"9" * 5000,
        b"\xef\xbb\xbf{}",
        b"a=b&c=%00",
    ),
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="../../\x00.csv"\r\n\r\na,b\n1\r\n--x--\r\n',
    b'--x\r\nContent-Disposition: form-data; name="schema"\r\n\r\n{"kind": "table", "columns": 1}\r\n--x--\r\n',
)
KINDS = (
    *("application/json", "application/json", "application/json", "application/json; charset=utf-16", "text/plain", ""),
    *("multipart/form-data; boundary=x", "multipart/form-data", "application/x-www-form-urlencoded", "a/b/c"),
    "application/xml",
)
QUERIES = (
    *("", "", "", "?limit=-1", "?limit=1&limit=2", f"?offset={2**63}", "?format=html", "?format=csv", "?x=%00"),
    *("?%ff=1", "?share=nan", "?share=1e999", "?version=0", f"?version={2**63}", "?sort=-;", "?search=%00"),
    *("?runs=,,,,", "?since=x", "?study=%00", "?rows=0", "?rows=101", f"?seed={2**63}", "?stage=", "?dataset=1.5"),
)
HEADERS: tuple[dict[str, str], ...] = (
    *({}, {}, {}, {"Accept": "text/html"}, {"Accept": "*/*;q=x"}, {"Accept": "text/event-stream"}),
    *({"Accept-Language": "x" * 999}, {"If-None-Match": '"'}, {"Last-Event-ID": "\x7f"}, {"Range": "bytes=9-1"}),
    *({"Idempotency-Key": ""}, {"Idempotency-Key": "ä"}, {"Idempotency-Key": "k" * 999}, {"Host": "127.0.0.1"}),
    *({"Authorization": "Bearer"}, {"Authorization": "Bearer ipate_ä"}, {"Authorization": "Basic x"}),
    *({"Cookie": "sessionid=%00"}, {"X-HTTP-Method-Override": "DELETE"}, {"Content-Encoding": "gzip"}),
)


def _path(draw: random.Random, address: str, real: dict[str, list[str]]) -> str:
    """Return an address with ids, most of which exist."""

    def value(part: re.Match[str]) -> str:
        known = real.get(part[1], ["1"])
        return draw.choice(known) if draw.random() < 0.7 else draw.choice(IDS)

    ending = draw.choice(("", "", "", "", "/", "//", "/.", "%20"))
    return "/api/v1/" + re.sub(r"{(\w+)}", value, address) + ending


def _body(draw: random.Random, names: list[str]) -> bytes:
    if draw.random() < 0.4:
        return draw.choice(BODIES)
    chosen = draw.sample(names, k=min(len(names), draw.randint(1, 6)))
    return json.dumps({name: draw.choice(VALUES) for name in chosen}).encode()


@pytest.mark.exhaustive
def test_no_hostile_request_is_answered_with_an_error_of_the_server(study, run, monkeypatch, record_property) -> None:
    monkeypatch.setattr(SimpleRateThrottle, "allow_request", lambda *_: True)
    people = (*Role.values, "stranger")
    tokens = {role: ApiToken.objects.create(user_create(role), name="hostile")[1] for role in people}
    document = Client().get("/api/schema?format=json").json()
    fields = {name for each in document["components"]["schemas"].values() for name in each.get("properties", {})}
    named, known = sorted(fields), {"slug": [study.slug], "id": [str(run.pk)], "version": ["1"], "number": ["1"]}
    places = list(addresses().items())
    draw, client, codes, slowest = random.Random(53), Client(raise_request_exception=False), Counter[int](), (0.0, "")
    for number in range(REQUESTS):
        name, address = places[number % len(places)]
        path = _path(draw, address, known) + draw.choice(QUERIES)
        headers = dict(draw.choice(HEADERS))
        role = draw.choice(["", *tokens])
        if role:
            headers.setdefault("Authorization", f"Bearer {tokens[role]}")
        method, kind, body = draw.choice(METHODS), draw.choice(KINDS), _body(draw, named)
        began = time.process_time()
        response = client.generic(method, path, body, content_type=kind, headers=headers)
        took = time.process_time() - began
        what = f"request {number}: {method} {path} as {role or 'nobody'}, {kind}, {headers}, {body[:200]!r}"
        assert response.status_code < 500, f"{what}: {response.content[:500]!r}"
        assert "html" not in response.get("Content-Type", ""), what
        if response.status_code >= 400 and method != "HEAD":
            assert response["Content-Type"] == "application/problem+json", what
            assert response.json()["type"].startswith("/docs/errors.html#"), what
        assert took < SECONDS or name in SLOW, f"{what}: {took:.1f} s"
        codes[response.status_code] += 1
        if name not in SLOW:
            slowest = max(slowest, (took, what))
    logger.info("%s; slowest: %.2f s, %s", dict(sorted(codes.items())), *slowest)
    record_property("codes", dict(codes))
    assert len(codes) > 8, codes


WANTED = os.environ.get("IPATE_FUZZING", "")
CASES = WANTED or "1"
PHASES = "examples,coverage,fuzzing,stateful" if WANTED else "examples,fuzzing"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method,ignored_auth"
)


@pytest.fixture
def _no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimpleRateThrottle, "allow_request", lambda *_: True)


# Other people who supervise a study or administer the installation can only read.
@pytest.mark.usefixtures("_no_limits")
@pytest.mark.exhaustive
@pytest.mark.parametrize("role", [Role.RESEARCHER, Role.OPERATOR, Role.STEWARD, "stranger"])
def test_every_response_matches_the_schema(role, study, run, live_server, tmp_path, record_property) -> None:
    _, secret = ApiToken.objects.create(user_create(role), name="fuzzing")
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{live_server.url}/api/schema?format=json"),
        *("--header", f"Authorization: Bearer {secret}", "--checks", CHECKS),
        *("--phases", PHASES, "--max-examples", CASES, "--seed", "17", "--no-shrink", "--continue-on-failure"),
    ]
    environment = {**os.environ, "no_proxy": "*", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-1000:]
    generated = re.search(r"(\d+) generated", done.stdout)
    assert generated and int(generated[1]) > 20, done.stdout[-2000:]
    record_property("cases", int(generated[1]))
    logger.info("%s: %s cases in the phases %s", role, generated[1], PHASES)  # shown by pytest --log-cli-level=INFO
