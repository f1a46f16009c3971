"""A study with a finished run behind a real server, and its researcher's client."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from ipate_client import Site
from pytest_django.live_server_helper import LiveServer

from ipate_web.tokens.models import ApiToken
from tests.factories import user_create
from tests.ipate_web.api.conftest import asking_run, client, run, study, tryout

__all__ = ["asking_run", "client", "run", "study", "tryout"]


@pytest.fixture
def token(live_server: LiveServer) -> str:
    """Return a researcher's token with the scopes that researchers need."""
    scopes = ["read", "propose", "predict"]
    return ApiToken.objects.create(user_create("researcher"), name="client", scopes=scopes)[1]


@pytest.fixture
def site(live_server: LiveServer, token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    with Site(f"{live_server.url}/", token) as site:
        yield site


@pytest.fixture
def site_of(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Site]]:
    """Return a function that creates a client with every scope for a user, as in ``site_of("operator")``."""
    monkeypatch.setenv("no_proxy", "*")
    with ExitStack() as stack:

        def create(username: str) -> Site:
            secret = ApiToken.objects.create(user_create(username), name="client of theirs")[1]
            return stack.enter_context(Site(live_server.url, secret))

        yield create
