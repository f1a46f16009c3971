"""Messages between a site and its hub: each request by the site exchanges all small data in both directions.

The receiver of a message checks its signature before storing it, and never replaces a stored message. Repeated requests
have no further effect.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from accounting.group_budgets import head_counts
from common import __version__
from common.sentences import Sentence, gettext_noop
from learning.sites.documents import (
    DOMAIN,
    AnswerDocument,
    Approval,
    Endorsement,
    QuestionDocument,
    Refused,
    RunDocument,
    Signed,
    sign,
)
from training.alliances.approvals import document_keep
from training.alliances.documents import (
    digest_of,
    hub_document,
    model_message,
    model_of,
    signature_of,
    signed_text,
    sums_folder,
    vector_load,
    vector_save,
    withdrawal_messages,
    withdrawals_keep,
)
from training.alliances.wire import Hub, Unreachable, known_identity
from training.engine.scheduling import send
from training.models import Alliance, AllianceSite, JointQuestion, JointRun, Run
from training.notices import notify_joint_proposed

#: How long a hub continues to inform sites about a run after its end.
_PAST = timedelta(days=30)


class Message(BaseModel):
    """Part of a message; unknown fields are ignored, and known fields must have the declared type."""

    model_config = ConfigDict(extra="ignore", strict=True, str_max_length=10_000_000)


class SignedText(Message):
    """Canonical text of a document with its hexadecimal signature."""

    content: str
    signature: str


class Numbered(Message):
    """A site's signature endorsing a numbered question."""

    number: int
    signature: str


class HeadCountMessage(Message):
    """Released number of people with one promise, on which the hub bases its plans.

    ``sigma`` is the standard deviation of the noise in it, 0 for a public number; earlier versions of iPATE omit it.
    """

    level: Literal["HIGH", "AVERAGE", "LOW"]
    epsilon: float = Field(gt=0, le=100)
    count: int = Field(ge=0, le=10**10)
    sigma: float = Field(default=0.0, ge=0, le=10**10)


class RunReport(Message):
    """A site's report on a run; ``after`` is the last question that the site has finished."""

    after: int
    approval: SignedText | None
    ended: str | None
    endorsement: Numbered | None


class SiteMessage(Message):
    """A site's message to its hub; ``joined`` is its signature of the document whose digest is ``document``."""

    protocol: str
    version: str
    joined: str | None
    document: str = ""
    left: bool
    head_counts: list[HeadCountMessage]
    runs: dict[str, RunReport]


class QuestionMessage(Message):
    """Question with its outcome.

    ``ended`` is a sentence, empty while the question is open. ``answered`` lists the sites whose answers the hub has;
    earlier versions of iPATE omit it.
    """

    number: int
    content: str
    signature: str
    endorsements: dict[str, str]
    ended: dict[str, Any] | str
    total: SignedText | None
    answered: list[str] | None = None


class ModelMessage(SignedText):
    """A hub's signed publication of its model, with a description as JSON."""

    told: str


class RunMessage(Message):
    """A hub's message about a run; ``told`` is its plan, or empty if the site already has it."""

    content: str
    signature: str
    told: str
    status: str
    message: str
    approvals: dict[str, SignedText]
    dropped: dict[str, dict[str, Any]]
    questions: list[QuestionMessage]
    model: ModelMessage | None


class AllianceMessage(Message):
    """A hub's message about the alliance; ``content`` is empty before signing, ``former`` holds earlier documents."""

    name: str
    content: str
    signature: str
    former: list[SignedText] = []
    terms: dict[str, Any]
    ended: bool


class HubMessage(Message):
    """A hub's answer; earlier versions of iPATE omit ``withdrawn``."""

    protocol: str
    version: str
    alliance: AllianceMessage
    runs: dict[str, RunMessage]
    withdrawn: list[SignedText] = []


