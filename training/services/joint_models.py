"""The model of a joint run at a site: what the hub has learned, stored as a version of the site's own run.

What its hub has withdrawn, a model or a table, the site withdraws, too.
"""

import logging
from uuid import uuid4

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from accounting.services import release_record
from common.artifacts import model_store
from common.sentences import Sentence
from consent.services import study_lock
from learning.published import published_load
from learning.sites.documents import Refused, Withdrawal
from training.engine.spending import message_set
from training.errors import RunError
from training.methods import Outcome, method_of
from training.models import JointRun, Run, RunResult, StudentModel
from training.notices import published_tell, run_ended_tell
from training.services.cards import card_digest
from training.services.results import result_withdraw
from training.services.students import student_withdraw
from training.sites.asking import ENDED
from training.sites.exchange import exchange
from training.sites.published import FIELDS, file_fetch, model_verify
from training.sites.wire import Unreachable

logger = logging.getLogger(__name__)

_WAITS = gettext_noop("Everything is answered. Waits for the model of the hub.")
_NOT_OURS = gettext_noop("The model of the hub cannot be taken over: %(why)s")


def is_taught_elsewhere(run: Run) -> bool:
    """Whether the model of a run comes from a hub."""
    alliance = run.alliance
    return alliance is not None and not alliance.is_hub and method_of(run).outcome == Outcome.MODEL


def model_take(run: Run) -> bool:
    """Take over the hub's model, and finish the run; False while there is none."""
    joint = JointRun.objects.select_related("run__alliance__study").get(run=run.pk)
    alliance = joint.run.alliance
    assert alliance is not None, "a joint run is one of an alliance"
    try:
        if not joint.model:
            exchange(alliance)
            joint.refresh_from_db(fields=["model", "ended"])
        if not joint.model:
            if joint.ended:
                raise RunError(Sentence(ENDED, why=joint.ended))
            message_set(run, _WAITS)
            return False
        document, facts = model_verify(joint)
        content, onnx = file_fetch(joint, "file", document.file), file_fetch(joint, "onnx", document.onnx)
        published_load(facts["learner"], content)
    except Unreachable as error:
        if joint.ended:  # a hub gives nobody a model that it has withdrawn
            raise RunError(Sentence(ENDED, why=joint.ended)) from error
        message_set(run, error.sentence)
        return False
    except (Refused, ValueError, KeyError) as error:
        raise RunError(Sentence(_NOT_OURS, why=getattr(error, "sentence", error))) from error
    artifact = f"students/{run.pk}-{uuid4().hex[:12]}.model"
    model_store(artifact, content)
    model_store(f"{artifact}.onnx", onnx)
    with transaction.atomic():
        study_lock(run.study_id)
        run = Run.objects.select_for_update(of=("self",)).select_related("study").get(pk=run.pk)
        if run.status != Run.Status.LEARNING:
            return False
        version = StudentModel.objects.create(
            run=run,
            version=1,
            artifact=artifact,
            digest=document.file,
            onnx=f"{artifact}.onnx",
            onnx_digest=document.onnx,
            **{name: facts[name] for name in FIELDS},
        )
        said = {"learner": version.learner, "labels": run.labels, "version": 1, "calibration": version.calibration}
        said |= {"card": card_digest(version.card)}
        release_record(
            study=run.study,
            kind=Release.Kind.MODEL,
            run=run.pk,
            content={"digest": version.digest, "onnx": version.onnx_digest, "published": facts["published"], **said},
            acting_user_id=run.approved_by_id,
        )
        run.student = version if facts["published"] else None
        run.status, run.ended_at, run.message = Run.Status.FINISHED, timezone.now(), ""
        run.save(update_fields=["student", "status", "ended_at", "message"])
        run_ended_tell(run)
        if run.student is not None:
            published_tell(run)
    logger.info("The model of the hub was taken over.")
    return True


def withdrawals_follow() -> None:
    """Withdraw at the sites of this installation whatever their hubs have withdrawn of the same run."""
    given = {"withdrawn_at": None, "run__joint__isnull": False}
    for version in StudentModel.objects.filter(**given).exclude(run__joint__withdrawn={}):
        if reason := _withdrawn_at_hub(version):
            student_withdraw(run=version.run, version=version.version, reason=reason, acting_user=None)
    for table in RunResult.objects.filter(**given).exclude(run__joint__withdrawn={}):
        if reason := _withdrawn_at_hub(table):
            result_withdraw(run=table.run, reason=reason, acting_user=None)


def _withdrawn_at_hub(published: StudentModel | RunResult) -> str:
    """Why the hub has withdrawn what a site has published; empty where it has not."""
    word = published.run.joint.withdrawn.get(published.digest)
    if word is None:
        return ""
    why = Withdrawal.read(word["content"].encode()).reason
    longest = StudentModel._meta.get_field("withdrawal_reason").max_length
    return (_("The hub of the run has withdrawn it: %(why)s") % {"why": why})[:longest]
