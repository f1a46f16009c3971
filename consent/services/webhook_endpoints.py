"""Endpoints of webhooks: made, tested and removed by a study's operators."""

import logging
import secrets
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from common import outbound
from common.encryption import cipher
from common.keys import Purpose
from consent.models import Study, WebhookDelivery, WebhookEndpoint
from consent.services.changes import changes_recorded
from consent.services.studies import study_open_check
from consent.services.webhooks import EVENTS, TEST, deliveries_put_down

logger = logging.getLogger(__name__)

#: So many endpoints a study may have.
MOST = 10

_REFUSED: dict[str, str | Promise] = {
    "scheme": gettext_lazy("Give an address that begins with https://."),
    "malformed": gettext_lazy("Give an address such as https://hooks.example.org/ipate, without a password or #."),
    "private": gettext_lazy(
        "This host has a private address. Give a public one, or have the installation's administrator allow its "
        "network with IPATE_WEBHOOK_NETWORKS."
    ),
    "port": gettext_lazy(
        "Use port 443, or have the installation's administrator allow the host's network with IPATE_WEBHOOK_NETWORKS."
    ),
}


@dataclass(frozen=True)
class MadeEndpoint:
    """New endpoint with its secret, which nobody is shown again."""

    endpoint: WebhookEndpoint
    secret: str


def endpoint_create(*, study: Study, url: str, events: list[str], acting_user: AbstractBaseUser) -> MadeEndpoint:
    """Have a program told of some events of a study.

    Raises:
        ValidationError: by field: the address is not allowed, no or unknown events, or too many endpoints.
    """
    study_open_check(study)
    errors = {}
    try:
        outbound.url_check(url)
    except outbound.RefusedAddressError as refused:
        errors["url"] = str(_REFUSED[refused.code])
    except OSError:
        errors["url"] = _("No host of this name is known. Check the spelling.")
    if not events or not set(events) <= set(EVENTS):
        errors["events"] = _("Choose at least one event.")
    if errors:
        raise ValidationError(errors)
    if WebhookEndpoint.objects.filter(study=study).count() >= MOST:
        raise ValidationError(_("A study has at most %(most)d webhooks. Remove one first.") % {"most": MOST})
    secret = f"whsec_{secrets.token_urlsafe(32)}"
    endpoint = WebhookEndpoint(
        study=study,
        url=url,
        events=[event for event in EVENTS if event in events],
        secret=cipher(Purpose.FACTORS, "webhook").encrypt(secret.encode()).decode(),
        created_by_id=acting_user.pk,
    )
    with changes_recorded([endpoint], acting_user=acting_user):
        endpoint.save()
    logger.info("User %s made webhook %s of study %s.", acting_user.pk, endpoint.pk, study.pk)
    return MadeEndpoint(endpoint, secret)


def endpoint_remove(*, endpoint: WebhookEndpoint, acting_user: AbstractBaseUser) -> None:
    """Tell an endpoint nothing any more; its deliveries go with it."""
    logger.info("User %s removed webhook %s of study %s.", acting_user.pk, endpoint.pk, endpoint.study_id)
    with changes_recorded([endpoint], acting_user=acting_user):
        endpoint.delete()


@transaction.atomic
def endpoint_test(*, endpoint: WebhookEndpoint) -> WebhookDelivery:
    """Send an event that nothing has happened for."""
    page = settings.SITE_URL + endpoint.get_absolute_url()  # type: ignore[attr-defined]
    return deliveries_put_down([endpoint], TEST, {"url": page})[0]
