"""Keys of hub and sites: one signing identity in each alliance, and one agreement key for each run.

The identity is derived from the installation's secret key. So no backup of the database holds it, and another secret
key is another identity: after `SECRET_KEY` was changed, the old one has to stay among the fallbacks.

The agreement key of a run is a file in private storage that backups leave out, since no row of theirs names it: a
database that was restored cannot answer a question of the run a second time.
"""

import hashlib
import logging
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from common.artifacts import arrays_delete, arrays_load, arrays_save
from common.sentences import gettext_noop
from learning.sites.documents import Refused, public_key
from learning.sites.protocol import Site
from training.models import Alliance, JointRun

logger = logging.getLogger(__name__)

_PURPOSE = "ipate: identity in an alliance"


def identity(alliance: Alliance, public: str = "") -> Ed25519PrivateKey:
    """Return the signing key of this side of an alliance.

    Args:
        alliance: The alliance, as this side knows it.
        public: The public key that the others know; empty for the key derived from the current secret key.

    Raises:
        Refused: It was made from a secret key that the installation no longer has.
    """
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        info = f"{_PURPOSE} {alliance.key.hex} {alliance.study_id} {alliance.own_name}"
        seed = HKDF(hashes.SHA256(), 32, salt=None, info=info.encode()).derive(secret.encode())
        key = Ed25519PrivateKey.from_private_bytes(seed)
        if public in ("", public_key(key)):
            return key
    raise Refused(
        gettext_noop(
            "This installation joined the alliance with a different secret key. Add that key to "
            "IPATE_SECRET_KEY_FALLBACKS. A hub can also replace a site's key."
        )
    )


def known_identity(alliance: Alliance) -> Ed25519PrivateKey:
    """Return the signing key named in the signed document, or the current key if there is none. Raises Refused."""
    if not alliance.is_signed:
        return identity(alliance)
    document = alliance.document
    return identity(alliance, document.hub if alliance.is_hub else document.sites[alliance.own_name])


def identities(alliance: Alliance) -> Iterator[Ed25519PrivateKey]:
    """Yield keys by which the hub may know a site: the one on record, and the current one, which may replace it."""
    today = identity(alliance)
    try:
        known = known_identity(alliance)
    except Refused:
        logger.warning("The key that is on record of alliance %s is gone.", alliance.pk)
    else:
        yield known
        if public_key(known) == public_key(today):
            return
    yield today


def fingerprint(key: str) -> str:
    """Return the fingerprint that people compare: 128 bits of a public key's SHA-256, in groups of four hex digits.

    >>> fingerprint("00" * 32)
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digest = hashlib.sha256(bytes.fromhex(key)).hexdigest()[:32]
    return " ".join(digest[start : start + 4] for start in range(0, 32, 4))


def agreement_make(joint: JointRun) -> X25519PrivateKey:
    """Create and store the agreement key of a site for a run; the caller saves the row."""
    key = X25519PrivateKey.generate()
    joint.agreement = f"agreements/{joint.run_id}.npz"
    arrays_save(joint.agreement, key=np.frombuffer(key.private_bytes_raw(), np.uint8))
    return key


def agreement_forget(joint: JointRun) -> None:
    """Delete the agreement key of a run that has ended."""
    if joint.agreement:
        arrays_delete(joint.agreement)


def site_of(joint: JointRun) -> Site:
    """Return this site with its private keys, for a run.

    Raises:
        Refused: Its agreement key is gone: the run ends here.
    """
    alliance = joint.run.alliance
    assert alliance is not None, "a joint run is one of an alliance"
    try:
        raw = arrays_load(joint.agreement, "key")["key"].tobytes()
    except (FileNotFoundError, ValueError) as error:
        raise Refused(
            gettext_noop(
                "The key that this site made for the run is gone, probably after a restored backup. The site no "
                "longer takes part in the run."
            )
        ) from error
    return Site(alliance.own_name, known_identity(alliance), X25519PrivateKey.from_private_bytes(raw))


# --- Invitations ------------------------------------------------------------------------------------------------------


_MARK = "#"


def invitation_write(alliance: Alliance, code: str, address: str) -> str:
    """Return the line that an operator of a site enters: address of the hub, alliance and code."""
    return f"{address.rstrip('/')}/{_MARK}{alliance.key.hex}.{code}"


def invitation_read(text: str) -> tuple[str, uuid.UUID, str]:
    """Return the address of the hub, number of the alliance, and code. Raises ValidationError."""
    address, _mark, rest = text.strip().partition(_MARK)
    key, _dot, code = rest.partition(".")
    parts = urlsplit(address)
    loopback = parts.hostname in ("127.0.0.1", "localhost", "::1", "testserver")
    try:
        known = uuid.UUID(key)
    except ValueError:
        known = None
    if not known or not code or not parts.hostname or (parts.scheme != "https" and not loopback):
        raise ValidationError(
            {"invitation": _("This is not an invitation. An invitation starts with https:// and contains one #.")}
        )
    return address.rstrip("/"), known, code


def code_digest(code: str) -> str:
    """Return the SHA-256 of a code; a hub stores nothing else of it."""
    return hashlib.sha256(code.encode()).hexdigest()
