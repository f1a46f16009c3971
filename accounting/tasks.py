"""Periodic tasks of the accounts."""

from celery import shared_task

from accounting.sweep import accounts_sweep as sweep


@shared_task
def accounts_sweep(*_: object, **__: object) -> None:
    """Delete what processes that died left of charges that were never committed."""
    sweep()
