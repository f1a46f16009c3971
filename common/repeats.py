"""Idempotent handling of requests: each takes effect once, even if it is sent several times.

The first request with a one-time key is handled in the same transaction that stores its row, so either both take effect
or neither does. A later or simultaneous request waits for that transaction and gets the same response.
"""

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from cryptography.fernet import Fernet
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from common.models import HandledRequest
from common.throttle import keyed_hash

Answer = TypeVar("Answer")

KEPT = timedelta(days=7)
"""How long answers are kept for repeated requests."""


class RepeatedKeyError(Exception):
    """Raised if the one-time key was already used for a request with different content."""


def handled_once(
    handle: Callable[[], Answer],
    *,
    key: str,
    of: tuple[str, ...],
    digest: str,
    stored: Callable[[Answer], bytes | None],
    restored: Callable[[bytes], Answer],
) -> Answer:
    """Handle a request unless it has already been handled, and return its answer.

    Args:
        handle: Handles the request. If it raises an error, all its changes are undone.
        key: The one-time key that the sender chose.
        of: Scope of the key: the user and the URL.
        digest: Digest of the request's content.
        stored: Converts the answer to bytes, or to None if nothing was done and the key may be used again.
        restored: Converts these bytes to the answer to a repeated request.

    Raises:
        RepeatedKeyError: the key was used with another ``digest``.
    """
    name = keyed_hash("handled request", *of, key)
    with transaction.atomic():
        row, is_new = HandledRequest.objects.get_or_create(
            key=name, defaults={"digest": digest, "answer": b"", "expires_at": timezone.now() + KEPT}
        )
        if not is_new:
            if row.digest != digest:
                raise RepeatedKeyError
            return restored(_cipher(name, key).decrypt(bytes(row.answer)))
        answer = handle()
        content = stored(answer)
        if content is None:
            row.delete()
        else:
            row.answer = _cipher(name, key).encrypt(content)
            row.save(update_fields=["answer"])
    return answer


def _cipher(name: str, key: str) -> Fernet:
    """Return the cipher for an answer. Decryption requires the one-time key."""
    secret = salted_hmac(f"answer of {name}", key, algorithm="sha256")
    return Fernet(base64.urlsafe_b64encode(secret.digest()))


def requests_sweep() -> int:
    """Delete expired requests; return their number."""
    return HandledRequest.objects.filter(expires_at__lte=timezone.now()).delete()[0]
