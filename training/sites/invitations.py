"""Invitations of sites: an address of their hub, the alliance, and a code with which a site registers one key."""

import hashlib
import uuid
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from training.models import Alliance

_MARK = "#"


def invitation_write(alliance: Alliance, code: str, address: str) -> str:
    """What an operator of a site enters: address of the hub, alliance and code, in one line."""
    return f"{address.rstrip('/')}/{_MARK}{alliance.key.hex}.{code}"


def invitation_read(text: str) -> tuple[str, uuid.UUID, str]:
    """Address of the hub, number of the alliance, and code. Raises ValidationError."""
    address, _mark, rest = text.strip().partition(_MARK)
    key, _dot, code = rest.partition(".")
    parts = urlsplit(address)
    loopback = parts.hostname in ("127.0.0.1", "localhost", "::1", "testserver")
    try:
        known = uuid.UUID(key)
    except ValueError:
        known = None
    if not known or not code or not parts.hostname or (parts.scheme != "https" and not loopback):
        raise ValidationError({"invitation": _("This is no invitation: it begins with https:// and holds one #.")})
    return address.rstrip("/"), known, code


def code_digest(code: str) -> str:
    """SHA-256 of a code, which is all that a hub keeps of it."""
    return hashlib.sha256(code.encode()).hexdigest()
