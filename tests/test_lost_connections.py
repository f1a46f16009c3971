"""Workers, beat, pages and sites continue after an outage of Redis, PostgreSQL or the hub, without a restart."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest
from celery import current_app
from django.conf import settings
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from benchmarks.faults.cables import Cable
from common.jobs import live_worker_count
from common.models import WorkerHeartbeat
from ipate_web.processes import running, site_command
from tests.databases import database_url
from tests.training.sites.alliances import Installations, InThisProcess, finish
from tests.training.sites.test_joint_runs import STEPS
from tests.workers import environment_of_processes, port_reserve, wait_until
from training.alliances.exchange import exchange
from training.alliances.wire import Hub, Unreachable
from training.models import Alliance, Run

needs_redis = pytest.mark.skipif(not settings.BROKER_URL.startswith("redis"), reason="Redis is not available")


def cable_to(url: str, port: int = 0) -> tuple[Cable, str]:
    """Return a cable to the server of ``url``, at ``port`` if it names none, and the same address through the cable."""
    parts = urlsplit(url)
    cable = Cable((parts.hostname or "", parts.port or port))
    user, at, _host = parts.netloc.rpartition("@")
    return cable, urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{cable.port}"))


@needs_redis
def test_a_half_closed_connection_counts_as_a_lost_one() -> None:
    with current_app.connection_for_read() as broker:
        assert AttributeError in broker.connection_errors
    assert current_app.conf.broker_connection_max_retries is None


@needs_redis
@pytest.mark.exhaustive
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lost", ["redis", "postgres"])
def test_worker_beat_and_pages_are_well_again_after_a_cut(lost: str, tmp_path: Path) -> None:
    if lost == "postgres" and connection.vendor != "postgresql":
        pytest.skip("PostgreSQL is not available")
    url = settings.BROKER_URL if lost == "redis" else database_url()
    name, usual = ("IPATE_BROKER_URL", 6379) if lost == "redis" else ("DATABASE_URL", 5432)
    cable, through = cable_to(url, usual)
    environment = environment_of_processes() | {name: through, "IPATE_ALLOWED_HOSTS": "127.0.0.1"}
    logs = {each: tmp_path / f"{each}.log" for each in ("worker", "beat", "web")}
    celery, port = [sys.executable, "-m", "celery", "-A", "ipate_web"], port_reserve()
    commands = {
        "worker": [*celery, "worker", "--concurrency", "2", "--loglevel", "INFO"],
        "beat": [*celery, "beat", "--loglevel", "INFO", "--schedule", str(tmp_path / "beat")],
        "web": site_command(port),
    }
    web = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False)

    def answer(path: str, **headers: str) -> httpx.Response | None:
        with suppress(httpx.HTTPError):
            return web.get(path, headers=headers)
        return None

    def is_well() -> bool:
        """Return whether beat sends tasks, the worker runs them, and the site finds everything it needs."""
        since = timezone.now()
        swept = logs["worker"].read_text().count("succeeded")
        ready = answer("/readyz")
        wait_until(lambda: logs["worker"].read_text().count("succeeded") > swept + 2, *logs.values(), seconds=60)
        wait_until(WorkerHeartbeat.objects.filter(heard_at__gt=since).exists, *logs.values(), seconds=60)
        return ready is not None and ready.status_code == 200

    collect = [sys.executable, "manage.py", "collectstatic", "--no-input", "--verbosity", "0"]
    collected = environment | {"IPATE_VAR_DIR": str(settings.VAR_DIR)}
    subprocess.run(collect, cwd=settings.BASE_DIR, env=os.environ | collected, check=True)
    with ExitStack() as stack:
        started = {each: stack.enter_context(running(commands[each], logs[each], environment)) for each in commands}
        wait_until(live_worker_count, *logs.values())
        wait_until(is_well, *logs.values())
        for seconds in (1, 20, 120):
            cable.cut()
            begun = time.monotonic()
            assert answer("/healthz").status_code == 200
            state = answer("/readyz")
            assert state is not None and state.status_code == 503, state
            if lost == "postgres":
                program = answer("/api/v1/studies", Authorization="Bearer ipate_none")
                page = answer(reverse("account_login"), Cookie=f"{settings.SESSION_COOKIE_NAME}={32 * 'a'}")
                assert [each.status_code for each in (program, page)] == [503, 503]
                assert all(int(each.headers["Retry-After"]) > 0 for each in (program, page))
                assert program.headers["Content-Type"] == "application/problem+json"
            time.sleep(max(0.0, seconds - (time.monotonic() - begun)))
            cable.repair()
            wait_until(is_well, *logs.values(), seconds=60)
            assert {each: process.poll() for each, process in started.items()} == dict.fromkeys(started)


@pytest.mark.django_db(transaction=True)
@pytest.mark.exhaustive
def test_sites_go_on_when_their_hub_was_cut(live_server, settings, monkeypatch) -> None:
    """Sites keep real connections open, which break during a run and are opened again."""
    settings.SITES_WAIT = settings.SITES_INTERVAL = 0  # ask again at once
    with monkeypatch.context() as building:
        building.setattr(Hub, "transport", InThisProcess())
        there = Installations()
    cable, through = cable_to(live_server.url)
    Alliance.objects.exclude(own_name="").update(address=through)
    there.sites = [Alliance.objects.get(pk=site.pk) for site in there.sites]
    runs = there.start(**STEPS)
    finish(runs, until=lambda runs: runs[0].position > 0)
    cable.cut()
    for site in there.sites:
        with pytest.raises(Unreachable):
            exchange(Alliance.objects.get(pk=site.pk))
    finish(runs, until=lambda runs: any(run.message for run in runs[1:]))
    assert not any(run.has_ended for run in Run.objects.all())
    cable.repair()
    assert {run.status for run in finish(list(Run.objects.order_by("created_at")))} == {Run.Status.FINISHED}
