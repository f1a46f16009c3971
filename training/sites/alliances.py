"""Alliances as both sides keep them: what is signed, what people are told, and whether they were told it."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from common.sentences import gettext_noop
from consent.selectors import consent_form_in_force
from consent.services.changes import changes_recorded
from learning.sites.documents import Alliance as AllianceDocument
from learning.sites.documents import Refused, public_key, renewed_site
from training.models import Alliance
from training.notices import key_waits_tell
from training.sites.documents import alliance_read, digest_of, document_text
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
        "digest": alliance.founding.digest(),  # who takes part, and what leaves, is the same whoever's key is replaced
    }


def form_tells(alliance: Alliance) -> bool:
    """Whether the consent form in force tells people of exactly this alliance.

    Then everybody whose consent counts has consented to it: a version that changes this fact asks all of them anew.
    """
    form = consent_form_in_force(alliance.study)
    return form is not None and alliance.is_signed and (form.facts or {}).get("alliance") == facts_of_alliance(alliance)


def document_keep(alliance: Alliance, message: Mapping[str, Any]) -> bool:
    """Keep what the hub says of an alliance at a site; whether it is new.

    A document that replaces the one on record waits until an operator of the site confirms it.

    Raises:
        Refused: It contradicts what is on record, is not signed, or does not name this site with its key.
    """
    values: dict[str, Any] = {}
    texts = [*message["former"], {"content": message["content"], "signature": message["signature"]}]
    if message["content"] and not alliance.is_signed:
        if alliance_follow(texts).sites.get(alliance.own_name) != public_key(identity(alliance)):
            raise Refused(gettext_noop("The hub has signed an alliance that does not name this site with its key."))
        document = alliance_read(texts[-1]).document
        if document.terms != digest_of(document_text(message["terms"])):
            raise Refused(gettext_noop("The hub has signed other terms than it tells: ask whoever runs it."))
        names = ("name", "content", "signature", "terms", "former")
        values = {name: message[name] for name in names} | {"colluding": document.colluding}
    elif alliance.is_signed:
        offered = _documents_after(alliance, texts)
        if offered != alliance.offered:
            values["offered"] = offered
    if message["ended"] and alliance.left_at is None:
        values["left_at"] = timezone.now()
    if not values:
        return False
    with changes_recorded([alliance], acting_user=None):
        for name, value in values.items():
            setattr(alliance, name, value)
        alliance.save(update_fields=list(values))
        if values.get("offered"):
            key_waits_tell(alliance)
    return True


def alliance_follow(texts: Sequence[Mapping[str, str]]) -> AllianceDocument:
    """The last of some documents of an alliance, each of which replaces one key of the one before. Raises Refused."""
    first, *others = [alliance_read(each) for each in texts]
    document = first.checked(first.document.hub, "the hub")
    for each in others:
        renewed_site(document, each.checked(document.hub, "the hub"))
        document = each.document
    return document


def _documents_after(alliance: Alliance, texts: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Documents that the hub tells to have followed the one on record at a site. Raises Refused."""
    contents = [each["content"] for each in texts]
    if contents[-1] in [each["content"] for each in alliance.former]:
        raise Refused(
            gettext_noop(
                "The hub tells a former document of the alliance, as after a restored backup: let it replace the "
                "key anew that was replaced since."
            )
        )
    if alliance.content not in contents:
        raise Refused(
            gettext_noop(
                "The hub has signed another alliance than the one that is on record here: ask whoever runs it."
            )
        )
    after = list(texts[contents.index(alliance.content) + 1 :])
    if after:
        document = alliance_follow([{"content": alliance.content, "signature": alliance.signature}, *after])
        identity(alliance, document.sites[alliance.own_name])
    return after
