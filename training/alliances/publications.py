"""The model of a joint run: learned at the hub from totals alone, signed, and taken over by every site.

What the hub withdraws later, a model or a table, it signs, too, and every site withdraws it.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from django.db import transaction

from common.artifacts import model_fetch
from common.sentences import gettext_noop
from learning.sites.documents import Publication, Refused, Signed, Withdrawal, sign
from training.alliances.documents import digest_of, document_text, signature_of
from training.alliances.keys import known_identity
from training.alliances.wire import Hub
from training.models import Alliance, JointRun, Run, RunResult, StudentModel

#: What is told of a version.
FIELDS = ("learner", "seed", "calibration", "accuracy", "label_accuracy", "card", "seconds", "score")
#: Files of a version.
FILES = ("file", "onnx")


def model_message(joint: JointRun) -> dict[str, str] | None:
    """What a hub tells sites of the model of a run that has finished; None before, and once it was withdrawn."""
    alliance, version = joint.run.alliance, model_of(joint)
    if version is None or version.is_withdrawn or alliance is None:
        return None
    facts = document_text(
        {name: getattr(version, name) for name in FIELDS} | {"published": joint.run.student_id is not None}
    )
    document = Publication(joint.document.digest(), digest_of(facts), version.digest, version.onnx_digest)
    signature = sign(document, known_identity(alliance)).signature.hex()
    return {"content": document.content().decode(), "signature": signature, "told": facts}


def withdrawal_messages(alliance: Alliance, site: str) -> Iterator[dict[str, str]]:
    """What a hub has withdrawn of the runs in which a site takes part, as it signs it, however long ago."""
    for published in (StudentModel, RunResult):
        gone = published._default_manager.filter(run__alliance=alliance, withdrawn_at__isnull=False)
        for each in gone.exclude(run__joint__content="").select_related("run__joint").order_by("pk"):
            if site in each.run.joint.sites:
                document = Withdrawal(each.run.joint.document.digest(), each.digest, each.withdrawal_reason)
                signature = sign(document, known_identity(alliance)).signature.hex()
                yield {"content": document.content().decode(), "signature": signature}


@transaction.atomic
def withdrawals_keep(alliance: Alliance, messages: Sequence[dict[str, str]]) -> None:
    """Keep what the hub has signed to be withdrawn, at a site. Raises Refused."""
    runs = JointRun.objects.filter(run__alliance=alliance).exclude(content="") if messages else JointRun.objects.none()
    joints = {joint.document.digest(): joint for joint in runs.select_for_update()}
    for message in messages:
        document = Withdrawal.read(message["content"].encode())
        Signed(document, signature_of(message["signature"])).checked(alliance.document.hub, "the hub")
        joint = joints.get(document.run)
        if joint is not None and document.file not in joint.withdrawn:
            joint.withdrawn[document.file] = message
            joint.save(update_fields=["withdrawn"])


def model_content(joint: JointRun, file: str) -> bytes:
    """A file of the model, at the hub. Raises Refused."""
    version = model_of(joint)
    if version is None or version.is_withdrawn or file not in FILES:
        raise Refused(gettext_noop("There is no such file of this run."))
    return model_fetch(version.artifact if file == "file" else version.onnx)


def model_verify(joint: JointRun) -> tuple[Publication, dict[str, Any]]:
    """What the hub has signed of its model, and what it tells of it, at a site. Raises Refused."""
    alliance = joint.run.alliance
    assert alliance is not None, "a joint run is one of an alliance"
    document = Publication.read(joint.model["content"].encode())
    Signed(document, signature_of(joint.model["signature"])).checked(alliance.document.hub, "the hub")
    if document.run != joint.document.digest() or document.told != digest_of(joint.model["told"]):
        raise Refused(gettext_noop("The hub has signed the model of another run, or tells something else of it."))
    return document, json.loads(joint.model["told"])


def file_fetch(joint: JointRun, file: str, digest: str) -> bytes:
    """A file of the model from the hub.

    Raises:
        Refused: It is not the one that the hub has signed.
        Unreachable: Nobody answers.
    """
    alliance = joint.run.alliance
    assert alliance is not None, "a joint run is one of an alliance"
    content = Hub(alliance).get(f"runs/{joint.document.number}/model/{file}")
    if hashlib.sha256(content).hexdigest() != digest:
        raise Refused(gettext_noop("The model is not the one that the hub has signed."))
    return content


def model_of(joint: JointRun) -> StudentModel | None:
    """The version that a run has published at its hub, or else its last; None before there is one."""
    run = joint.run
    if run.status != Run.Status.FINISHED:
        return None
    return run.student or run.students.order_by("version").last()
