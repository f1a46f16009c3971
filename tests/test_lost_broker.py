"""Workers go on when Redis was away, whatever they were doing when the connection broke."""

import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from celery import current_app
from django.conf import settings

from benchmarks.faults.cables import Cable
from common.worker_heartbeats import live_worker_count
from tests.workers import wait_until, worker

needs_redis = pytest.mark.skipif(not settings.BROKER_URL.startswith("redis"), reason="Redis is not there")


@needs_redis
def test_a_half_closed_connection_counts_as_a_lost_one() -> None:
    with current_app.connection_for_read() as broker:
        assert AttributeError in broker.connection_errors
    assert current_app.conf.broker_connection_max_retries is None


@needs_redis
@pytest.mark.exhaustive
@pytest.mark.django_db(transaction=True)
def test_a_worker_survives_cuts_of_its_broker(tmp_path: Path) -> None:
    """Without the project's transport it ended after two to four cuts."""
    url = urlsplit(settings.BROKER_URL)
    cable, log = Cable((url.hostname or "", url.port or 6379)), tmp_path / "worker.log"
    through = urlunsplit(url._replace(netloc=f"127.0.0.1:{cable.port}"))
    with worker(log, IPATE_BROKER_URL=through, IPATE_SWEEP_INTERVAL="0.2") as process:
        wait_until(live_worker_count, log)
        for seconds in (1, 0.1, 2, 0.5, 1, 3):
            cable.cut()
            time.sleep(seconds)
            cable.repair()
            done = log.read_text().count("runs_sweep")
            wait_until(lambda done=done: log.read_text().count("runs_sweep") > done + 10, log, seconds=60)
            assert process.poll() is None
