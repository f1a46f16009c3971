"""Health endpoint ``/healthz``: database, broker and storage."""

import logging
from pathlib import Path

from celery import current_app
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return True
    except DatabaseError:
        logger.exception("The database does not answer.")
        return False


def _broker() -> bool:
    try:
        with current_app.connection_for_write() as broker:
            broker.ensure_connection(max_retries=1, timeout=2)
        return True
    except (OperationalError, OSError):
        logger.exception("The broker does not answer.")
        return False


def _storage() -> bool:
    return Path(settings.VAR_DIR).is_dir()


def healthz(request: HttpRequest) -> JsonResponse:
    """Health of database, broker and storage: 200 if all answer, else 503 with which, never why."""
    parts = {"database": _database(), "broker": _broker(), "storage": _storage()}
    healthy = all(parts.values())
    state = {name: "ok" if fine else "unreachable" for name, fine in parts.items()}
    return JsonResponse({"status": "ok" if healthy else "unhealthy", **state}, status=200 if healthy else 503)