#: Names of the headers sent with the numbers of an answer.
CONTENT, SIGNATURE = "X-iPATE-Answer", "X-iPATE-Signature"

# --- At a site ------------------------------------------------------------------------------------------------------


def exchange(alliance: Alliance) -> bool:
    """Exchange messages with the hub, and store its message; return whether anything in it is new.

    Raises:
        Unreachable: The hub does not answer, or refuses; this is recorded in the alliance's row.
        Refused: The hub's message contradicts an earlier one, or is not signed by the hub.
    """
    runs = {_key(joint): joint for joint in _joints(alliance)}
    message = {
        "protocol": DOMAIN,
        "version": __version__,
        **_own_signature(alliance),
        "left": alliance.left_at is not None,
        "head_counts": [
            {"level": count.level, "epsilon": count.epsilon, "count": count.count, "sigma": count.sigma or 0.0}
            for count in (head_counts(alliance.study) if alliance.joined_at else ())
        ],
        "runs": {key: _run_report(joint, alliance.own_name) for key, joint in runs.items()}
        | _declined_reports(alliance),
    }
    try:
        answer = Hub(alliance).post("exchange", message)
        if answer.get("protocol") != DOMAIN:
            text = gettext_noop(
                "The hub uses %(theirs)s and this site uses %(ours)s. Update the one with the older version."
            )
            raise Unreachable(Sentence(text, theirs=str(answer.get("protocol"))[:40], ours=DOMAIN))
        reply = HubMessage.model_validate(answer).model_dump()
    except ValidationError as error:
        raise Refused(
            gettext_noop("The hub's message cannot be read. Compare the hub's version with the site's.")
        ) from error
    except Unreachable as error:
        Alliance.objects.filter(pk=alliance.pk).update(problem=error.sentence.to_json())
        alliance.problem = error.sentence.to_json()
        raise
    Alliance.objects.filter(pk=alliance.pk).update(
        last_contact=timezone.now(), problem="", silence_is_known=False, version=reply["version"][:40]
    )
    alliance.problem = ""
    changed = document_keep(alliance, reply["alliance"])
    withdrawals_keep(alliance, reply["withdrawn"])
    return changed | _proposals_keep(alliance, reply, runs) | _runs_keep(reply, runs)


def answer_send(question: JointQuestion, vector: bytes) -> None:
    """Send the site's answer, with the same bytes every time. Raises Unreachable."""
    alliance = question.joint.alliance
    path = f"runs/{_key(question.joint)}/answers/{question.number}"
    headers = {CONTENT: question.answer_content.encode().hex(), SIGNATURE: question.answer_signature}
    Hub(alliance).put(path, vector, **{"Content-Type": "application/octet-stream"}, **headers)
    JointQuestion.objects.filter(pk=question.pk).update(sent_at=timezone.now())


def total_fetch(question: JointQuestion) -> bytes:
    """Return the numbers of a question's total. Raises Unreachable."""
    alliance = question.joint.alliance
    return Hub(alliance).get(f"runs/{_key(question.joint)}/totals/{question.number}")


def _joints(alliance: Alliance, named: Collection[str] = ()) -> list[JointRun]:
    """Return the runs to include in messages. Runs that ended long ago are included only if they are ``named``."""
    recent = timezone.now() - _PAST
    return [
        joint
        for joint in _signed(alliance)
        if not joint.run.has_ended or (joint.run.ended_at or recent) > recent or _key(joint) in named
    ]


def _signed(alliance: Alliance) -> QuerySet[JointRun]:
    """Return the alliance's runs that have a document; a run gets one when the hub approves it."""
    return (
        JointRun.objects.filter(run__alliance=alliance)
        .exclude(content="")
        .select_related("run__alliance", "run__study")
    )


def _key(joint: JointRun) -> str:
    """Return the random number that identifies a run at the hub and all sites."""
    return joint.document.number


