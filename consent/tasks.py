"""Celery tasks of consent."""

from celery import shared_task
from django.conf import settings

from consent.services import (
    addresses,
    answer_drafts,
    checkpoints,
    consent_forms,
    deadlines,
    handover,
    mail,
    reminders,
    webhooks,
)


@shared_task
def mails_deliver(*_: object, **__: object) -> None:
    """Deliver the mails that are due."""
    mail.mails_deliver()


@shared_task
def webhooks_deliver(*_: object, **__: object) -> None:
    """Deliver what is due to webhooks."""
    webhooks.webhooks_deliver()


@shared_task
def reminders_send(*_: object, **__: object) -> None:
    """Remind those whose decision is to be renewed soon."""
    reminders.reminders_send()


@shared_task
def addresses_sweep(*_: object, **__: object) -> None:
    """Delete addresses that nobody confirmed, and those of whom everything is erased; and answers kept long enough."""
    addresses.addresses_sweep()
    answer_drafts.answer_drafts_sweep()


@shared_task
def corrections_publish(*_: object, **__: object) -> None:
    """Publish corrections of consent forms whose time for objections is over."""
    consent_forms.corrections_publish()


@shared_task
def overdue_mails_send(*_: object, **__: object) -> None:
    """Tell chairs of proposals that still wait after the day on which an answer was wanted."""
    deadlines.overdue_mails_send()


@shared_task
def hand_overs(*_: object, **__: object) -> None:
    """Hand over whom a guardian or proxy no longer answers for."""
    handover.hand_overs()


@shared_task
def checkpoints_make(*_: object, **__: object) -> None:
    """Make the day's checkpoint where the private key is, and what proofs under the last one need."""
    if settings.CHECKPOINT_KEY_FILE:
        checkpoints.checkpoint_make(key=checkpoints.signing_key())
    checkpoints.state_keep()
