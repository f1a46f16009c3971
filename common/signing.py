"""Signatures that others can check: Ed25519, with a key pair derived from the key for signatures."""

import base64
import hashlib
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.keys import Purpose, key_derive, keys_of

ALGORITHM = "EdDSA"
_USE = "signatures for others"


def signed(content: dict[str, Any]) -> str:
    """Return the content as a JSON Web Signature (RFC 7515, 8037), which names its key in `public_keys`."""
    key = _private_key(keys_of(Purpose.SIGNING)[0])
    return jwt.encode(content, key, algorithm=ALGORITHM, headers={"kid": _public_key(key)["kid"]})


def public_keys() -> list[dict[str, str]]:
    """Return the public keys as JSON Web Keys (RFC 7517), each with its PEM: the current one, then earlier ones."""
    return [_public_key(_private_key(secret)) for secret in keys_of(Purpose.SIGNING)]


def _private_key(secret: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(key_derive(secret, _USE))


def _public_key(private: Ed25519PrivateKey) -> dict[str, str]:
    public = private.public_key()
    x = _base64url(public.public_bytes_raw())
    # the thumbprint of RFC 7638: its members in this order, without spaces
    thumbprint = hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return {
        **{"kty": "OKP", "crv": "Ed25519", "x": x, "alg": ALGORITHM, "use": "sig"},
        **{"kid": _base64url(thumbprint), "pem": pem},
    }


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
