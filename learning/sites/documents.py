"""Documents signed by hub and sites: canonical bytes, digests, Ed25519 signatures (RFC 8032).

Each document refers to the previous one by its digest: an answer to its question, a question to the list of approvals,
an approval to its run, and a run to its alliance. Each signature therefore covers everything before it, and no document
can be moved to another run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import TypeAdapter, ValidationError

from common.sentences import Sentence, gettext_noop

DOMAIN = "ipate-sites-1"
"""Version of the protocol; sites with another version refuse."""


class Refused(ValueError):
    """Refusal of a site or a hub to act. The message contains the refused action and the remedy.

    Attributes:
        sentence: The message, which pages translate.
    """

    def __init__(self, text: str, **values: Any) -> None:
        self.sentence = text if isinstance(text, Sentence) else Sentence(text, **values)
        super().__init__(str(self.sentence))


@dataclass(frozen=True)
class Document:
    """Document that can be signed. Its fields are strings, numbers, and lists and dictionaries of these."""

    kind: ClassVar[str]

    def content(self) -> bytes:
        """Return the canonical bytes: version, kind, and JSON with sorted names, without spaces, in ASCII."""
        fields = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return f"{DOMAIN} {self.kind}\n{fields}".encode()

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Return the document with these canonical bytes.

        Raises:
            Refused: The bytes have another version or kind, or are not canonical.
        """
        with suppress(ValidationError):
            document = _adapter(cls).validate_json(content.partition(b"\n")[2], strict=True)  # type: ignore[arg-type]
            if document.content() == content:
                return document
        raise Refused(
            gettext_noop(
                "This is not a %(kind)s of %(protocol)s. The hub and the sites need the same version of the protocol."
            ),
            kind=cls.kind,
            protocol=DOMAIN,
        )

    def digest(self) -> str:
        return hashlib.sha256(self.content()).hexdigest()


@lru_cache(maxsize=16)
def _adapter(kind: type[Document]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@dataclass(frozen=True)
class AllianceDocument(Document):
    """Agreement between the hub and its sites, signed by the hub and by each site that joins.

    Attributes:
        name: Human-readable name.
        terms: SHA-256 of the description: schema, classes, public points, levels.
        colluding: t, the number of sites that may collude with the hub, or omit their noise, in runs with the mode
            *together*.
        hub: Public key of the hub, in hexadecimal.
        sites: Public key of each site, by name.
    """

    kind: ClassVar[str] = "alliance"
    name: str
    terms: str
    colluding: int
    hub: str
    sites: Mapping[str, str]


def renewed_site(before: AllianceDocument, after: AllianceDocument) -> str:
    """Return the name of the site whose key was replaced between two successive alliance documents.

    Raises:
        Refused: The documents also differ in another field or have the same keys, or another member already has the
            key.
    """
    renewed = [name for name, key in after.sites.items() if before.sites.get(name) != key]
    taken = {before.hub, *before.sites.values()}
    if len(renewed) != 1 or replace(after, sites=before.sites) != before or set(after.sites) != set(before.sites):
        raise Refused(gettext_noop("The new alliance document changes more than the key of one site."))
    if after.sites[renewed[0]] in taken:
        raise Refused(gettext_noop("The new key of %(site)s is already registered in the alliance."), site=renewed[0])
    return renewed[0]


@dataclass(frozen=True)
class RunDocument(Document):
    """Run proposed and signed by the hub.

    Attributes:
        alliance: Digest of the alliance.
        number: Random number that distinguishes the run from all others.
        plan: SHA-256 of the plan: method, choices, share of every cap.
        mode: In *together*, sites mask their numbers, so that only the total is seen, with the noise of a single study;
            *separate* requires no trust in anyone.
        participants: Names of sites, in order.
    """

    kind: ClassVar[str] = "run"
    alliance: str
    number: str
    plan: str
    mode: Literal["together", "separate"]
    participants: tuple[str, ...]


@dataclass(frozen=True)
class Approval(Document):
    """A site's approval of a run, signed by the site, with an X25519 public key made only for this run."""

    kind: ClassVar[str] = "approval"
    run: str
    site: str
    agreement: str


@dataclass(frozen=True)
class Roster(Document):
    """Participants of a run: the alliance, the run, and the agreement key of each participant by name.

    Only `protocol.roster_of` creates rosters, after checking all signatures. Other documents refer to it by its digest.
    """

    kind: ClassVar[str] = "roster"
    alliance: AllianceDocument
    run: RunDocument
    agreements: Mapping[str, str]


@dataclass(frozen=True)
class QuestionDocument(Document):
    """Question to sites, signed by the hub. Each participant endorses its digest.

    Attributes:
        roster: Digest of the roster.
        number: Number within the run, from 1; higher than that of every earlier question.
        question: Digest of the mechanism's question, with its parameters.
        part: Range of queries or steps: the first one, and the end (exclusive).
        state: Digest of the releases that determine the state for the answer.
        participants: Names of the sites in the requested total, in order.
        spread: Standard deviation σ of the noise on which charges are based, in the units of the sums.
        grain: Unit of the sums, a power of 2 of at most 1. Each sum is an integer multiple of this.
    """

    kind: ClassVar[str] = "question"
    roster: str
    number: int
    question: str
    part: tuple[int, int]
    state: str
    participants: tuple[str, ...]
    spread: float
    grain: float


@dataclass(frozen=True)
class Endorsement(Document):
    """Signed confirmation by a site that it received the question with this digest."""

    kind: ClassVar[str] = "endorsement"
    question: str
    site: str


@dataclass(frozen=True)
class AnswerDocument(Document):
    """A site's signed answer: digest of its question, shape of the numbers, SHA-256 of their bytes."""

    kind: ClassVar[str] = "answer"
    question: str
    site: str
    shape: tuple[int, ...]
    vector: str


@dataclass(frozen=True)
class Publication(Document):
    """Results that the hub computed from the totals of a run, signed by the hub.

    Attributes:
        run: Digest of the run.
        told: SHA-256 of the model's description, which is its card and calibration.
        file: SHA-256 of the model.
        onnx: SHA-256 of the model as ONNX.
    """

    kind: ClassVar[str] = "model"
    run: str
    told: str
    file: str
    onnx: str


@dataclass(frozen=True)
class Withdrawal(Document):
    """Withdrawal of the publication of a run, signed by the hub.

    Attributes:
        run: Digest of the run.
        file: SHA-256 of the model, or of the table.
        reason: Human-readable reason.
    """

    kind: ClassVar[str] = "withdrawal"
    run: str
    file: str
    reason: str


AnyDocument = TypeVar("AnyDocument", bound=Document)


@dataclass(frozen=True)
class Signed(Generic[AnyDocument]):
    """Document with a signature, which `checked` verifies."""

    document: AnyDocument
    signature: bytes

    def checked(self, key: str, signer: str) -> AnyDocument:
        """Return the document if its signature is valid for this public key.

        Raises:
            Refused: The signature is invalid.
        """
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(self.signature, self.document.content())
        except (InvalidSignature, ValueError) as error:
            raise Refused(
                gettext_noop(
                    "The signature of %(signer)s on this %(kind)s is not valid. Compare the key fingerprints."
                ),
                signer=signer,
                kind=self.document.kind,
            ) from error
        return self.document


def sign(document: AnyDocument, key: Ed25519PrivateKey) -> Signed[AnyDocument]:
    return Signed(document, key.sign(document.content()))


def public_key(key: Ed25519PrivateKey) -> str:
    """Return the public key of a signing key, in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()
