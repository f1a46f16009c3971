"""Signed documents of joint runs (see :mod:`learning.sites`), read from database rows, and the hub's model."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from django.db import transaction

from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save, model_fetch
from common.sentences import gettext_noop
from learning.mechanisms.protocol import content_digest
from learning.sites.documents import (
    AllianceDocument,
    AnswerDocument,
    AnyDocument,
    Approval,
    Endorsement,
    Publication,
    QuestionDocument,
    Refused,
    Roster,
    RunDocument,
    Signed,
    Withdrawal,
    sign,
)
from learning.sites.lattice import Numbers
from learning.sites.protocol import SiteAnswer, roster_of, total_spread
from training.alliances.wire import Hub, known_identity
from training.engine.budgets import sites_of
from training.models import Alliance, Dataset, JointAnswer, JointQuestion, JointRun, Run, RunResult, StudentModel

_UNREADABLE = "A signature is not hexadecimal. The hub and the sites need the same version of the protocol."


def signature_of(text: str) -> bytes:
    """Return the bytes of a signature. Raises Refused."""
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise Refused(_UNREADABLE) from error


def signed_text(kind: type[AnyDocument], text: Mapping[str, str]) -> Signed[AnyDocument]:
    """Return the document and its signature from a received or stored text. Raises Refused."""
    return Signed(kind.read(text["content"].encode()), signature_of(text["signature"]))


def hub_document(alliance: Alliance, kind: type[AnyDocument], text: Mapping[str, str]) -> AnyDocument:
    """Return a document that the alliance's hub has signed. Raises Refused."""
    return signed_text(kind, text).checked(alliance.document.hub, "the hub")


def document_text(document: Any) -> str:
    """Return the canonical JSON of an object, whose digest is signed."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def documents_of(alliance: Alliance) -> list[Signed[AllianceDocument]]:
    """Return all documents of an alliance with their signatures, from the first to the current one. Raises Refused."""
    texts = [*alliance.former, {"content": alliance.content, "signature": alliance.signature}]
    return [signed_text(AllianceDocument, each) for each in texts if each["content"]]


def alliance_verify(alliance: Alliance, digest: str = "") -> AllianceDocument:
    """Return the alliance document signed by the hub, after checking that it has the recorded terms.

    Args:
        digest: Digest of the current or a former document; empty for the current one.

    Raises:
        Refused: The document does not exist or is not signed.
    """
    if not alliance.is_signed:
        raise Refused(gettext_noop("The hub has not signed the alliance yet. Wait until all sites have registered."))
    known = documents_of(alliance)
    signed = next((each for each in known if digest and each.document.digest() == digest), known[-1])
    document = signed.checked(known[0].document.hub, "the hub")
    if document.terms != digest_of(document_text(alliance.terms)):
        raise Refused(
            gettext_noop("The hub has signed different terms from those that it sends. Ask the people who run the hub.")
        )
    return document


def signed_run(joint: JointRun) -> Signed[RunDocument]:
    """Return the proposal of a run with its signature. Raises Refused."""
    return Signed(joint.document, signature_of(joint.signature))


def roster(joint: JointRun) -> Roster:
    """Return the participating sites of a run after checking that all have approved it. Raises Refused."""
    alliance = joint.alliance
    approvals = [signed_text(Approval, each) for each in joint.approvals.values()]
    return roster_of(alliance_verify(alliance, joint.document.alliance), signed_run(joint), approvals)


def endorsements_of(question: JointQuestion) -> list[Signed[Endorsement]]:
    """Return the endorsements so far, for `learning.sites.protocol.answer` to check. Raises Refused."""
    digest = question.document.digest()
    return [
        Signed(Endorsement(digest, site), signature_of(signature))
        for site, signature in sorted(question.endorsements.items())
    ]


def answer_of(row: JointAnswer) -> SiteAnswer:
    """Return a site's answer from its row. Raises Refused."""
    signed = Signed(AnswerDocument.read(row.content.encode()), signature_of(row.signature))
    return SiteAnswer(signed, vector_load(row.artifact))