def _own_signature(alliance: Alliance) -> dict[str, Any]:
    """Return a site's signature of the current document, if the site has joined and its key has not been replaced."""
    if not alliance.joined_at or alliance.left_at:
        return {"joined": None}
    try:
        signed = sign(alliance.document, known_identity(alliance))
    except Refused:
        return {"joined": None}
    return {"joined": signed.signature.hex(), "document": signed.document.digest()}


def _run_report(joint: JointRun, own: str) -> dict[str, Any]:
    run = joint.run
    question = joint.questions.filter(closed_at=None).first()
    closed = joint.questions.exclude(closed_at=None).order_by("number").values_list("number", flat=True).last()
    message: dict[str, Any] = {
        "after": closed or 0,
        "approval": joint.approvals.get(own),
        "ended": run.get_status_display() if run.has_ended and run.status != Run.Status.FINISHED else None,
        "endorsement": None,
    }
    if question is not None and own in question.endorsements:
        message["endorsement"] = {"number": question.number, "signature": question.endorsements[own]}
    return message


def _declined_reports(alliance: Alliance) -> dict[str, Any]:
    """Return reports to the hub about runs that this site has declined."""
    declined = _ended_report("declined")
    return {number: declined for number, proposal in alliance.proposals.items() if proposal.get("declined")}


def _ended_report(why: str) -> dict[str, Any]:
    """Return the report of a site that does not take part in a run."""
    return {"after": 0, "approval": None, "ended": why, "endorsement": None}


def _proposals_keep(alliance: Alliance, answer: Mapping[str, Any], known: Collection[str]) -> bool:
    """Store the hub's proposals, except those that this site has accepted or declined in the meantime."""
    with transaction.atomic():
        held = Alliance.objects.select_for_update().get(pk=alliance.pk)
        known = set(known) | {_key(joint) for joint in _signed(held)}
        proposals = {}
        if held.joined_at and not held.left_at:
            for key, message in answer["runs"].items():
                if held.proposals.get(key, {}).get("declined"):
                    proposals[key] = held.proposals[key]
                elif (
                    key not in known
                    and message["told"]
                    and message["status"] not in Run.ENDED
                    and held.own_name in _proposal(held, message).participants
                ):
                    proposals[key] = {name: message[name] for name in ("content", "signature", "told")}
        is_changed, is_new = proposals != held.proposals, bool(set(proposals) - set(held.proposals))
        if is_changed:
            Alliance.objects.filter(pk=alliance.pk).update(proposals=proposals)
        if is_new:
            notify_joint_proposed(alliance)
    alliance.proposals = proposals
    return is_changed


def _proposal(alliance: Alliance, message: Mapping[str, Any]) -> RunDocument:
    """Return the document of a run proposed by the hub. Raises Refused."""
    document = hub_document(alliance, RunDocument, message)
    if message["told"] and digest_of(message["told"]) != document.plan:
        raise Refused(
            gettext_noop("The hub sends a different plan from the one it has signed. Ask the people who run the hub.")
        )
    return document


def _runs_keep(answer: Mapping[str, Any], known: Mapping[str, JointRun]) -> bool:
    changed = False
    for key, joint in known.items():
        if joint.run.has_ended:
            if joint.run.status == Run.Status.FINISHED and key in answer["runs"]:
                changed |= _model_keep(joint.pk, answer["runs"][key]["model"])
            continue
        if key in answer["runs"]:
            changed |= _run_keep(joint.pk, answer["runs"][key])
        elif not joint.ended:
            why = _("The hub no longer has this run, probably because a backup was restored.")
            changed |= bool(JointRun.objects.filter(pk=joint.pk, ended="").update(ended=why))
    return changed


@transaction.atomic
def _model_keep(pk: Any, message: Mapping[str, Any] | None) -> bool:
    """Store the hub's signed message about a version that the hub published after the run finished here."""
    joint = JointRun.objects.select_for_update().get(pk=pk)
    if not message or not joint.model or message == joint.model:
        return False
    joint.model = message
    joint.save(update_fields=["model"])
    return True


