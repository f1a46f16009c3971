"""Requests that are handled once, however often they are sent.

The first request with a one-time key is handled in one transaction with the row that remembers it, so either both are
there or neither is. A later one, or one sent at the same time, waits for that transaction and gets the same answer.
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
"""Time for which a repeated request gets the first one's answer."""


class RepeatedKeyError(Exception):
    """The one-time key was used for a request with other contents."""


def handled_once(
    handle: Callable[[], Answer],
    *,
    key: str,
    of: tuple[str, ...],
    digest: str,
    stored: Callable[[Answer], bytes | None],
    restored: Callable[[bytes], Answer],
) -> Answer:
    """Handle a request unless it was handled before, and return its answer.

    Args:
        handle: Handles the request. If it raises, everything that it changed is undone.
        key: The one-time key that the sender chose.
        of: What the key belongs to: the user and the address.
        digest: Digest of what was sent.
        stored: Turns the answer into bytes; None if nothing was done, so that the key can be used again.
        restored: Turns these bytes into the answer to a repeated request.

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
    """Return the cipher of an answer, which only the bearer of the one-time key can decrypt."""
    secret = salted_hmac(f"answer of {name}", key, algorithm="sha256")
    return Fernet(base64.urlsafe_b64encode(secret.digest()))


def requests_sweep() -> int:
    """Delete expired requests; return the number of rows deleted."""
    return HandledRequest.objects.filter(expires_at__lte=timezone.now()).delete()[0]