def vector_save(name: str, vector: bytes) -> None:
    """Store the numbers of an answer or a total in private storage."""
    arrays_save(name, vector=np.frombuffer(vector, np.uint8))


def vector_load(name: str) -> bytes:
    """Return the numbers of an answer or a total. Raises FileNotFoundError."""
    return arrays_load(name, "vector")["vector"].tobytes()


def points_digest(dataset: Dataset) -> str:
    """Return the SHA-256 of a dataset's public points, ignoring everything else in its file."""
    return content_digest({"x": arrays_load(dataset.artifact, "x")["x"]})


def noise_factor(run: Run) -> float:
    """Return an upper bound on the noise of a run's totals, as a multiple of one study's noise (1 for a single study).

    Learning from totals uses this factor, while accounts are charged according to the plan's noise.
    """
    if run.alliance_id is None:
        return 1.0
    joint = JointRun.objects.select_related("run__alliance").get(run=run.pk)
    known = roster(joint)
    questions = [each.document for each in joint.questions.exclude(total="")]
    return max((total_spread(known, each) / each.spread for each in questions), default=1.0)


def noise_among(run: Run) -> int:
    """Return the number of a run's sites that together add the noise on which charges are based."""
    joint = JointRun.objects.select_related("run__alliance").filter(run=run.pk).first()
    alliance = run.alliance
    assert alliance is not None, "a run across sites"
    sites = len(joint.sites) if joint else sum(site.takes_part for site in alliance.sites.all())
    return max(1, sites - alliance.colluding) if joint is None or joint.mode == JointRun.Mode.TOGETHER else 1


def planned_noise_factor(run: Run) -> float:
    """Return the ratio of the noise in a total across all of a run's sites to that of one study (1 without sites)."""
    if run.alliance_id is None:
        return 1.0
    return math.sqrt(sites_of(run) / noise_among(run))


# --- Totals ---------------------------------------------------------------------------------------------------------


def total_bytes(total: Numbers, grain: float) -> bytes:
    """Return a total as whole multiples of the grain, little-endian."""
    return np.rint(np.asarray(total) / grain).astype("<i8").tobytes()


def total_read(question: JointQuestion, vector: bytes) -> Numbers:
    """Return the total of a question that the hub has signed.

    Raises:
        Refused: The total belongs to another question or has another shape, or its numbers differ from the signed ones.
    """
    alliance = question.joint.alliance
    summed = AnswerDocument.read(question.total_content.encode())
    Signed(summed, signature_of(question.total_signature)).checked(alliance.document.hub, "the hub")
    document: QuestionDocument = question.document
    if summed.question != document.digest() or summed.site:
        raise Refused(
            gettext_noop("The hub has sent the total of a different question. Ask the people who run the hub.")
        )
    if summed.vector != hashlib.sha256(vector).hexdigest() or len(vector) != 8 * int(np.prod(summed.shape)):
        raise Refused(gettext_noop("The total is not the one that the hub signed, so this site requests it again."))
    grains = np.frombuffer(vector, "<i8").astype(np.int64).reshape(summed.shape)
    return grains if document.grain == 1 else grains * document.grain


def state_after(question: JointQuestion, before: str) -> str:
    """Return the digest of all totals up to and including a question's total; it determines the next state."""
    return digest_of(f"{before} {digest_of(question.content)} {digest_of(question.total_content)}")


def state_of(joint: JointRun) -> str:
    """Return the digest of all totals of a run so far; empty before the first."""
    last = joint.questions.exclude(total="").order_by("number").last()
    return "" if last is None else last.state


def sums_folder(joint: JointRun) -> str:
    """Return the folder of a run's totals and of its answers: a site's own answers, or those sent to a hub."""
    return f"sums/{joint.run_id}"


def sums_tidy(joint: JointRun) -> None:
    """Delete answers of an ended run that were never committed and, at the hub, answers without a total."""
    named = {name for names in joint.questions.values_list("answer", "total") for name in names}
    arrays_delete(*(name for name in arrays_list(sums_folder(joint)) if name not in named))


