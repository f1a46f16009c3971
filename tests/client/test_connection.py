"""Requests of the client by themselves: what is sent again, what is an error, and where requests go."""

import asyncio
import base64
import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import ipate_client.connection
import pytest
from ipate_client import AsyncSite, ProblemError, Site, __version__

Handler = Callable[[httpx.Request], httpx.Response]


class Answers:
    """A site that gives these answers one after the other: statuses with headers, contents, or a broken connection."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.requests = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(ipate_client.connection.time, "sleep", slept.append)
    return slept


def site_with(*answers: object) -> tuple[Site, Answers]:
    site, there = Site("https://ipate.example", "token"), Answers(*answers)
    site._http = httpx.Client(
        base_url=site._http.base_url, headers=site._http.headers, transport=httpx.MockTransport(there)
    )
    return site, there


def refused(status: int, **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=names, json={"detail": "Not now."})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_questions_are_sent_again(status: int, slept: list[float]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    asked = (refused(status, Retry_After=pause) for pause in ("7", later, "0"))
    site, there = site_with(*asked, {"forecasts": []})
    assert site.plan(title="x") == {"forecasts": []} and len(there.requests) == 4
    assert 7 < slept[0] <= 7 * 1.25 and 50 < slept[1] <= 100 * 1.25 and 1 < slept[2] <= 1.25
    site, there = site_with(*[refused(status, Retry_After="999")] * 4)
    with pytest.raises(ProblemError, match="Not now"):
        site.study("ward")
    assert len(there.requests) == 1, "it does not wait for a quarter of an hour"


def test_only_what_may_be_repeated_is_sent_again(slept: list[float]) -> None:
    site, there = site_with(httpx.ReadError("broke"), refused(502), {"predictions": [], "classes": []} | PREDICTED)
    site.predict("run", [{"age": 1}])
    assert len(there.requests) == 3 and 1 < slept[0] <= 1.25 and 2 < slept[1] <= 2.5
    for answer in (refused(503), refused(502)):
        site, there = site_with(answer)
        with pytest.raises(ProblemError):
            site.cancel("run")
        assert len(there.requests) == 1
    site, there = site_with(httpx.ReadError("broke"))
    with pytest.raises(httpx.ReadError):
        site.remove_webhook("ward", 3)
    site, there = site_with(refused(503), RUN)
    site.propose(title="x")
    first, second = (request.headers["Idempotency-Key"] for request in there.requests)
    assert first == second and there.requests[0].headers["User-Agent"].startswith(f"ipate-client/{__version__} ")


PREDICTED = {"probabilities": [[1.0]], "predictions": ["a"], "classes": ["a"], "outside": [[]]}
RUN = {"id": "r", "study": "ward", "title": "x", "status": "draft"}


def test_a_redirect_is_an_error() -> None:
    site, _ = site_with(httpx.Response(301, headers={"Location": "https://ipate.example/api/v1/"}))
    with pytest.raises(ProblemError, match="/api/v1/, which the client does not follow"):
        site.remove_webhook("ward", 3)


def test_names_are_escaped_in_addresses() -> None:
    site, there = site_with({"groups": []})
    site.budget_groups("ward/../runs?x=1")
    assert there.requests[0].url.raw_path == b"/api/v1/studies/ward%2F..%2Fruns%3Fx%3D1/budget"
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="no name or id"):
            site.study(name)


class Broken(httpx.SyncByteStream):
    """A body of which the rest does not come."""

    def __init__(self, part: bytes) -> None:
        self.part = part

    def __iter__(self) -> Iterator[bytes]:
        yield self.part
        raise httpx.ReadError("broke")


def test_a_download_goes_on_where_it_broke_off(slept: list[float]) -> None:
    content = bytes(range(250))
    digest = {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"}
    headers = {"ETag": '"a"', **digest}
    begun = httpx.Response(200, headers=headers, stream=Broken(content[:100]))
    site, there = site_with(begun, refused(503), httpx.Response(206, headers=headers, content=content[100:]))
    assert site.model_file("run") == content
    assert there.requests[-1].headers["Range"] == "bytes=100-" and there.requests[-1].headers["If-Range"] == '"a"'
    changed = httpx.Response(200, headers=headers, content=content)
    site, there = site_with(httpx.Response(200, headers=headers, stream=Broken(content[:100])), changed)
    assert site.model_file("run") == content, "another file comes whole"
    site, _ = site_with(httpx.Response(200, headers=headers, content=content[:-1]))
    with pytest.raises(ValueError, match="differs from what the site says"):
        site.model_file("run")


async def names_of(site: AsyncSite) -> list[str]:
    async with site:
        return [study.slug for study in await site.studies()]


def test_the_site_for_asyncio_is_the_same() -> None:
    document = {"slug": "ward", "title": "Ward", "delta": 1e-5, "rehearsal": False}
    site = AsyncSite("https://ipate.example", "token")
    site.site, _ = site_with({"results": [document], "next": None})
    with ThreadPoolExecutor(1) as pool:  # a browser's tests leave a running loop in the thread of all tests
        assert pool.submit(asyncio.run, names_of(site)).result() == ["ward"]


BARE = """
import sys
sys.modules |= dict.fromkeys(["pandas", "onnxruntime", "sklearn", "scipy", "mlflow", "onnx", "tokenizers", "tqdm"])
import httpx, ipate_client.command
from ipate_client import LocalModel, Plan, Site

answers = iter(ANSWERS)
site = Site("https://ipate.example", "token")
site._http = httpx.Client(
    base_url=site._http.base_url, transport=httpx.MockTransport(lambda _: httpx.Response(200, json=next(answers)))
)
assert site.study("ward").title == "Ward" and site.run("r").status == "draft" and site.budget_groups("ward") == []
predicted = site.predict("r", [{"age": 1}])
assert predicted.labels.tolist() == ["a"] and site.plan(study="ward")["outlook"] is None
tables = predicted.frame, lambda: site.budget("ward"), lambda: Plan(forecasts=[]).forecasts
for asked in (*tables, lambda: LocalModel.of(b"")):
    try:
        asked()
    except ImportError as error:
        print(error)
"""


def test_it_needs_httpx_and_numpy_alone() -> None:
    """The rest works without pandas and ONNX Runtime, and says which extra is missing where they are needed."""
    study = {"slug": "ward", "title": "Ward", "delta": 1e-5, "rehearsal": False}
    answers = [study, RUN, {"groups": []}, PREDICTED | {"predictions": ["a"]}, {"outlook": None}, {"groups": []}]
    program = BARE.replace("ANSWERS", repr(answers))
    here = {"PYTHONPATH": str(Path(ipate_client.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tables, models = "Tables need pandas: pip install ipate-client[pandas]", "pip install ipate-client[models]"
    assert done.stdout.splitlines() == [*[tables] * 3, f"Models on this machine need onnxruntime: {models}"]
