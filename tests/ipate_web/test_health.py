"""``/healthz`` says which part does not answer, and never why."""

from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.db import OperationalError, connection
from django.test import Client

pytestmark = pytest.mark.django_db


def test_healthy(client: Client) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "database": "ok", "broker": "ok", "storage": "ok"}


def test_a_database_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OperationalError("password authentication failed for user secret")

    monkeypatch.setattr(connection, "cursor", refuse)
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unhealthy", "database": "unreachable", "broker": "ok", "storage": "ok"}
    assert "secret" not in answer.content.decode()


def test_a_broker_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = current_app.connection_for_write("redis://127.0.0.1:1/0")
    monkeypatch.setattr(current_app._get_current_object(), "connection_for_write", lambda: nobody)
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["broker"] == "unreachable"


def test_a_storage_that_is_gone(client: Client, settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path / "gone"
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["storage"] == "unreachable"
