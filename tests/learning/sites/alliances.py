"""An alliance in one process: a hub and sites with reproducible keys, and a ledger in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from common.noise import SimulationNoise
from learning.sites.documents import AllianceDocument, QuestionDocument, Refused, Roster, RunDocument, public_key, sign
from learning.sites.protocol import Site, SiteAnswer, answer, endorse, roster_of, total

HUB = Ed25519PrivateKey.from_private_bytes(bytes([200]) * 32)
Mode = Literal["together", "separate"]


@dataclass
class MemoryLedger:
    """An in-memory `learning.sites.protocol.Ledger`."""

    numbers: dict[str, int] = field(default_factory=dict)

    def last(self, roster: str) -> int:
        return self.numbers.get(roster, 0)

    def commit(self, question: QuestionDocument, answer: SiteAnswer) -> None:
        if question.number <= self.last(question.roster):
            raise Refused("answered")
        self.numbers[question.roster] = question.number


class Joint:
    """A run of an alliance with this many sites, approved by all of them."""

    def __init__(self, count: int, *, mode: Mode = "together", colluding: int = 1, number: str = "1f") -> None:
        signing, agreeing = Ed25519PrivateKey.from_private_bytes, X25519PrivateKey.from_private_bytes
        keys = [(signing(bytes([place + 1]) * 32), agreeing(bytes([place + 101]) * 32)) for place in range(count)]
        self.sites = [Site(f"site-{place:02}", *own) for place, own in enumerate(keys)]
        names = tuple(site.name for site in self.sites)
        keys = {site.name: public_key(site.identity) for site in self.sites}
        self.alliance = AllianceDocument("hospitals", "terms", colluding, public_key(HUB), keys)
        self.run = sign(RunDocument(self.alliance.digest(), number, "plan", mode, names), HUB)
        self.approvals = [site.approval(self.run.document) for site in self.sites]
        self.roster: Roster = roster_of(self.alliance, self.run, self.approvals)
        self.ledgers = {site.name: MemoryLedger() for site in self.sites}

    def question(self, number: int = 1, *, spread: float = 50.0, grain: float = 1.0, **about: Any) -> QuestionDocument:
        participants = about.pop("participants", self.run.document.participants)
        made = {"question": "digest", "part": (0, 1), "state": "", "spread": spread, "grain": grain} | about
        return QuestionDocument(self.roster.digest(), number, participants=participants, **made)

    def answers(self, question: QuestionDocument, sums: Sequence[np.ndarray], noise: Any = SimulationNoise) -> Any:
        """Return the answers of all participants to a question, from their sums in order."""
        among = [site for site in self.sites if site.name in question.participants]
        signed = sign(question, HUB)
        endorsements = [endorse(site, self.roster, signed, question, self.ledgers[site.name]) for site in among]
        return [
            answer(site, self.roster, question, endorsements, each, noise(place), self.ledgers[site.name])
            for place, (site, each) in enumerate(zip(among, sums, strict=True))
        ]

    def total(self, question: QuestionDocument, sums: Sequence[np.ndarray], noise: Any = SimulationNoise) -> np.ndarray:
        return total(self.roster, question, self.answers(question, sums, noise))
