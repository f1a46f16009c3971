"""Signed requests from a site to its hub, over TLS and through the environment's proxy, and the keys of both.

Each request contains the name of the site, the time, and a signature over method, path, time and body. The hub refuses
times that differ by more than `CLOCK_SKEW`; repeating a request within that time has no further effect.

Hub and sites have one signing identity in each alliance, and one agreement key for each run. The identity is derived
from the installation's secret key, so no database backup contains it. A different secret key results in a different
identity, so after changing `SECRET_KEY` keep the old key among the fallbacks. A run's agreement key is a file in
private storage that backups omit, because no database row refers to it. A restored database therefore cannot answer a
question of the run a second time.
"""

import hashlib
import json
import logging
import os
import ssl
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from common import __version__
from common.artifacts import arrays_delete, arrays_load, arrays_save
from common.backoff import Backoff
from common.sentences import Sentence, gettext_noop
from learning.sites.documents import DOMAIN, Refused, public_key
from learning.sites.protocol import Site
from training.models import Alliance, JointRun

#: Largest difference in seconds between the clocks of site and hub.
CLOCK_SKEW = 300
#: Timeouts in seconds for connecting to the hub, and for each wait for data.
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
#: Largest answer of a hub, in bytes; enough for a model or a total of several million numbers.
_MOST = 256 * 2**20
#: Maximum size of a problem document whose message is used, in bytes.
_PROBLEM = 4096


#: First pause after a failed request, in seconds.
_LEAST_PAUSE = 1.0
#: Pauses by hub URL and HTTP method, because a hub with a full disk can send messages but not accept answers.
_pauses: defaultdict[tuple[str, str], Backoff] = defaultdict(
    lambda: Backoff(_LEAST_PAUSE, most=settings.SITES_INTERVAL, most_asked=settings.SITES_PATIENCE / 3)
)


class Unreachable(Exception):
    """Raised if the hub does not answer or refuses; ``sentence`` gives the reason."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(str(sentence))
        self.sentence = sentence


def request_content(method: str, path: str, at: int, body: bytes) -> bytes:
    """Return the content covered by a request's signature."""
    return f"{DOMAIN} request\n{method} {path} {at} {hashlib.sha256(body).hexdigest()}".encode()


def request_authorization(name: str, key: Ed25519PrivateKey, method: str, path: str, body: bytes) -> str:
    """Return a request's Authorization header."""
    at = int(time.time())
    signature = key.sign(request_content(method, path, at, body)).hex()
    return f"Site {name.encode().hex()}:{at}:{signature}"


def request_check(header: str, public: Any, method: str, path: str, body: bytes) -> str:
    """Check a request, and return the name of the site that sent it.

    Args:
        public: Function that returns the hexadecimal public key of the site with a given name, or None if there is no
            such site.

    Raises:
        Refused: The header does not name a site, its time differs too much, or the site has not signed it.
    """
    try:
        fields = header.removeprefix("Site ").split(":")
        name, at, signature = bytes.fromhex(fields[0]).decode(), int(fields[1]), bytes.fromhex(fields[2])
    except (IndexError, ValueError) as error:
        raise Refused(
            gettext_noop("This address is only for sites of an alliance, which sign their requests.")
        ) from error
    off = at - time.time()
    if abs(off) > CLOCK_SKEW:
        raise Refused(
            gettext_noop(
                "The clocks of the site and the hub differ by %(seconds).0f seconds; the limit is %(most)s. "
                "Synchronise both with a time server."
            ),
            seconds=abs(off),
            most=CLOCK_SKEW,
        )
    key = public(name)
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key or "")).verify(
            signature, request_content(method, path, at, body)
        )
    except (InvalidSignature, ValueError) as error:
        raise Refused(
            gettext_noop("The request is not signed by a site of this alliance. Compare the fingerprints.")
        ) from error
    return name


