"""Signatures that others check with the public key alone."""

import base64
from typing import Any

import jwt
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from common.signing import public_keys, signed

CONTENT = {"model": "a", "files": [{"sha256": "0"}]}


def checked(statement: str, key: dict[str, str]) -> None:
    """Independently of the library that signs."""
    head, content, proof = statement.split(".")
    public = load_pem_public_key(key["pem"].encode())
    assert isinstance(public, Ed25519PublicKey)
    public.verify(base64.urlsafe_b64decode(proof + "=="), f"{head}.{content}".encode())


def test_the_public_key_shows_who_signed_what() -> None:
    [key] = public_keys()
    statement = signed(CONTENT)
    checked(statement, key)
    assert jwt.decode(statement, jwt.PyJWK.from_dict(key).key, algorithms=["EdDSA"]) == CONTENT
    assert jwt.get_unverified_header(statement)["kid"] == key["kid"]
    head, _, proof = statement.split(".")
    forged = base64.urlsafe_b64encode(b'{"model":"b"}').rstrip(b"=").decode()
    with pytest.raises(InvalidSignature):
        checked(f"{head}.{forged}.{proof}", key)


def test_the_key_stays_while_the_secret_key_does(settings: Any) -> None:
    before, [old] = signed(CONTENT), public_keys()
    assert signed(CONTENT) == before
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another" * 10
    new, fallback = public_keys()
    assert fallback == old and new["kid"] != old["kid"]
    checked(before, fallback)
    checked(signed(CONTENT), new)


def test_the_public_key_does_not_tell_the_secret(settings: Any) -> None:
    message = str(public_keys()) + signed(CONTENT)
    assert settings.SECRET_KEY not in message and '"d"' not in message
