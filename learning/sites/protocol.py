"""Actions of site and hub in a joint run, and all reasons to refuse. Functions depend only on their arguments.

1. The hub signs a run. Each site approves it with an agreement key made for that run (`roster_of` checks approvals).
2. The hub signs a question. Each participant that agrees with it endorses its digest (`endorse`).
3. A participant that has all endorsements answers once (`answer`): the `Ledger` commits charge, release and answer
   before anything is sent.
4. The hub decodes only the total over exactly these participants (`total`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from common.noise import Noise
from common.sentences import gettext_noop
from learning.sites.documents import (
    AllianceDocument,
    AnswerDocument,
    Approval,
    Endorsement,
    QuestionDocument,
    Refused,
    Roster,
    RunDocument,
    Signed,
    sign,
)
from learning.sites.lattice import Lattice, Numbers, mask


@dataclass(frozen=True)
class Site:
    """A site with its private keys.

    Attributes:
        name: Name in the alliance.
        identity: Key that signs all its statements.
        agreement: Key made for one run, and deleted when the run ends.
    """

    name: str
    identity: Ed25519PrivateKey
    agreement: X25519PrivateKey

    def approval(self, run: RunDocument) -> Signed[Approval]:
        """Return the approval of a run, with the public agreement key."""
        key = self.agreement.public_key().public_bytes_raw().hex()
        return sign(Approval(run.digest(), self.name, key), self.identity)


@dataclass(frozen=True)
class SiteAnswer:
    """A site's message: its signed answer, and the numbers as little-endian bytes."""

    answer: Signed[AnswerDocument]
    vector: bytes


class Summed(Protocol):
    """The part of a mechanism's question (`learning.mechanisms.protocol.Question`) that is used by the protocol."""

    @property
    def spread(self) -> float | None: ...

    @property
    def grain(self) -> float: ...

    def digest(self) -> str: ...

    def describe(self) -> dict[str, Any]: ...


class Ledger(Protocol):
    """A site's record of its answers. Like accounts, it survives crashes and restored backups."""

    def last(self, roster: str) -> int:
        """Return the number of the last answered question of a run; 0 before the first."""
        ...

    def commit(self, question: QuestionDocument, answer: SiteAnswer) -> None:
        """Commit charges, release and answer in one transaction, before anything is sent.

        Raises:
            Refused: This question, or a later one of the run, has been answered in the meantime.
        """
        ...


def roster_of(alliance: AllianceDocument, run: Signed[RunDocument], approvals: Iterable[Signed[Approval]]) -> Roster:
    """Return the participants of a run, once all have approved it.

    Args:
        alliance: The caller's stored copy.
        run: Signed by the hub.
        approvals: Exactly one approval from each participant.

    Raises:
        Refused: The run is from another alliance, has too few participants, has participants other than those who
            approved, or has a wrong signature.
    """
    proposal = run.checked(alliance.hub, "the hub")
    if proposal.alliance != alliance.digest():
        raise Refused(
            gettext_noop(
                "The run belongs to a different alliance, or to a different version of this one. Compare both "
                "checksums."
            )
        )
    _check_participants(alliance, proposal, proposal.participants, alliance.sites)
    agreements = {}
    for approval in approvals:
        site = approval.document.site
        if site not in proposal.participants or site in agreements:
            raise Refused(
                gettext_noop(
                    "There is more than one approval from %(site)s, but each participant can approve only once."
                ),
                site=site,
            )
        if approval.checked(alliance.sites[site], site).run != proposal.digest():
            raise Refused(
                gettext_noop("%(site)s's approval belongs to a different run. Ask the site to approve this run."),
                site=site,
            )
        agreements[site] = approval.document.agreement
    if missing := set(proposal.participants) - set(agreements):
        raise Refused(
            gettext_noop("Approval from %(sites)s is missing. Wait for it, or propose a run without these sites."),
            sites=", ".join(sorted(missing)),
        )
    return Roster(alliance, proposal, agreements)


