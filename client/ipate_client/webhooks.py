"""Signatures of webhooks, which show that a message is recent and comes from the site."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping


class SignatureError(ValueError):
    """Raised for a message that did not come from the site or was sent too long ago."""


def signature_verify(
    body: bytes, headers: Mapping[str, str], secret: str, *, tolerance: float = 300.0, now: float | None = None
) -> None:
    """Check that the site sent a message, and that it is recent.

    Args:
        body: Body of the request, byte for byte as received, before anything parses it.
        headers: Headers of the request; names are case-insensitive.
        secret: Secret of the webhook, as shown by the site when the webhook was created.
        tolerance: Maximum age of a message in seconds, so that intercepted messages cannot be sent again later.
        now: Current time in seconds since 1970; by default from the clock of this machine.

    Raises:
        SignatureError: the message is not signed with the secret, was changed, or is too old.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    timestamp = lowered.get("x-ipate-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()):
        raise SignatureError("The message has no timestamp.")
    content = timestamp.encode() + b"." + body
    expected = "v1=" + hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), lowered.get("x-ipate-signature", "").encode()):
        raise SignatureError("The signature is wrong: the secret is a different one, or the message was changed.")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise SignatureError("The message is too old, or the clocks differ.")
