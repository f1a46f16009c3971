"""Replacement of a site's key in an alliance, confirmed by two operators of the hub and then by every site.

The new document differs only in this key, so people are not asked for consent again: participants, purpose and releases
stay the same. Earlier documents are kept so that signatures made with former keys can still be checked.
"""

import logging
import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from common.sentences import gettext_noop
from consent.permissions import second_person_check
from consent.services import study_lock
from consent.services.changes import changes_recorded
from learning.sites.documents import AllianceDocument, Refused, public_key, renewed_site, sign
from training.alliances.approvals import refusal
from training.alliances.documents import alliance_verify, documents_of, signed_text
from training.alliances.wire import (
    Hub,
    Unreachable,
    code_digest,
    fingerprint,
    identity,
    invitation_read,
    known_identity,
)
from training.engine.scheduling import send
from training.models import Alliance, AllianceSite, Run
from training.notices import notify_key_waiting

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeyRenewal:
    """Pending replacement of a site's key, for display on a page.

    Attributes:
        site: Name of the site in the alliance.
        former: Fingerprint of the current key.
        fingerprint: Fingerprint of the new key; empty until the site has registered it.
        proposed_by: At the hub: id of the operator who requested the replacement.
        proposed_at: At the hub: time of the request.
    """

    site: str
    former: str
    fingerprint: str
    proposed_by: int | None = None
    proposed_at: datetime | None = None


def renewals_waiting(alliance: Alliance) -> list[KeyRenewal]:
    """Return pending key replacements: at most one at the hub, and all unconfirmed ones at a site."""
    if waiting := alliance.renewal:
        key = waiting["key"]
        former, at = alliance.document.sites[waiting["site"]], parse_datetime(waiting["proposed_at"])
        new = fingerprint(key) if key else ""
        return [KeyRenewal(waiting["site"], fingerprint(former), new, waiting["proposed_by"], at)]
    followed = [signed_text(AllianceDocument, each).document for each in alliance.offered]
    documents = [alliance.document, *followed] if followed else []
    sites = [(before, after, renewed_site(before, after)) for before, after in pairwise(documents)]
    return [KeyRenewal(site, fingerprint(old.sites[site]), fingerprint(new.sites[site])) for old, new, site in sites]


# --- At the hub -----------------------------------------------------------------------------------------------------


@transaction.atomic
def renewal_propose(*, alliance: Alliance, site: str, acting_user: AbstractBaseUser) -> str:
    """Request a new key from a site, at the hub; return the one-time code for registering it.

    The current key remains in force until a second operator confirms the new one.

    Raises:
        ValidationError: The alliance is not signed or has ended, the site is not a member, or another key is pending.
    """
    alliance = _held(alliance)
    if not alliance.is_hub or not alliance.is_signed or alliance.left_at is not None:
        raise ValidationError(
            _("Keys can be replaced only at the hub of an alliance that is signed and has not ended.")
        )
    if alliance.renewal:
        raise ValidationError(_("A key replacement is already pending. Confirm it, or discard it."))
    row = AllianceSite.objects.filter(alliance=alliance, name=site, left_at=None).first()
    if row is None:
        raise ValidationError({"site": _("This site is not part of the alliance.")})
    code = secrets.token_urlsafe(24)
    row.code_digest = code_digest(code)
    row.save(update_fields=["code_digest"])
    at = timezone.now().isoformat(timespec="seconds")
    _renewal_set(alliance, {"site": site, "key": "", "proposed_by": acting_user.pk, "proposed_at": at}, acting_user)
    logger.info("User %s requested a new key for a site of alliance %s.", acting_user.pk, alliance.pk)
    return code


def key_register(alliance: Alliance, site: AllianceSite, key: str) -> None:
    """Store a site's new key, which the site has sent with its code. Storing it again has no effect. Raises Refused."""
    alliance = _held(alliance)
    waiting = alliance.renewal
    if waiting.get("site") != site.name or waiting["key"] not in ("", key):
        raise Refused(gettext_noop("A different key was registered with this code. Ask the hub for a new invitation."))
    documents = [each.document for each in documents_of(alliance)]
    if any(key in (document.hub, *document.sites.values()) for document in documents):
        raise Refused(
            gettext_noop(
                "This key is already registered in the alliance. Give the site another IPATE_SECRET_KEY, and keep "
                "the current one in IPATE_SECRET_KEY_FALLBACKS for its other uses."
            )
        )
    if not waiting["key"]:
        _renewal_set(alliance, waiting | {"key": key}, None)
        notify_key_waiting(alliance)


