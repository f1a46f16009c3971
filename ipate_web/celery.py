"""The Celery application: carries ids between the site and the workers, holds no state of its own."""

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipate_web.settings")

app = Celery("ipate_web")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def _use_django_logging(**_: object) -> None:
    """Keep Django's logging configuration in the worker."""
    from logging.config import dictConfig

    from django.conf import settings

    dictConfig(settings.LOGGING)
