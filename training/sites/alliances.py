"""Alliances as both sides keep them: what is signed, what people are told, and whether they were told it."""

import logging
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from common.sentences import gettext_noop
from consent.selectors import consent_form_in_force
from consent.services.changes import changes_recorded
from learning.sites.documents import Alliance as AllianceDocument
from learning.sites.documents import Refused, Signed, public_key
from training.models import Alliance
from training.sites.documents import digest_of, document_text, signature_of
from training.sites.keys import identity

logger = logging.getLogger(__name__)


def refusal(error: Refused) -> ValidationError:
    """What people are told where a document of the other side does not fit; the log says which, and why."""
    logger.warning("Refused: %s", error)
    return ValidationError(
        _("What hub and sites have signed does not fit together, or is not signed yet. The log says what is wrong.")
    )


def facts_of_alliance(alliance: Alliance) -> dict[str, Any]:
    """What the consent form says of an alliance: who is in it, and the digest of what is signed."""
    document = alliance.document
    return {
        "name": document.name,
        "hub": alliance.terms["hub"],
        "sites": sorted(document.sites),
        "digest": document.digest(),
    }


def form_tells(alliance: Alliance) -> bool:
    """Whether the consent form in force tells people of exactly this alliance.

    Then everybody whose consent counts has consented to it: a version that changes this fact asks all of them anew.
    """
    form = consent_form_in_force(alliance.study)
    return form is not None and alliance.is_signed and (form.facts or {}).get("alliance") == facts_of_alliance(alliance)


def document_keep(alliance: Alliance, message: Mapping[str, Any]) -> bool:
    """Keep what the hub says of an alliance at a site; whether it is new.

    Raises:
        Refused: It contradicts what is on record, is not signed, or does not name this site with its key.
    """
    values: dict[str, Any] = {}
    if message["content"] and not alliance.is_signed:
        document = AllianceDocument.read(message["content"].encode())
        Signed(document, signature_of(message["signature"])).checked(document.hub, "the hub")
        if document.terms != digest_of(document_text(message["terms"])):
            raise Refused(gettext_noop("The hub has signed other terms than it tells: ask whoever runs it."))
        if document.sites.get(alliance.own_name) != public_key(identity(alliance)):
            raise Refused(gettext_noop("The hub has signed an alliance that does not name this site with its key."))
        names = ("name", "content", "signature", "terms")
        values = {name: message[name] for name in names} | {"colluding": document.colluding}
    elif alliance.is_signed and message["content"] != alliance.content:
        raise Refused(
            gettext_noop(
                "The hub has signed another alliance than the one that is on record here: ask whoever runs it."
            )
        )
    if message["ended"] and alliance.left_at is None:
        values["left_at"] = timezone.now()
    if not values:
        return False
    with changes_recorded([alliance], acting_user=None):
        for name, value in values.items():
            setattr(alliance, name, value)
        alliance.save(update_fields=list(values))
    return True
