"""Secret keys of the installation, one for each purpose, and what they encrypt.

Whoever has one of them has none of the others. Where a purpose has no key of its own, what it needs follows from the
site's secret key.
"""

import base64
from enum import StrEnum
from functools import lru_cache

from cryptography.fernet import Fernet, MultiFernet
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class Purpose(StrEnum):
    """What a key is for; the settings are named after it."""

    SESSIONS = "SECRET"
    """Sessions, forms, links in mails, limits on tries."""
    SIGNING = "SIGNING"
    """Documents that others check, ends of chains, numbers of receipts, digests of sealed changes."""
    FACTORS = "FACTOR"
    """Second factors, and secrets of webhooks."""
    RECORDS = "RECORDS"
    """Records, files in private storage, decisions in the journal."""


def keys_of(purpose: Purpose) -> list[str]:
    """Keys of a purpose: today's, then earlier ones, whose signatures still count and which still decrypt."""
    own, earlier = (getattr(settings, f"{purpose}_KEY{end}") for end in ("", "_FALLBACKS"))
    return [own, *earlier] if own else [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]


def digest(use: str, content: str, key: str | None = None) -> str:
    """64 hexadecimal digits that stand for ``content``: its HMAC-SHA256 under the key for signatures, or ``key``."""
    keyed = hmac.HMAC(key_derive(key or keys_of(Purpose.SIGNING)[0], use), hashes.SHA256())
    keyed.update(content.encode())
    return keyed.finalize().hex()


@lru_cache(maxsize=64)
def key_derive(key: str, use: str) -> bytes:
    """32 bytes that follow from a key, for one use: HKDF-SHA256 (RFC 5869)."""
    return HKDF(hashes.SHA256(), 32, salt=None, info=f"ipate: {use}".encode()).derive(key.encode())


def cipher(purpose: Purpose, use: str) -> MultiFernet:
    """Cipher for one use of a purpose's keys: encrypts with today's, decrypts with earlier ones, too."""
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key_derive(key, use))) for key in keys_of(purpose)])