@lru_cache(maxsize=16)
def _client(address: str, certificate: str, transport: httpx.BaseTransport | None, process: int) -> httpx.Client:
    """Return a client that keeps connections open between requests. Raises ValueError for an invalid certificate."""
    del process  # connections are not shared with child processes
    # True: trust the system's certificate authorities, and use the environment's proxies
    verify: Any = True
    if certificate:
        try:
            verify = ssl.create_default_context(cadata=certificate)
        except (ssl.SSLError, TypeError) as error:
            raise ValueError("The certificate of the hub cannot be read.") from error
    return httpx.Client(
        base_url=address.rstrip("/"),
        verify=verify,
        timeout=_TIMEOUT,
        follow_redirects=False,
        trust_env=True,
        transport=transport,
        headers={"User-Agent": f"iPATE/{__version__}"},
    )


class Hub:
    """Connection of a site to its alliance's hub."""

    #: Replaced only in tests.
    transport: httpx.BaseTransport | None = None

    def __init__(self, alliance: Alliance) -> None:
        self._alliance = alliance
        self._client = _client(alliance.address, alliance.certificate, self.transport, os.getpid())

    @property
    def seconds_left(self) -> float:
        """Seconds until this process may send automatic requests again after a failure. Users can retry at once."""
        return max(self._pause(method).seconds_left for method in ("GET", "POST", "PUT"))

    def _pause(self, method: str) -> Backoff:
        return _pauses[self._alliance.address, method]

    def get(self, path: str) -> bytes:
        """Return the content of an object stored at the hub. Raises Unreachable."""
        return self._ask("GET", path, b"")

    def put(self, path: str, body: bytes, **headers: str) -> None:
        """Send an object to the hub. Raises Unreachable."""
        self._ask("PUT", path, body, headers)

    def post(self, path: str, document: Any, *, signed: bool = True) -> Any:
        """Send a JSON document to the hub and return its JSON answer. Raises Unreachable."""
        headers = {"Content-Type": "application/json"}
        answer = self._ask("POST", path, json.dumps(document).encode(), headers, signed=signed)
        try:
            return json.loads(answer)
        except ValueError:
            text = gettext_noop("The server at %(address)s is not an iPATE hub.")
            raise Unreachable(Sentence(text, address=self._alliance.address)) from None

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None, *, signed: bool = True
    ) -> bytes:
        alliance = self._alliance
        whole = f"/api/v1/alliances/{alliance.key}/{path}"
        for key in identities(alliance) if signed else [None]:
            head = dict(headers or {})
            if key is not None:
                head["Authorization"] = request_authorization(alliance.own_name, key, method, whole, body)
            answer, content = self._send(method, whole, body, head)
            if answer.status_code != HTTPStatus.UNAUTHORIZED:
                break
        if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS or answer.status_code >= 500:
            self._pause(method).failed(answer.headers.get("Retry-After"))
        else:
            self._pause(method).succeeded()
        if answer.status_code >= 300:
            text = gettext_noop("The hub has refused (%(status)s): %(problem)s")
            raise Unreachable(
                Sentence(text, status=answer.status_code, problem=_problem(content, answer.reason_phrase))
            )
        return content

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[httpx.Response, bytes]:
        """Send a request; return the response and its content. Raises Unreachable."""
        content = b""
        try:
            with self._client.stream(method, path, content=body, headers=headers) as answer:
                for piece in answer.iter_bytes():
                    content += piece
                    if len(content) > _MOST:
                        raise Unreachable(Sentence(gettext_noop("The hub sent more data than a site accepts.")))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            self._pause(method).failed()
            text = gettext_noop("The hub at %(address)s cannot be reached: %(problem)s. This site will try again.")
            raise Unreachable(Sentence(text, address=self._alliance.address, problem=_short(error))) from error
        return answer, content


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200].rstrip(".")


