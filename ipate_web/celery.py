"""The Celery application: passes ids between the site and the workers, and has no state of its own."""

import os

from celery import Celery
from celery.signals import setup_logging, worker_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipate_web.settings")

app = Celery("ipate_web")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@app.on_after_finalize.connect
def _let_workers_be_heard(**_: object) -> None:
    """Add the heartbeat to every worker, after the models that it writes to have been loaded."""
    from common.worker_heartbeats import HeartbeatStep

    app.steps["consumer"].add(HeartbeatStep)


@worker_init.connect
def worker_check(**_: object) -> None:
    """Refuse to start a worker that could not train. Raises SystemExit."""
    from learning.libraries import has_pytorch

    if not has_pytorch():
        raise SystemExit("PyTorch is not installed here, and workers need it: call `make install`.")


@setup_logging.connect
def _use_django_logging(**_: object) -> None:
    """Keep Django's logging configuration in the worker."""
    from logging.config import dictConfig

    from django.conf import settings

    dictConfig(settings.LOGGING)
