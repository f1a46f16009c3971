"""Periodic tasks of the foundations."""

from celery import shared_task

from common.throttle import entries_sweep


@shared_task
def throttle_sweep(*_: object, **__: object) -> None:
    """Delete expired entries of the throttle."""
    entries_sweep()
