"""Webhooks: signed notifications of a study's events to programs that its operators register.

A delivery is a row with the body to send, which is the same at each attempt. It contains only information that every
reader of the study's runs may see, such as names of studies and runs, states and links, and nothing about people. The
secret is stored encrypted, shown once, and never logged.
"""

import hashlib
import hmac
import json
import logging
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPException
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from common import outbound
from common.backoff import pause_after
from common.jobs import send
from common.keys import Purpose, cipher
from consent.models import Study, WebhookDelivery, WebhookEndpoint, study_lock
from consent.services.changes import changes_recorded
from consent.services.studies import study_open_check

logger = logging.getLogger(__name__)

#: Events that endpoints can receive.
EVENTS: dict[str, str | Promise] = {
    "run.proposed": gettext_lazy("a run is waiting for approval"),
    "run.approved": gettext_lazy("a run was approved"),
    "run.approval_failed": gettext_lazy("an approved run could not be planned"),
    "run.finished": gettext_lazy("a run has finished"),
    "run.failed": gettext_lazy("a run has failed"),
    "run.cancelled": gettext_lazy("a run was cancelled"),
    "share.used": gettext_lazy("a group has used most or all of its share in a run"),
    "alliance.key": gettext_lazy("a site's new key needs to be confirmed"),
    "joint.proposed": gettext_lazy("a hub proposes a run across sites"),
    "site.silent": gettext_lazy("a run across sites is waiting for a site or the hub"),
    "policy.proposed": gettext_lazy("an ε policy is waiting for approval"),
    "policy.approved": gettext_lazy("an ε policy was approved"),
    "form.proposed": gettext_lazy("a consent form is waiting for approval"),
    "form.published": gettext_lazy("a consent form was published"),
}
#: Test event, which only the button on the page sends.
TEST = "test"
#: Number of delivery attempts, with doubling delays (17 hours in all) or with the delay that the receiver requests.
TRIES = 10
#: Longest delay between two attempts in seconds, even if the receiver requests more.
_LONGEST = 86_400.0
#: After this time, another worker takes over a delivery from a worker that died.
_LEASE = timedelta(minutes=5)
_AT_ONCE = 100
#: How long deliveries stay on the page.
KEPT = timedelta(days=30)
#: Largest number of endpoints of a study.
MOST = 10
_REFUSED: dict[str, str | Promise] = {
    "scheme": gettext_lazy("Enter an address that starts with https://."),
    "malformed": gettext_lazy("Enter an address such as https://hooks.example.org/ipate, without a password or #."),
    "private": gettext_lazy(
        "This host has a private address. Enter a public one, or ask the installation's administrator to allow its "
        "network with IPATE_WEBHOOK_NETWORKS."
    ),
    "port": gettext_lazy(
        "Use port 443, or ask the installation's administrator to allow the host's network with IPATE_WEBHOOK_NETWORKS."
    ),
}


def event_send(event: str, study: Study, **facts: Any) -> None:
    """Queue the event for the endpoints of ``study`` that subscribe to it, to be sent after the transaction commits.

    Args:
        event: one of :data:`EVENTS`.
        study: the study in which it happened.
        **facts: additional public information, as JSON.
    """
    assert event in EVENTS, event
    endpoints = [each for each in WebhookEndpoint.objects.filter(study=study) if event in each.events]
    if endpoints:
        deliveries_record(endpoints, event, facts)


def deliveries_record(endpoints: list[WebhookEndpoint], event: str, facts: dict[str, Any]) -> list[WebhookDelivery]:
    """Record the same event for each of the given endpoints."""
    now, rows = timezone.now(), []
    for endpoint in endpoints:
        key = uuid4()
        body = {"id": str(key), "event": event, "at": now.isoformat(timespec="seconds"), "study": endpoint.study.slug}
        rows.append(
            WebhookDelivery(
                pk=key, endpoint=endpoint, event=event, body=json.dumps(body | facts, ensure_ascii=False), due_at=now
            )
        )
    WebhookDelivery.objects.bulk_create(rows)
    send("consent.tasks.webhooks_deliver")
    return rows


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a body: the scheme's version, then the hexadecimal HMAC-SHA256 of ``timestamp.body``."""
    content = f"{timestamp}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def webhooks_deliver() -> None:
    """Send the deliveries that are due and delete old ones; a failed delivery is retried later."""
    now = timezone.now()
    waiting = WebhookDelivery.objects.filter(state=WebhookDelivery.State.WAITING)
    due = waiting.filter(due_at__lte=now).order_by("due_at")
    for pk in list(due.values_list("pk", flat=True)[:_AT_ONCE]):
        _deliver(pk)
    ended = WebhookDelivery.objects.exclude(state=WebhookDelivery.State.WAITING)
    ended.filter(created_at__lt=now - KEPT).delete()