# --- Publications -----------------------------------------------------------------------------------------------------


#: Fields of a student version that the hub sends to sites.
FIELDS = ("learner", "seed", "calibration", "accuracy", "label_accuracy", "card", "seconds", "score")
#: Fields that name the files of a student version.
FILES = ("file", "onnx")


def model_message(joint: JointRun) -> dict[str, str] | None:
    """Return a hub's message about the model of a finished run; None if it has no model or a withdrawn one."""
    alliance, version = joint.alliance, model_of(joint)
    if version is None or version.is_withdrawn:
        return None
    facts = document_text(
        {name: getattr(version, name) for name in FIELDS} | {"published": joint.run.student_id is not None}
    )
    document = Publication(joint.document.digest(), digest_of(facts), version.digest, version.onnx_digest)
    signature = sign(document, known_identity(alliance)).signature.hex()
    return {"content": document.content().decode(), "signature": signature, "told": facts}


def withdrawal_messages(alliance: Alliance, site: str) -> Iterator[dict[str, str]]:
    """Yield signed messages about every model or table of a site's runs that the hub has withdrawn."""
    for published in (StudentModel, RunResult):
        gone = published._default_manager.filter(run__alliance=alliance, withdrawn_at__isnull=False)
        for each in gone.exclude(run__joint__content="").select_related("run__joint").order_by("pk"):
            if site in each.run.joint.sites:
                document = Withdrawal(each.run.joint.document.digest(), each.digest, each.withdrawal_reason)
                signature = sign(document, known_identity(alliance)).signature.hex()
                yield {"content": document.content().decode(), "signature": signature}


@transaction.atomic
def withdrawals_keep(alliance: Alliance, messages: Sequence[dict[str, str]]) -> None:
    """Store the hub's signed withdrawals at a site. Raises Refused."""
    runs = JointRun.objects.filter(run__alliance=alliance).exclude(content="") if messages else JointRun.objects.none()
    joints = {joint.document.digest(): joint for joint in runs.select_for_update()}
    for message in messages:
        document = hub_document(alliance, Withdrawal, message)
        joint = joints.get(document.run)
        if joint is not None and document.file not in joint.withdrawn:
            joint.withdrawn[document.file] = message
            joint.save(update_fields=["withdrawn"])


def model_content(joint: JointRun, file: str) -> bytes:
    """Return a file of the model at its hub. Raises Refused."""
    version = model_of(joint)
    if version is None or version.is_withdrawn or file not in FILES:
        raise Refused(gettext_noop("This run does not have this file."))
    return model_fetch(version.artifact if file == "file" else version.onnx)


def model_verify(joint: JointRun) -> tuple[Publication, dict[str, Any]]:
    """Return the hub's signed publication of its model, and the description sent to the site. Raises Refused."""
    alliance = joint.alliance
    document = hub_document(alliance, Publication, joint.model)
    if document.run != joint.document.digest() or document.told != digest_of(joint.model["told"]):
        raise Refused(
            gettext_noop(
                "The hub has signed a model from a different run, or its description does not match the signed model."
            )
        )
    return document, json.loads(joint.model["told"])


def file_fetch(joint: JointRun, file: str, digest: str) -> bytes:
    """Fetch a file of the model from the hub and return its content.

    Raises:
        Refused: The file differs from the one that the hub has signed.
        Unreachable: The hub does not answer.
    """
    alliance = joint.alliance
    content = Hub(alliance).get(f"runs/{joint.document.number}/model/{file}")
    if hashlib.sha256(content).hexdigest() != digest:
        raise Refused(gettext_noop("The model is not the one that the hub signed."))
    return content


def model_of(joint: JointRun) -> StudentModel | None:
    """Return the version of a run's model that its hub has published, or else the latest; None if there is none."""
    run = joint.run
    if run.status != Run.Status.FINISHED:
        return None
    return run.student or run.students.order_by("version").last()
