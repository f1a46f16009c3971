"""Secret keys of the installation, one for each purpose, with their ciphers and signatures.

No key can be derived from another purpose's key. If no key is set for a purpose, its keys are derived from the site's
secret key.
"""

import base64
import hashlib
from enum import StrEnum
from functools import lru_cache
from typing import Any

import jwt
from cryptography.fernet import Fernet, MultiFernet
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings


class Purpose(StrEnum):
    """Purpose of a key; settings are named after it."""

    SESSIONS = "SECRET"
    """For sessions, forms, links in emails, and limits on attempts."""
    SIGNING = "SIGNING"
    """For documents that others verify, ends of chains, numbers of receipts, and digests of sealed changes."""
    FACTORS = "FACTOR"
    """For second factors and secrets of webhooks."""
    RECORDS = "RECORDS"
    """For records, files in private storage, and decisions in the journal."""


def keys_of(purpose: Purpose) -> list[str]:
    """Return the keys of a purpose: the current key, then earlier ones, which still verify signatures and decrypt."""
    own, earlier = (getattr(settings, f"{purpose}_KEY{end}") for end in ("", "_FALLBACKS"))
    return [own, *earlier] if own else [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]


def digest(use: str, content: str, key: str | None = None) -> str:
    """Return the HMAC-SHA256 of ``content``, 64 hexadecimal digits, under ``key`` or the current signing key."""
    keyed = hmac.HMAC(key_derive(key or keys_of(Purpose.SIGNING)[0], use), hashes.SHA256())
    keyed.update(content.encode())
    return keyed.finalize().hex()


@lru_cache(maxsize=64)
def key_derive(key: str, use: str) -> bytes:
    """Return 32 bytes derived from a key for one use, with HKDF-SHA256 (RFC 5869)."""
    return HKDF(hashes.SHA256(), 32, salt=None, info=f"ipate: {use}".encode()).derive(key.encode())


def cipher(purpose: Purpose, use: str) -> MultiFernet:
    """Return a cipher for one use of a purpose's keys; it encrypts with the current key and decrypts with all keys."""
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key_derive(key, use))) for key in keys_of(purpose)])


ALGORITHM = "EdDSA"
_USE = "signatures for others"


def signed(content: dict[str, Any]) -> str:
    """Return the content as a JSON Web Signature (RFC 7515, 8037) that identifies its key in `public_keys`."""
    key = _private_key(keys_of(Purpose.SIGNING)[0])
    return jwt.encode(content, key, algorithm=ALGORITHM, headers={"kid": _public_key(key)["kid"]})


def public_keys() -> list[dict[str, str]]:
    """Return the public keys as JSON Web Keys (RFC 7517), each with its PEM: the current key, then earlier keys."""
    return [_public_key(_private_key(secret)) for secret in keys_of(Purpose.SIGNING)]


def _private_key(secret: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(key_derive(secret, _USE))


def _public_key(private: Ed25519PrivateKey) -> dict[str, str]:
    public = private.public_key()
    x = _base64url(public.public_bytes_raw())
    # The thumbprint of RFC 7638 requires these members in this order, without spaces.
    thumbprint = hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return {
        **{"kty": "OKP", "crv": "Ed25519", "x": x, "alg": ALGORITHM, "use": "sig"},
        **{"kid": _base64url(thumbprint), "pem": pem},
    }


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
