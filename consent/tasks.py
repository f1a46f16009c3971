"""Celery tasks of consent."""

from celery import shared_task
from django.conf import settings

from common.jobs import task_of
from consent.services import checkpoints, committee, consent_forms, decisions, holders, mail, webhooks

mails_deliver = task_of("consent.tasks.mails_deliver", mail.mails_deliver)
webhooks_deliver = task_of("consent.tasks.webhooks_deliver", webhooks.webhooks_deliver)
reminders_send = task_of("consent.tasks.reminders_send", mail.reminders_send)
corrections_publish = task_of("consent.tasks.corrections_publish", consent_forms.corrections_publish)
overdue_mails_send = task_of("consent.tasks.overdue_mails_send", committee.overdue_mails_send)
handovers_record = task_of("consent.tasks.handovers_record", holders.handovers_record)


@shared_task
def addresses_sweep(*_: object, **__: object) -> None:
    """Delete unconfirmed addresses, addresses of people whose records were erased, and expired answers."""
    mail.addresses_sweep()
    decisions.answer_drafts_sweep()


@shared_task
def checkpoints_make(*_: object, **__: object) -> None:
    """Create the day's checkpoint if the private key is available.

    Then store the data needed to prove entries against the latest checkpoint.
    """
    if settings.CHECKPOINT_KEY_FILE:
        checkpoints.checkpoint_make(key=checkpoints.signing_key())
    checkpoints.checkpoint_state_store()
