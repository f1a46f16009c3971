"""The Django project."""

from ipate_web.celery import app as celery_app
