"""Periodic tasks of the installation."""

from celery import shared_task


@shared_task
def watch(*_: object, **__: object) -> None:
    """Look at what is watched, and tell of it."""
    from ipate_web.watching import watch

    watch()