def _deliver(pk: UUID) -> None:
    now = timezone.now()
    mine = WebhookDelivery.objects.filter(pk=pk, state=WebhookDelivery.State.WAITING)
    if not mine.filter(due_at__lte=now).update(due_at=now + _LEASE, tries=F("tries") + 1):
        return  # another worker has it
    delivery = WebhookDelivery.objects.select_related("endpoint").get(pk=pk)
    response, fault = _posted(delivery)
    status = response.status if response else None
    if status is not None and 200 <= status < 300:
        mine.update(state=WebhookDelivery.State.SENT, sent_at=timezone.now(), status=status, fault="")
        return
    logger.warning("Webhook delivery %s failed (attempt %d): %s.", pk, delivery.tries, fault or f"status {status}")
    if delivery.tries >= TRIES:
        mine.update(state=WebhookDelivery.State.FAILED, status=status, fault=fault)
    else:
        wish = response.retry_after if response else None
        pause = pause_after(delivery.tries, least=60, most=_LONGEST, retry_after=wish)
        mine.update(due_at=timezone.now() + timedelta(seconds=pause), status=status, fault=fault)


def _posted(delivery: WebhookDelivery) -> tuple[outbound.Response | None, str]:
    """Return the response, or the error's class without its message, because the message can contain the URL."""
    body, timestamp = delivery.body.encode(), int(time.time())
    try:
        secret = cipher(Purpose.FACTORS, "webhook").decrypt(delivery.endpoint.secret.encode()).decode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "iPATE",
            "X-IPATE-Event": delivery.event,
            "X-IPATE-Delivery": str(delivery.pk),
            "X-IPATE-Timestamp": str(timestamp),
            "X-IPATE-Signature": signature(secret, timestamp, body),
        }
        return outbound.post(delivery.endpoint.url, body, headers), ""
    except outbound.RefusedAddressError:
        return None, "address not allowed"
    except (OSError, HTTPException) as error:
        return None, type(error).__name__
    except Exception as error:  # a problem with one delivery must not delay the others
        logger.error("Webhook delivery %s failed unexpectedly: %s.", delivery.pk, type(error).__name__)
        return None, type(error).__name__


@dataclass(frozen=True)
class MadeEndpoint:
    """New endpoint with its secret, which is never shown again."""

    endpoint: WebhookEndpoint
    secret: str


def endpoint_create(*, study: Study, url: str, events: list[str], acting_user: AbstractBaseUser) -> MadeEndpoint:
    """Register a program that will be notified of certain events of a study.

    Raises:
        ValidationError: errors by field: the URL is not allowed, events are missing or unknown, or there are too many
            endpoints.
    """
    study_open_check(study)
    errors = {}
    try:
        outbound.url_check(url)
    except outbound.RefusedAddressError as refused:
        errors["url"] = str(_REFUSED[refused.code])
    except OSError:
        errors["url"] = _("This host name is unknown. Check the spelling.")
    if not events or not set(events) <= set(EVENTS):
        errors["events"] = _("Choose at least one event.")
    if errors:
        raise ValidationError(errors)
    secret = f"whsec_{secrets.token_urlsafe(32)}"
    endpoint = WebhookEndpoint(
        study=study,
        url=url,
        events=[event for event in EVENTS if event in events],
        secret=cipher(Purpose.FACTORS, "webhook").encrypt(secret.encode()).decode(),
        created_by_id=acting_user.pk,
    )
    with transaction.atomic():
        study_open_check(study_lock(study.pk))
        if WebhookEndpoint.objects.filter(study=study).count() >= MOST:
            raise ValidationError(_("A study can have at most %(most)d webhooks. Remove one first.") % {"most": MOST})
        with changes_recorded([endpoint], acting_user=acting_user):
            endpoint.save()
    logger.info("User %s created webhook %s of study %s.", acting_user.pk, endpoint.pk, study.pk)
    return MadeEndpoint(endpoint, secret)


@transaction.atomic
def endpoint_remove(*, endpoint: WebhookEndpoint, acting_user: AbstractBaseUser) -> None:
    """Remove an endpoint with its deliveries. Removing it again has no effect."""
    if not WebhookEndpoint.objects.select_for_update().filter(pk=endpoint.pk).exists():
        return
    logger.info("User %s removed webhook %s of study %s.", acting_user.pk, endpoint.pk, endpoint.study_id)
    with changes_recorded([endpoint], acting_user=acting_user):
        endpoint.delete()


@transaction.atomic
def endpoint_test(*, endpoint: WebhookEndpoint) -> WebhookDelivery:
    """Send a test event. Raises ValidationError if the endpoint was removed."""
    if not WebhookEndpoint.objects.select_for_update().filter(pk=endpoint.pk).exists():
        raise ValidationError(_("This webhook was removed."))
    page = settings.SITE_URL + endpoint.get_absolute_url()  # type: ignore[attr-defined]
    return deliveries_record([endpoint], TEST, {"url": page})[0]
