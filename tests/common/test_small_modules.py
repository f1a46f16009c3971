"""Signatures that others check, moments in words, progress of commands, and threads of numeric libraries."""

import base64
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import jwt
import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from django.utils import timezone, translation
from threadpoolctl import threadpool_info, threadpool_limits

from common import progress
from common.moments import moment_words
from common.progress import progress_bar
from common.signing import public_keys, signed
from common.threads import one_thread

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


@pytest.mark.parametrize(
    ("language", "zone", "words"),
    [
        ("en", "UTC", "23 November 2026, 19:02 (UTC)"),
        ("en", "Europe/Berlin", "23 November 2026, 20:02 (CET)"),
        ("de", "Europe/Berlin", "23. November 2026 um 20:02 Uhr (MEZ)"),
        ("de", "Europe/Berlin", "1. Juli 2026 um 12:00 Uhr (MESZ)"),
    ],
)
def test_a_moment_names_its_zone(language: str, zone: str, words: str) -> None:
    """German times say “Uhr”, and summer time has its own name."""
    with translation.override(language), timezone.override(ZoneInfo(zone)):
        moment = datetime(2026, *((7, 1, 10) if "Juli" in words else (11, 23, 19, 2)), tzinfo=UTC)
        assert moment_words(moment) == words


def test_a_log_gets_a_few_whole_lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    list(progress_bar(range(10_000), desc="counting"))
    assert len(capfd.readouterr().err.splitlines()) <= 2
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    assert list(progress_bar(range(4), desc="counting", unit=" rows")) == [0, 1, 2, 3]
    output = capfd.readouterr().err
    lines = output.splitlines()
    assert "\r" not in output and lines[0].startswith("counting:   0%")
    assert lines[-1].startswith("counting: 100%") and "4/4" in lines[-1]


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info()}


def test_libraries_compute_in_one_thread_until_the_context_ends() -> None:
    np.linalg.inv(np.eye(2))
    with threadpool_limits(2):
        before = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == before == {2}