def _problem(content: bytes, otherwise: str) -> str:
    """Return the message in a hub's problem document (RFC 9457), or ``otherwise`` for the error page of a proxy."""
    try:
        document = json.loads(content)
        if len(content) < _PROBLEM and "sentence" in document:
            return Sentence.from_json(document["sentence"])
        return str(document.get("detail") or document.get("title"))[:500]
    except (ValueError, AttributeError, KeyError, TypeError):
        return otherwise


def longest_wait() -> float:
    """Return the number of seconds for which a worker polls the hub before it does other work."""
    return settings.SITES_WAIT


logger = logging.getLogger(__name__)

_PURPOSE = "ipate: identity in an alliance"


def identity(alliance: Alliance, public: str = "") -> Ed25519PrivateKey:
    """Return this installation's signing key in an alliance.

    Args:
        alliance: The alliance, as stored on this side.
        public: The public key that the hub or the sites have stored; empty for the key derived from the current secret
            key.

    Raises:
        Refused: The key was derived from a secret key that the installation no longer has.
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
            "IPATE_SECRET_KEY_FALLBACKS, or ask the hub to replace this site's key."
        )
    )


def known_identity(alliance: Alliance) -> Ed25519PrivateKey:
    """Return the signing key in the signed document, or the current key if no document is signed. Raises Refused."""
    if not alliance.is_signed:
        return identity(alliance)
    document = alliance.document
    return identity(alliance, document.hub if alliance.is_hub else document.sites[alliance.own_name])


def identities(alliance: Alliance) -> Iterator[Ed25519PrivateKey]:
    """Yield the keys that the hub may have for this site: the recorded key and, if different, the current key."""
    today = identity(alliance)
    try:
        known = known_identity(alliance)
    except Refused:
        logger.warning("The recorded key of alliance %s is missing.", alliance.pk)
    else:
        yield known
        if public_key(known) == public_key(today):
            return
    yield today


def fingerprint(key: str) -> str:
    """Return a public key's fingerprint for people to compare: 128 bits of its SHA-256, in groups of four hex digits.

    >>> fingerprint("00" * 32)
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digest = hashlib.sha256(bytes.fromhex(key)).hexdigest()[:32]
    return " ".join(digest[start : start + 4] for start in range(0, 32, 4))


def agreement_make(joint: JointRun) -> X25519PrivateKey:
    """Create and store a site's agreement key for a run; the caller saves the row."""
    key = X25519PrivateKey.generate()
    joint.agreement = f"agreements/{joint.run_id}.npz"
    arrays_save(joint.agreement, key=np.frombuffer(key.private_bytes_raw(), np.uint8))
    return key


def agreement_forget(joint: JointRun) -> None:
    """Delete the agreement key of a run that has ended."""
    if joint.agreement:
        arrays_delete(joint.agreement)


def site_of(joint: JointRun) -> Site:
    """Return this site with its private keys for a run.

    Raises:
        Refused: The agreement key was lost, so the run ends here.
    """
    alliance = joint.alliance
    try:
        raw = arrays_load(joint.agreement, "key")["key"].tobytes()
    except (FileNotFoundError, ValueError) as error:
        raise Refused(
            gettext_noop(
                "The key that this site created for the run is lost, probably because a backup was restored. The "
                "site no longer takes part in the run."
            )
        ) from error
    return Site(alliance.own_name, known_identity(alliance), X25519PrivateKey.from_private_bytes(raw))


# --- Invitations ------------------------------------------------------------------------------------------------------


_MARK = "#"


def invitation_write(alliance: Alliance, code: str, address: str) -> str:
    """Return an invitation for a site's operator: one line with the hub's URL, the alliance and the code."""
    return f"{address.rstrip('/')}/{_MARK}{alliance.key.hex}.{code}"


def invitation_read(text: str) -> tuple[str, uuid.UUID, str]:
    """Return the hub's URL, the alliance's number and the code contained in an invitation. Raises ValidationError."""
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
    """Return the SHA-256 of a code, which the hub stores instead of the code."""
    return hashlib.sha256(code.encode()).hexdigest()
