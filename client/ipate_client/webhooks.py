"""Signatures of webhooks: checks that a message comes from the site and is new."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping


class SignatureError(ValueError):
    """A message that the site did not send, or sent long ago."""


def signature_verify(
    body: bytes, headers: Mapping[str, str], secret: str, *, tolerance: float = 300.0, now: float | None = None
) -> None:
    """Check that the site sent a message, and that it is new.

    Args:
        body: Body of the request, byte for byte as received, before anything parses it.
        headers: Headers of the request; upper and lower case do not matter.
        secret: Secret of the webhook, as the site showed it when it was created.
        tolerance: Maximum age of a message in seconds, which keeps an intercepted message from being sent again later.
        now: Seconds since 1970; the clock of this machine if left out.

    Raises:
        SignatureError: it is not signed with the secret, was changed, or is too old.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    timestamp = lowered.get("x-ipate-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()):
        raise SignatureError("The message has no timestamp.")
    content = timestamp.encode() + b"." + body
    expected = "v1=" + hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), lowered.get("x-ipate-signature", "").encode()):
        raise SignatureError("The signature is not the site's: the secret is another, or the message was changed.")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise SignatureError("The message is too old, or the clocks differ.")