def question_for(
    roster: Roster, question: Summed, *, number: int, part: slice, state: str, participants: Iterable[str]
) -> QuestionDocument:
    """Return the document of a question. The hub signs it, and each site derives it from its own plan and releases.

    Args:
        roster: The run's roster.
        question: The mechanism's question.
        number: Number of the question, at least 1 and higher than that of any earlier question.
        part: Requested queries or steps.
        state: Digest of the releases that determine the state; empty before the first.
        participants: Sites whose total is requested.

    Raises:
        Refused: The release of this question is not a total of sums.
    """
    if question.spread is None:
        raise Refused(
            gettext_noop(
                "This method does not release exactly one sum with Gaussian noise. Choose another method or aggregator."
            )
        )
    content = json.dumps([question.digest(), question.describe()], sort_keys=True)
    return QuestionDocument(
        roster=roster.digest(),
        number=number,
        question=hashlib.sha256(content.encode()).hexdigest(),
        part=(part.start, part.stop),
        state=state,
        participants=tuple(sorted(participants)),
        spread=question.spread,
        grain=question.grain,
    )


def endorse(
    site: Site, roster: Roster, question: Signed[QuestionDocument], own: QuestionDocument, ledger: Ledger
) -> Signed[Endorsement]:
    """Endorse a question if it is the question that the site expects.

    Args:
        site: The endorsing site.
        roster: Checked by the site.
        question: Sent by the hub.
        own: Derived independently by the site from the plan, releases and the hub's list of participants.
        ledger: Ledger of the site.

    Raises:
        Refused: The question differs from the site's own, was answered before, has a wrong signature, or has too few
            participants or participants that have not approved the run.
    """
    document = question.checked(roster.alliance.hub, "the hub")
    differing = [field.name for field in fields(own) if getattr(own, field.name) != getattr(document, field.name)]
    if differing:
        raise Refused(
            gettext_noop(
                "The hub asks something different from what was approved (%(fields)s). Ask the people who run the hub."
            ),
            fields=", ".join(differing),
        )
    _check_question(site, roster, document, ledger)
    return sign(Endorsement(document.digest(), site.name), site.identity)


def answer(
    site: Site,
    roster: Roster,
    question: QuestionDocument,
    endorsements: Sequence[Signed[Endorsement]],
    sums: Numbers,
    noise: Noise,
    ledger: Ledger,
) -> SiteAnswer:
    """Answer a question that the site has endorsed. When this returns, the answer is committed and can be sent.

    Args:
        site: The answering site.
        roster: Checked by the site.
        question: Endorsed by the site.
        endorsements: Endorsements by exactly the participants.
        sums: Sums over the site's own people, without noise.
        noise: `SystemNoise`, or `SimulationNoise` in rehearsals.
        ledger: Ledger of the site.

    Raises:
        Refused: For a reason given in `endorse`, or because an endorsement is for another question, or the sums are too
            large.
    """
    _check_question(site, roster, question, ledger)
    digest = question.digest()
    for endorsement in endorsements:
        name = endorsement.document.site
        if endorsement.checked(_key(roster, question, name), name).question != digest:
            raise Refused(
                gettext_noop(
                    "%(site)s was asked a different question, so the hub is mistaken or dishonest. The site has not "
                    "answered."
                ),
                site=name,
            )
    _check_all({each.document.site for each in endorsements}, question, "endorsement")
    lattice = lattice_of(roster, question)
    units = lattice.encode(sums, len(question.participants)) + lattice.noise(noise, sums.shape)
    if roster.run.mode == "together":
        units += mask(site.name, site.agreement, roster, question, units.size).reshape(units.shape)
    vector = units.astype("<u8").tobytes()
    document = AnswerDocument(digest, site.name, sums.shape, hashlib.sha256(vector).hexdigest())
    made = SiteAnswer(sign(document, site.identity), vector)
    ledger.commit(question, made)
    return made