@transaction.atomic
def renewal_drop(*, alliance: Alliance, acting_user: AbstractBaseUser) -> None:
    """Cancel the replacement of a site's key, if one is pending."""
    alliance = _held(alliance)
    if alliance.renewal:
        _renewal_set(alliance, {}, acting_user)


# --- On both sides --------------------------------------------------------------------------------------------------


@transaction.atomic
def renewal_confirm(*, alliance: Alliance, new_fingerprint: str, acting_user: AbstractBaseUser) -> Alliance:
    """Confirm a new key: first at the hub, where a second operator signs the new document, then at each site.

    Runs that were proposed under the former document end.

    Args:
        alliance: The alliance, as stored at this hub or site.
        new_fingerprint: Fingerprint of the new key, compared with the site's by telephone.

    Raises:
        ValidationError: No key or a different key is pending, or ``acting_user`` is not a second person.
    """
    alliance = _held(alliance)
    waiting = renewals_waiting(alliance)
    if alliance.left_at is not None or not waiting or waiting[-1].fingerprint != new_fingerprint or not new_fingerprint:
        raise ValidationError(
            _("This key is not waiting for confirmation. Reload the page to see whether another key is waiting.")
        )
    try:
        before = alliance_verify(alliance)
        if alliance.is_hub:
            second_person_check(
                alliance.study,
                waiting[0].proposed_by,
                acting_user,
                own=_("You requested this key yourself. Another operator has to compare and confirm it."),
            )
            followed = [_sign_with_new_key(alliance, before)]
        else:
            followed = alliance.offered
    except Refused as error:
        raise refusal(error) from error
    former = [*alliance.former, {"content": alliance.content, "signature": alliance.signature}, *followed[:-1]]
    values = {**followed[-1], "former": former, "renewal": {}, "offered": []}
    with changes_recorded([alliance], acting_user=acting_user):
        for name, value in values.items():
            setattr(alliance, name, value)
        alliance.save(update_fields=list(values))
    for pk in alliance.runs.filter(status__in=Run.ACTIVE).values_list("pk", flat=True):
        send("run_advance", pk)  # ends runs proposed under the former document
    if not alliance.is_hub:
        send("alliance_contact", alliance.pk)
    logger.info("User %s confirmed the new key of a site of alliance %s.", acting_user.pk, alliance.pk)
    return alliance


def _sign_with_new_key(alliance: Alliance, before: AllianceDocument) -> dict[str, str]:
    """Sign and return the new document with the pending key, which then becomes the site's only key."""
    site, key = alliance.renewal["site"], alliance.renewal["key"]
    document = replace(before, sites={**before.sites, site: key})
    renewed_site(before, document)
    alliance.sites.update(signature="")
    alliance.sites.filter(name=site).update(public_key=key)
    return {
        "content": document.content().decode(),
        "signature": sign(document, known_identity(alliance)).signature.hex(),
    }


# --- At the site whose key is replaced --------------------------------------------------------------------------------


def identity_renew(*, alliance: Alliance, invitation: str, acting_user: AbstractBaseUser) -> str:
    """Register the current key at the hub with the code that the hub issued; return the key's fingerprint.

    Raises:
        ValidationError: The invitation is not for this alliance, or the hub cannot be reached or refuses.
    """
    _address, key, code = invitation_read(invitation)
    if alliance.is_hub or key != alliance.key:
        raise ValidationError({"invitation": _("This invitation belongs to a different alliance.")})
    own = public_key(identity(alliance))
    try:
        Hub(alliance).post("register", {"code": code, "key": own}, signed=False)
    except Unreachable as error:
        raise ValidationError(str(error)) from error
    logger.info("User %s registered a new key with alliance %s.", acting_user.pk, alliance.pk)
    return fingerprint(own)


def own_renewal(alliance: Alliance) -> KeyRenewal | None:
    """Return this site's current key, to be registered, if it differs from the one in the alliance's document."""
    if alliance.is_hub or not alliance.is_signed:
        return None
    own, known = public_key(identity(alliance)), alliance.document.sites[alliance.own_name]
    return None if own == known else KeyRenewal(alliance.own_name, fingerprint(known), fingerprint(own))


def _held(alliance: Alliance) -> Alliance:
    """Lock the alliance's study, and return the alliance in its current state."""
    study_lock(alliance.study_id)
    return Alliance.objects.select_related("study").get(pk=alliance.pk)


def _renewal_set(alliance: Alliance, waiting: dict, acting_user: AbstractBaseUser | None) -> None:
    with changes_recorded([alliance], acting_user=acting_user):
        alliance.renewal = waiting
        alliance.save(update_fields=["renewal"])