@transaction.atomic
def _run_keep(pk: Any, message: Mapping[str, Any]) -> bool:
    joint = JointRun.objects.select_for_update().get(pk=pk)
    changed = False
    for site, approval in message["approvals"].items():
        if joint.approvals.get(site) not in (None, approval):
            raise Refused(
                gettext_noop(
                    "The hub shows a different approval from %(site)s than before. Ask the people who run the hub."
                ),
                site=site,
            )
        if site not in joint.approvals:
            joint.approvals[site] = approval
            changed = True
    if message["dropped"] != joint.dropped:
        joint.dropped, changed = message["dropped"], True
    if message["status"] in (Run.Status.FAILED, Run.Status.CANCELLED, Run.Status.WITHDRAWN) and not joint.ended:
        joint.ended, changed = f"{message['status']}. {message['message']}"[:500], True
    if message["model"] and message["model"] != joint.model:
        joint.model, changed = message["model"], True
    if changed:
        joint.save(update_fields=["approvals", "dropped", "ended", "model"])
    for each in message["questions"]:
        if joint.questions.filter(closed_at=None).exclude(number=each["number"]).exists():
            break  # one question at a time
        changed |= _question_keep(joint, each)
    return changed


def _question_keep(joint: JointRun, message: Mapping[str, Any]) -> bool:
    row = joint.questions.select_for_update().filter(number=message["number"]).first()
    if row is None:
        document = hub_document(joint.alliance, QuestionDocument, message)
        if document.number != message["number"]:
            raise Refused(
                gettext_noop(
                    "The hub has given the same question two different numbers. Ask the people who run the hub."
                )
            )
        row = JointQuestion(
            joint=joint, number=document.number, content=message["content"], signature=message["signature"]
        )
    elif row.content != message["content"]:
        raise Refused(
            gettext_noop("The hub has asked two questions with the same number. Ask the people who run the hub.")
        )
    elif row.closed_at is not None:
        return False
    before = (row.pk, dict(row.endorsements), row.ended, row.total_content)
    row.endorsements = {**message["endorsements"], **row.endorsements}
    row.ended = message["ended"]
    if message["total"] is not None:
        row.total_content, row.total_signature = message["total"]["content"], message["total"]["signature"]
    is_lost = row.sent_at is not None and message["answered"] is not None and not (row.ended or row.total_content)
    if is_lost and joint.alliance.own_name not in message["answered"]:
        row.sent_at = None  # the hub was restored from a backup, so send it the same bytes again
    elif row.pk and before == (row.pk, row.endorsements, row.ended, row.total_content):
        return False
    row.moved_at = timezone.now()
    row.save()
    return True


# --- At the hub -----------------------------------------------------------------------------------------------------