def total(roster: Roster, question: QuestionDocument, answers: Sequence[SiteAnswer]) -> Numbers:
    """Return the total over exactly the participants in a question, including everyone's noise.

    Raises:
        Refused: An answer is missing, extra, for another question, of another shape, or not the one signed by its site.
    """
    units = []
    for each in answers:
        name = each.answer.document.site
        document = each.answer.checked(_key(roster, question, name), name)
        if document.question != question.digest():
            raise Refused(
                gettext_noop("%(site)s has answered a different question, so its answer cannot be used."), site=name
            )
        if document.vector != hashlib.sha256(each.vector).hexdigest():
            raise Refused(
                gettext_noop("The numbers from %(site)s are not the ones that it signed. Request them again."),
                site=name,
            )
        if document.shape != answers[0].answer.document.shape or len(each.vector) != 8 * math.prod(document.shape):
            raise Refused(
                gettext_noop(
                    "%(site)s's answer has a different shape from the other answers. Compare the sites' versions."
                ),
                site=name,
            )
        units.append(np.frombuffer(each.vector, "<u8").astype(np.uint64).reshape(document.shape))
    _check_all([each.answer.document.site for each in answers], question, "answer")
    return lattice_of(roster, question).decode(np.sum(units, axis=0, dtype=np.uint64))


def lattice_of(roster: Roster, question: QuestionDocument) -> Lattice:
    """Return the lattice of the sites' numbers, with the noise of each site.

    Each site's noise has the variance σ²/(k − t), so that the noise of all participants except any t has the variance
    used for charges.
    """
    together = roster.run.mode == "together"
    among = len(question.participants) - roster.alliance.colluding if together else 1
    return Lattice.finest(question.spread / math.sqrt(among), question.grain)


def total_spread(roster: Roster, question: QuestionDocument) -> float:
    """Return the standard deviation of the noise in each number of the total. Charges assume at most this noise."""
    return lattice_of(roster, question).spread * math.sqrt(len(question.participants))


def _check_question(site: Site, roster: Roster, question: QuestionDocument, ledger: Ledger) -> None:
    if question.roster != roster.digest():
        raise Refused(
            gettext_noop(
                "The question belongs to a different run, or the other sites have approved a different list. Compare "
                "the checksums."
            )
        )
    _check_participants(roster.alliance, roster.run, question.participants, roster.run.participants)
    if site.name not in question.participants:
        raise Refused(gettext_noop("%(site)s was not asked this question."), site=site.name)
    if question.number <= ledger.last(question.roster):
        raise Refused(
            gettext_noop(
                "Question %(number)s of the run, or a later one, has already been answered. Each question is "
                "answered only once."
            ),
            number=question.number,
        )


def _check_participants(
    alliance: AllianceDocument, run: RunDocument, names: Sequence[str], known: Iterable[str]
) -> None:
    """Check that the participants are known, in order, and numerous enough for the run's mode."""
    if unknown := set(names) - set(known):
        raise Refused(
            gettext_noop("%(sites)s cannot take part, because only sites that have approved the run are asked."),
            sites=", ".join(sorted(unknown)),
        )
    if list(names) != sorted(set(names)):
        raise Refused(gettext_noop("The participants are not in the right order, or a participant is named twice."))
    if alliance.colluding < 0:
        raise Refused(gettext_noop("The alliance is invalid: the number of sites that may collude cannot be negative."))
    least = alliance.colluding + 2 if run.mode == "together" else 1
    if len(names) < least:
        raise Refused(
            gettext_noop(
                "There are %(number)s participants, but at least %(least)s are needed, so the run cannot continue."
            ),
            number=len(names),
            least=least,
        )


def _key(roster: Roster, question: QuestionDocument, site: str) -> str:
    if site not in question.participants:
        raise Refused(gettext_noop("%(site)s was not asked this question."), site=site)
    return roster.alliance.sites[site]


def _check_all(names: Iterable[str], question: QuestionDocument, what: str) -> None:
    if sorted(names) != list(question.participants):
        raise Refused(
            gettext_noop(
                "Not every participant sent exactly one %(what)s, so this question has ended. Ask the remaining "
                "participants again."
            ),
            what=what,
        )
