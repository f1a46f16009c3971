"""``/healthz`` answers while the site is alive; ``/readyz`` says which part does not answer, but never why."""

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.core.files.storage import storages
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from common.models import WorkerHeartbeat
from tests.workers import wait_until, worker

READY = {"status": "ready", "database": "ok", "broker": "ok", "storage": "ok", "static": "ok", "worker": "ok"}
# too recent for a backup
READY |= {"verification": "ok", "backup": "ok", "beat": "ok", "disk": "ok", "certificate": "ok"}


@pytest.fixture
def _a_worker_was_heard(db: None) -> None:
    WorkerHeartbeat.objects.create(name="celery@here:1", heard_at=timezone.now())


def not_ready(client: Client, **parts: str) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == READY | {"status": "not ready"} | parts
    assert "secret" not in answer.content.decode()


def refuse(*_: object) -> None:
    raise OperationalError("password authentication failed for user secret")


@pytest.mark.django_db
def test_the_liveness_check_needs_nothing_else(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "cursor", refuse)
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.usefixtures("_a_worker_was_heard")
def test_ready(client: Client, settings: Any) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, READY)
    for alias in ("private", "models"):
        assert storages[alias].listdir("readiness") == ([], []), "the probe's file was not deleted"
    settings.SECURE_SSL_REDIRECT = True  # probes on the machine itself are not redirected to HTTPS
    again = Client()
    assert [again.get(path).status_code for path in ("/healthz", "/readyz", "/")] == [200, 200, 301]
    settings.SECURE_SSL_REDIRECT = False
    WorkerHeartbeat.objects.update(heard_at=timezone.now() - timedelta(seconds=settings.HEARTBEAT_TIMEOUT + 1))
    not_ready(client, worker="not heard from")


@pytest.mark.django_db
def test_a_database_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "cursor", refuse)
    unknown = dict.fromkeys(("verification", "backup", "beat", "certificate"), "unknown")
    not_ready(client, database="unreachable", worker="not heard from", **unknown)


@pytest.mark.usefixtures("_a_worker_was_heard")
def test_a_broker_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = current_app.connection_for_write("redis://127.0.0.1:1/0", transport="redis")
    monkeypatch.setattr(current_app._get_current_object(), "connection_for_write", lambda: nobody)
    not_ready(client, broker="unreachable")


@pytest.mark.usefixtures("_a_worker_was_heard")
@pytest.mark.parametrize("alias", ["private", "models"])
def test_a_storage_that_takes_no_files(client: Client, settings: Any, tmp_path: Path, alias: str) -> None:
    (tmp_path / "secret").write_text("a file where a folder should be")
    folder = {"location": str(tmp_path / "secret")}
    plain = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": folder}
    settings.STORAGES = settings.STORAGES | {alias: plain}
    not_ready(client, storage="not writable")


@pytest.mark.usefixtures("_a_worker_was_heard")
def test_styles_that_were_not_collected(client: Client, settings: Any, tmp_path: Path) -> None:
    settings.STATIC_ROOT = tmp_path
    collected = {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": collected}
    not_ready(client, static="not collected")


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.worker
@pytest.mark.django_db(transaction=True)
def test_workers_count_as_alive_until_they_stop_or_die(client, settings, tmp_path, end) -> None:
    settings.HEARTBEAT_TIMEOUT = 1.5
    log = tmp_path / "worker.log"
    with worker(log) as process:
        wait_until(lambda: client.get("/readyz").status_code == 200, log)
        heard = WorkerHeartbeat.objects.get()
        wait_until(lambda: WorkerHeartbeat.objects.get().heard_at > heard.heard_at, log)
        os.killpg(process.pid, end) if end == signal.SIGKILL else process.send_signal(end)
        process.wait()
    if end == signal.SIGTERM:
        assert not WorkerHeartbeat.objects.exists(), "a worker announces that it stops"
    wait_until(lambda: client.get("/readyz").status_code == 503, log)
