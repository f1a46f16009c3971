"""Celery tasks of consent."""

from celery import shared_task

from consent import mail


@shared_task
def mails_deliver(*_: object, **__: object) -> None:
    """Deliver the mails that are due."""
    mail.mails_deliver()