@transaction.atomic
def exchange_answer(site: AllianceSite, received: Any) -> dict[str, Any]:
    """Store a site's message, and return the hub's message for the site. Raises Refused with an error for the site."""
    try:
        message = SiteMessage.model_validate(received).model_dump()
    except ValidationError as error:
        raise Refused(
            gettext_noop("The site's message cannot be read. Compare the hub's version with the site's.")
        ) from error
    if message["protocol"] != DOMAIN:
        raise Refused(
            gettext_noop("The hub uses %(protocol)s and the site uses %(theirs)s. Update the older of the two."),
            protocol=DOMAIN,
            theirs=message["protocol"],
        )
    site = AllianceSite.objects.select_for_update().select_related("alliance__study").get(pk=site.pk)
    alliance = site.alliance
    _silence_clock_restart(alliance)
    site.last_contact, site.version = timezone.now(), message["version"]
    if message["joined"] and not site.signature and alliance.is_signed:
        document = alliance.document
        if message["document"] in ("", document.digest()):  # not a former document that is still in force at the site
            Signed(document, signature_of(message["joined"])).checked(document.sites[site.name], site.name)
            site.signature, site.joined_at = message["joined"], site.joined_at or timezone.now()
    if message["left"] and site.joined_at is not None and site.left_at is None:
        site.left_at = timezone.now()
        for joint in _joints(alliance):  # the site sends no reports about runs that it has not accepted
            if site.name in joint.document.participants:
                _report_keep(joint, site.name, _ended_report(_("the site has left the alliance")))
    if site.takes_part:
        site.head_counts = message["head_counts"]
    site.save()
    runs = {}
    if site.takes_part:
        for joint in _joints(alliance, message["runs"]):
            if site.name not in joint.document.participants:
                continue
            key = _key(joint)
            word = message["runs"].get(key)
            if word is not None:
                _report_keep(joint, site.name, word)
                joint.refresh_from_db()
            runs[key] = _run_message(joint, word)
    terms = {
        "content": alliance.content,
        "signature": alliance.signature,
        "former": alliance.former,
        "terms": alliance.terms,
        "name": alliance.name,
        "ended": alliance.left_at is not None,
    }
    gone = list(withdrawal_messages(alliance, site.name)) if alliance.is_signed else []
    return {"protocol": DOMAIN, "version": __version__, "alliance": terms, "runs": runs, "withdrawn": gone}


def _silence_clock_restart(alliance: Alliance) -> None:
    """Restart the clock for silent sites if the hub has not heard from any site for a while.

    In that case, the hub or its network was probably unavailable, rather than the sites.
    """
    now = timezone.now()
    last = alliance.sites.aggregate(last=Max("last_contact"))["last"]
    if last is None or last < now - timedelta(seconds=settings.SITES_SILENCE):
        Alliance.objects.filter(pk=alliance.pk).update(heard_since=now)


def silent_sites(question: JointQuestion) -> list[str]:
    """Return the sites that an open question is waiting for and that have been silent for `SITES_PATIENCE` seconds.

    Silence is measured from the last message about the question, the site's last signed contact, or the end of the last
    period in which the hub heard from no site, whichever is latest. While the hub hears from none of the sites, no site
    counts as silent.
    """
    now, pending_sites = timezone.now(), question.pending_sites
    alliance = question.joint.alliance
    heard = dict(alliance.sites.values_list("name", "last_contact"))
    last = max(filter(None, heard.values()), default=None)
    if last is None or last < now - timedelta(seconds=settings.SITES_SILENCE):
        return []
    since = max(filter(None, (question.moved_at, alliance.heard_since)))
    before = now - timedelta(seconds=settings.SITES_PATIENCE)
    return [site for site in pending_sites if max(since, heard.get(site) or since) < before]


