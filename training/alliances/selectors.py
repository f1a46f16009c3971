"""Data for pages about alliances and joint runs: participants, questions, and sites that runs are waiting for."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from accounting.models import Release
from common.sentences import Sentence
from learning.sites.documents import public_key
from training.alliances.wire import fingerprint, known_identity
from training.models import Alliance, JointRun, Run


@dataclass(frozen=True)
class Participant:
    """Site of an alliance, for display on a page; times are None if they are unknown here.

    At the hub, ``waits`` means that the site has joined but has yet to confirm a new key.
    """

    name: str
    fingerprint: str
    is_own: bool
    joined_at: datetime | None = None
    left_at: datetime | None = None
    last_contact: datetime | None = None
    version: str = ""
    waits: bool = False


def participant_rows(alliance: Alliance) -> list[Participant]:
    """Return the sites of an alliance, with the data that this installation has."""
    if alliance.is_hub:
        return [
            Participant(
                site.name,
                fingerprint(site.public_key) if site.public_key else "",
                False,
                site.joined_at,
                site.left_at,
                site.last_contact,
                site.version,
                site.takes_part and not site.is_eligible,
            )
            for site in alliance.sites.all()
        ]
    keys = alliance.document.sites if alliance.is_signed else {alliance.own_name: public_key(known_identity(alliance))}
    return [Participant(name, fingerprint(key), name == alliance.own_name) for name, key in sorted(keys.items())]


def hub_fingerprint(alliance: Alliance) -> str:
    """Return the fingerprint of the hub's key; empty at a site if the hub has not signed yet."""
    if alliance.is_signed:
        return fingerprint(alliance.document.hub)
    return fingerprint(public_key(known_identity(alliance))) if alliance.is_hub else ""


@dataclass(frozen=True)
class AwaitedSite:
    """Site that has yet to answer a run's open question.

    Attributes:
        name: Name in the alliance.
        place: Index of the site among those of the run.
        last_contact: At the hub: time of the site's last contact.
        endorsed: Whether all sites have endorsed the question, which means that people are charged for it.
        opened_at: When the question was asked.
    """

    name: str
    place: int
    last_contact: datetime | None
    endorsed: bool
    opened_at: datetime


def pending_sites(run: Run) -> list[AwaitedSite]:
    """Return the sites that the open question of a joint run is waiting for, according to this installation's data."""
    joint = JointRun.objects.filter(run=run.pk).select_related("run__alliance").first()
    question = None if joint is None or run.has_ended else joint.questions.filter(closed_at=None).first()
    if joint is None or run.alliance is None or question is None or (question.is_endorsed and not run.alliance.is_hub):
        return []
    last_contacts = dict(run.alliance.sites.values_list("name", "last_contact"))
    return [
        AwaitedSite(name, joint.sites.index(name), last_contacts.get(name), question.is_endorsed, question.opened_at)
        for name in question.pending_sites
    ]


@dataclass(frozen=True)
class RemainingSites:
    """Sites that a run would still ask if one site were excluded, and the number of sites that it needs."""

    names: list[str]
    least: int

    @property
    def are_enough(self) -> bool:
        return len(self.names) >= self.least


def remaining_sites(run: Run, name: str) -> RemainingSites:
    """Return the sites that a joint run would still ask if the named one were excluded."""
    alliance = run.alliance
    assert alliance is not None, "a run across sites"
    names = [each for each in run.joint.participants if each != name]
    return RemainingSites(names, alliance.colluding + 2 if run.joint.mode == JointRun.Mode.TOGETHER else 1)


@dataclass(frozen=True)
class QuestionRow:
    """Question to the sites, for display on a page.

    Attributes:
        number: Number of the question in its run.
        participants: Number of sites that were asked.
        endorsed: Number of sites that have endorsed it.
        state: *open*, *total* or *ended*.
        ended: Reason why it ended without a total.
        opened_at: When it was asked.
        answered_at: At a site: when its people were charged.
        sent_at: At a site: when the hub received its answer.
        charge: At a site: the most that anyone was charged, in μ².
    """

    number: int
    participants: int
    endorsed: int
    state: str
    ended: Sentence | None
    opened_at: datetime
    answered_at: datetime | None
    sent_at: datetime | None
    charge: float | None


def joint_document(run: Run) -> dict[str, Any] | None:
    """Return data about a joint run for its page; None for any other run."""
    if run.alliance is None:
        return None
    joint = JointRun.objects.filter(run=run.pk).select_related("run__alliance").first()
    if joint is None:
        return None
    charges = {
        content["number"]: charge
        for content, charge in Release.objects.filter(run=run.pk, kind=Release.Kind.SUMS).values_list(
            "content", "charge"
        )
    }
    questions = [
        QuestionRow(
            number=each.number,
            participants=len(each.document.participants),
            endorsed=len(each.endorsements),
            state="total" if each.total else "ended" if each.closed_at else "open",
            ended=Sentence.from_json(each.ended) if each.ended else None,
            opened_at=each.opened_at,
            answered_at=each.answered_at,
            sent_at=each.sent_at,
            charge=charges.get(each.number),
        )
        for each in joint.questions.order_by("number")
    ]
    return {
        "alliance": run.alliance,
        "is_hub": run.alliance.is_hub,
        "mode": joint.get_mode_display(),
        "masked": joint.mode == JointRun.Mode.TOGETHER,
        "sites": joint.sites,
        "missing": joint.missing,
        "dropped": {name: Sentence.from_json(why) for name, why in joint.dropped.items()},
        "questions": questions,
        "waits_for": pending_sites(run),
    }
