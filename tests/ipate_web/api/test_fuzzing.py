"""Requests by the hundred, made up from the API's own description, by every role: no answer is one it does not tell of.

Schemathesis makes them: the examples, wrong and right requests at random, and sequences in which one request uses what
another has made. The seed is fixed. With IPATE_FUZZING=50 there are so many cases for each operation, and in addition
every boundary of every parameter.
"""

import logging
import os
import re
import subprocess
import sys

import pytest
from rest_framework.throttling import SimpleRateThrottle

from consent.models import Role
from ipate_web.tokens.models import ApiToken
from tests.factories import user_create

logger = logging.getLogger(__name__)

WANTED = os.environ.get("IPATE_FUZZING", "")
CASES = WANTED or "1"
PHASES = "examples,coverage,fuzzing,stateful" if WANTED else "examples,fuzzing"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "ignored_auth",
)


@pytest.fixture(autouse=True)
def _no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimpleRateThrottle, "allow_request", lambda *_: True)


# Others who watch a study or administer the installation can only read.
@pytest.mark.exhaustive
@pytest.mark.parametrize("role", [Role.RESEARCHER, Role.OPERATOR, Role.STEWARD, "stranger"])
def test_every_answer_is_one_that_the_schema_tells_of(role, study, run, live_server, tmp_path, record_property) -> None:
    _, secret = ApiToken.objects.create(user_create(role), name="fuzzing")
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{live_server.url}/api/schema?format=json"),
        *("--header", f"Authorization: Bearer {secret}", "--checks", ",".join(CHECKS)),
        *("--phases", PHASES, "--max-examples", CASES, "--seed", "17", "--no-shrink", "--continue-on-failure"),
    ]
    environment = {**os.environ, "no_proxy": "*", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-1000:]
    generated = re.search(r"(\d+) generated", done.stdout)
    assert generated and int(generated[1]) > 20, done.stdout[-2000:]
    record_property("cases", int(generated[1]))
    logger.info("%s: %s cases in the phases %s", role, generated[1], PHASES)  # pytest --log-cli-level=INFO tells