def _run_message(joint: JointRun, report: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the hub's message about a run, which includes the plan until the site reports having it."""
    questions = joint.questions.filter(number__gt=report["after"]) if report else joint.questions.none()
    status, message, version = joint.run.status, str(joint.run.message), model_of(joint)
    if version is not None and version.is_withdrawn:  # so that no site waits for this version
        status, message = Run.Status.WITHDRAWN, version.withdrawal_reason
    return {
        "content": joint.content,
        "signature": joint.signature,
        "told": "" if report else joint.proposal,
        "status": status,
        "message": message,
        "approvals": joint.approvals,
        "dropped": joint.dropped,
        "questions": [_question_message(question) for question in questions.order_by("number")],
        "model": model_message(joint) if report else None,
    }


def _question_message(question: JointQuestion) -> dict[str, Any]:
    """Return the hub's message about a question and its outcome."""
    total = {"content": question.total_content, "signature": question.total_signature} if question.total else None
    return {
        "number": question.number,
        "content": question.content,
        "signature": question.signature,
        "endorsements": question.endorsements,
        "ended": question.ended,
        "total": total,
        "answered": list(question.answers.values_list("site", flat=True)),
    }


def _report_keep(joint: JointRun, site: str, report: Mapping[str, Any]) -> None:
    """Store a site's approval or endorsement, or its notice that it has ended the run."""
    alliance = joint.alliance
    key, changed = alliance.document.sites[site], False
    joint = JointRun.objects.select_for_update().get(pk=joint.pk)
    if joint.run.has_ended:
        return
    if report["ended"] and site not in joint.dropped:
        text = gettext_noop("%(site)s has ended the run: %(why)s.")
        joint.dropped[site] = Sentence(text, site=site, why=str(report["ended"])[:200]).to_json()
        changed = True
    if (approval := report["approval"]) and site not in joint.approvals:
        signed = signed_text(Approval, approval)
        document = signed.checked(key, site)
        if (document.run, document.site) != (joint.document.digest(), site):
            raise Refused(gettext_noop("The approval belongs to a different run or site."))
        joint.approvals[site] = {"content": approval["content"], "signature": approval["signature"]}
        changed = True
    if changed:
        joint.save(update_fields=["approvals", "dropped"])
    if endorsement := report["endorsement"]:
        row = joint.questions.select_for_update().filter(number=endorsement["number"], closed_at=None).first()
        if row is not None and site in row.document.participants and site not in row.endorsements:
            word = Signed(Endorsement(row.document.digest(), site), signature_of(endorsement["signature"]))
            word.checked(key, site)
            row.endorsements[site], row.moved_at = endorsement["signature"], timezone.now()
            row.save(update_fields=["endorsements", "moved_at"])
    if changed:
        send("run_advance", joint.pk)


def answer_keep(site: AllianceSite, joint: JointRun, number: int, content: str, signature: str, vector: bytes) -> None:
    """Store a site's answer; sending the same answer again changes nothing.

    Raises:
        Refused: This is not the site's answer to the open question, or it differs from an earlier answer.
    """
    signed_by = site.alliance.document.sites[site.name]
    with transaction.atomic():
        row = joint.questions.select_for_update().filter(number=number).first()
        if row is None or site.name not in row.document.participants:
            raise Refused(gettext_noop("The site was not asked this question."))
        if row.closed_at is not None or joint.run.has_ended:
            return
        earlier = row.answers.filter(site=site.name).first()
        if earlier is not None:
            if earlier.content != content:
                raise Refused(gettext_noop("The site has already answered this question with different numbers."))
            return
        document = Signed(AnswerDocument.read(content.encode()), signature_of(signature)).checked(signed_by, site.name)
        if document.question != row.document.digest() or document.site != site.name:
            raise Refused(gettext_noop("The answer belongs to a different question or site."))
        if document.vector != hashlib.sha256(vector).hexdigest():
            raise Refused(gettext_noop("The numbers are not the ones that the site signed."))
        artifact = f"{sums_folder(joint)}/{number}-{site.pk}.npz"
        vector_save(artifact, vector)
        row.answers.create(site=site.name, content=content, signature=signature, artifact=artifact)
        row.moved_at = timezone.now()
        row.save(update_fields=["moved_at"])
        if row.answers.count() == len(row.document.participants):
            send("run_advance", joint.pk)


def total_content(joint: JointRun, number: int) -> bytes:
    """Return the numbers of a total for sites. Raises Refused."""
    row = joint.questions.filter(number=number).exclude(total="").first()
    if row is None:
        raise Refused(gettext_noop("This question has no total."))
    return vector_load(row.total)


def joint_of(alliance: Alliance, key: str) -> JointRun | None:
    """Return a run at the alliance's hub by its random number, which is the primary key there."""
    try:
        return _signed(alliance).filter(run=UUID(key)).first()
    except ValueError:
        return None


def json_of(body: bytes) -> Any:
    """Parse JSON that a site has sent. Raises Refused."""
    try:
        return json.loads(body)
    except ValueError as error:
        raise Refused(gettext_noop("This is not valid JSON.")) from error
