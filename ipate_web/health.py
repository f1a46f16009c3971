"""Health endpoints: ``/healthz``, whether the site is alive, and ``/readyz``, whether all that it needs answers."""

import logging
from collections.abc import Callable
from uuid import uuid4

from celery import current_app
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe
from kombu.exceptions import OperationalError

from common.worker_heartbeats import live_worker_count
from ipate_web.watching import PARTS as WATCHED

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
    """Whether private storage and that of models take a file and let it go again."""
    try:
        for alias in ("private", "models"):
            name = storages[alias].save(f"readiness/{uuid4().hex}", ContentFile(b"ready"))
            storages[alias].delete(name)
        return True
    except Exception:  # each kind of storage has errors of its own
        logger.exception("The storage takes no files.")
        return False


def _worker() -> bool:
    try:
        return live_worker_count() > 0
    except DatabaseError:
        logger.exception("Whether a worker was heard from is not known.")
        return False


#: What the site needs: its check, and what is said where it fails.
PARTS: dict[str, tuple[Callable[[], bool], str]] = {
    "database": (_database, "unreachable"),
    "broker": (_broker, "unreachable"),
    "storage": (_storage, "not writable"),
    "worker": (_worker, "not heard from"),
}


def _note(find: Callable[[], str]) -> str:
    try:
        return find()
    except DatabaseError:
        logger.exception("What there is to note of the site is not known.")
        return "unknown"


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Life of the site's own process: 200 as long as it answers, even if everything else is down."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Readiness of everything that the site needs: 200 if all parts answer, else 503 with those that do not, never why.

    Other problems are listed but do not change the status: taking the site out of rotation would also take away
    withdrawals and erasures, which holders need most when something is wrong.
    """
    fine = {name: check() for name, (check, _) in PARTS.items()}
    ready = all(fine.values())
    state = {name: "ok" if fine[name] else fault for name, (_, fault) in PARTS.items()}
    notes = {name: _note(part.state) for name, part in WATCHED.items()}
    return JsonResponse({"status": "ready" if ready else "not ready", **state, **notes}, status=200 if ready else 503)
