"""Joint runs: proposals at the hub, their acceptance at sites, exclusion of a site, and the model.

If a run produces a model, the hub trains it from the totals; every site verifies it and stores it as a version of its
own run. If the hub later withdraws a model or a table, the sites withdraw it as well.
"""

import io
import json
import logging
from typing import Any
from uuid import uuid4

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from accounting.models import Release
from accounting.services import release_record
from common.artifacts import arrays_load, model_store
from common.logging import logging_run
from common.models import locked
from common.sentences import Sentence, gettext_noop
from consent.services import study_lock
from learning.formats import Rows, schema_from_json
from learning.mechanisms.protocol import content_digest
from learning.published import published_load
from learning.sites.documents import Publication, Refused, RunDocument, Withdrawal
from learning.students import suggested_student
from training.alliances.approvals import COMMON, refusal, renewal_check, sites_fault
from training.alliances.asking import ENDED, question_end
from training.alliances.documents import FIELDS, digest_of, file_fetch, hub_document, model_verify, points_digest
from training.alliances.exchange import exchange
from training.alliances.services import people_of_sites
from training.alliances.wire import Hub, Unreachable
from training.engine.commits import message_set
from training.engine.scheduling import send
from training.errors import RunError
from training.methods import METHODS, MethodOutcome, method_of
from training.models import Alliance, Dataset, JointRun, Run, RunResult, StudentModel
from training.notices import notify_published, notify_run_ended
from training.services.cards import card_digest
from training.services.datasets import dataset_import, dataset_name
from training.services.publication import result_withdraw
from training.services.runs import run_propose
from training.services.students import student_withdraw

logger = logging.getLogger(__name__)

_LEFT_OUT = gettext_noop("The hub's operators have continued without %(site)s.")


@transaction.atomic
def joint_run_propose(
    *, alliance: Alliance, acting_user: AbstractBaseUser, mode: str, sites: list[str] | None = None, **fields: Any
) -> Run:
    """Propose a joint run at the hub, for approval by a second person there and then by every site.

    Args:
        alliance: The alliance, as stored at the hub.
        mode: A :class:`JointRun.Mode`.
        sites: Names of the participating sites; by default all that have joined.
        **fields: As in `run_propose`, including ``method`` but without the private dataset, because records stay at the
            sites.

    Raises:
        ValidationError: Errors by field.
    """
    study_lock(alliance.study_id)
    if not locked(alliance).is_hub:
        raise ValidationError(_("Only the hub can propose joint runs."))
    if alliance.left_at is not None:
        raise ValidationError(_("This alliance has ended. No new runs are possible."))
    there = [site.name for site in alliance.sites.order_by("name") if site.is_eligible]
    chosen = there if sites is None else sorted(set(sites))
    if fault := sites_fault(alliance, chosen):
        raise ValidationError({"sites": fault})
    least = alliance.colluding + 2 if mode == JointRun.Mode.TOGETHER else 1
    if len(chosen) < least:
        raise ValidationError({"sites": _("At least %(least)d sites are needed.") % {"least": least}})
    public = fields.get("public_dataset")
    terms = alliance.terms["public"]
    if public is not None and (terms is None or points_digest(public) != terms["digest"]):
        raise ValidationError({"public_dataset": _("These are not the alliance's public points.")})
    if METHODS[fields["method"]].outcome == MethodOutcome.TABLE:
        fields |= {"public_dataset": None, "test_dataset": None, "student_learner": "", "batch_size": 1}
    else:
        fields.setdefault("student_learner", suggested_student(alliance.terms["schema"]["kind"]).name)
    if fields["method"] == Run.Method.SGD:
        fields["batch_size"] = 1  # because every step is a separate question
    fields["private_dataset"] = people_of_sites(alliance.study, alliance.terms["schema"])
    run = run_propose(study=alliance.study, acting_user=acting_user, alliance=alliance, **fields)
    joint = JointRun(run=run, mode=mode, sites=chosen)
    joint.full_clean()
    joint.save()
    return run


def joint_run_take(
    *,
    alliance: Alliance,
    number: str,
    private_dataset: Dataset,
    acting_user: AbstractBaseUser,
    test_dataset: Dataset | None = None,
) -> Run:
    """Create a draft of a run proposed by the hub. Another operator of this site approves it and sets its share.

    Args:
        alliance: The alliance, as stored at the site.
        number: The run's number at the hub.

    Raises:
        ValidationError: There is no such proposal, it was already accepted, the hub has not signed it, or the public
            points cannot be fetched.
    """
    proposal = _proposal_open(alliance, number)
    renewal_check(alliance)
    try:
        document = hub_document(alliance, RunDocument, proposal)
        if document.plan != digest_of(proposal["told"]) or document.alliance != alliance.document.digest():
            raise Refused(gettext_noop("The hub has signed a different plan, or a plan for a different alliance."))
    except Refused as error:
        raise refusal(error) from error
    planned = json.loads(proposal["told"])
    public = None if planned["points"] is None else _points(alliance, planned["points"], acting_user)
    with transaction.atomic():
        study_lock(alliance.study_id)
        held = Alliance.objects.select_for_update().get(pk=alliance.pk)
        if _proposal_open(held, number) != proposal:
            raise ValidationError(_("The hub has changed this proposal in the meantime. Read it again."))
        run = run_propose(
            study=alliance.study,
            acting_user=acting_user,
            alliance=alliance,
            private_dataset=private_dataset,
            public_dataset=public,
            test_dataset=test_dataset,
            **{name: planned[name] for name in COMMON},
        )
        joint = JointRun(run=run, mode=document.mode, sites=list(document.participants))
        joint.proposal, joint.content, joint.signature = proposal["told"], proposal["content"], proposal["signature"]
        joint.full_clean()
        joint.save()
        del held.proposals[number]
        held.save(update_fields=["proposals"])
    return run


def _proposal_open(alliance: Alliance, number: str) -> dict[str, Any]:
    """Return a hub's proposal that can still be accepted. Raises ValidationError."""
    proposal = alliance.proposals.get(number)
    if proposal is None or proposal.get("declined") or alliance.left_at is not None:
        raise ValidationError(_("The hub does not have this proposal, or this study has already accepted it."))
    return proposal


@transaction.atomic
def joint_run_decline(*, alliance: Alliance, number: str, acting_user: AbstractBaseUser) -> None:
    """Decline a run proposed by the hub, and notify the hub, which ends the run. Declining again has no effect.

    Raises:
        ValidationError: There is no such proposal, or it was accepted, in which case cancel the run instead.
    """
    held = Alliance.objects.select_for_update().get(pk=alliance.pk)
    if number not in held.proposals or held.left_at is not None:
        raise ValidationError(_("The hub does not have this proposal, or this study has already accepted it."))
    held.proposals[number] = held.proposals[number] | {"declined": True}
    held.save(update_fields=["proposals"])
    send("alliance_contact", alliance.pk)
    logger.info("User %s declined a run across sites that alliance %s proposed.", acting_user.pk, alliance.pk)


@transaction.atomic
def joint_run_go_on(*, run: Run, without: str, acting_user: AbstractBaseUser) -> None:
    """End the open question of a run at its hub, and ask the remaining sites a new question.

    If all sites had endorsed the ended question, their people remain charged for it. If too few sites are left, the run
    ends.

    Args:
        run: The run at the hub.
        without: Name of the site to exclude from the rest of this run.

    Raises:
        ValidationError: No question is waiting for this site.
    """
    joint = JointRun.objects.select_for_update(of=("self",)).select_related("run__alliance").get(run=run.pk)
    question = joint.questions.filter(closed_at=None).first()
    if not joint.alliance.is_hub or question is None or without not in question.pending_sites:
        raise ValidationError(_("No question is waiting for this site."))
    question_end(run, Sentence(_LEFT_OUT, site=without), [without])
    send("run_advance", run.pk)
    with logging_run(run.pk):
        logger.info("User %s continues without a site.", acting_user.pk)


def _points(alliance: Alliance, digest: str, acting_user: AbstractBaseUser) -> Dataset:
    """Return the dataset of the alliance's public points at a site, copying it from the hub if necessary."""
    for dataset in Dataset.objects.filter(study=alliance.study, kind=Dataset.Kind.PUBLIC, removed_at=None):
        if points_digest(dataset) == digest:
            return dataset
    try:
        content = Hub(alliance).get("points")
    except Unreachable as error:
        raise ValidationError(str(error)) from error
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            x = arrays["x"]
    except (ValueError, KeyError, OSError) as error:
        raise ValidationError(_("The hub did not send public points.")) from error
    if content_digest({"x": x}) != digest:
        raise ValidationError(_("The hub sent public points that differ from the alliance's."))
    return dataset_import(
        study=alliance.study,
        name=dataset_name(alliance.study, _("public points of %(name)s") % {"name": alliance.name}),
        kind=Dataset.Kind.PUBLIC,
        rows=Rows(x),
        schema=schema_from_json(alliance.terms["schema"]),
        provenance=_("From the hub of the alliance %(name)s.") % {"name": alliance.name},
        acting_user=acting_user,
    )


def points_content(alliance: Alliance) -> bytes:
    """Return the public points of an alliance at its hub, as an npz file. Raises Refused."""
    terms = alliance.terms["public"]
    for dataset in Dataset.objects.filter(study=alliance.study, kind=Dataset.Kind.PUBLIC, removed_at=None):
        if terms and points_digest(dataset) == terms["digest"]:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **arrays_load(dataset.artifact, "x"))
            return buffer.getvalue()
    raise Refused(gettext_noop("The alliance has no public points."))


# --- The model of the hub ---------------------------------------------------------------------------------------------


_WAITS = gettext_noop("All questions are answered. Waiting for the hub's model.")
_NOT_OURS = gettext_noop("The hub's model cannot be used: %(why)s")


def is_trained_by_hub(run: Run) -> bool:
    """Return whether a run's model comes from a hub."""
    alliance = run.alliance
    return alliance is not None and not alliance.is_hub and method_of(run).outcome == MethodOutcome.MODEL


def model_take(run: Run) -> bool:
    """Copy the hub's model and finish the run; return False if there is no model yet."""
    joint = JointRun.objects.select_related("run__alliance__study").get(run=run.pk)
    alliance = joint.alliance
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
        artifact = _files_take(joint, document, facts)
    except Unreachable as error:
        if joint.ended:  # a hub does not send a model that it has withdrawn
            raise RunError(Sentence(ENDED, why=joint.ended)) from error
        message_set(run, error.sentence)
        return False
    except (Refused, ValueError, KeyError) as error:
        raise RunError(Sentence(_NOT_OURS, why=getattr(error, "sentence", error))) from error
    with transaction.atomic():
        study_lock(run.study_id)
        run = Run.objects.select_for_update(of=("self",)).select_related("study").get(pk=run.pk)
        if run.status != Run.Status.LEARNING:
            return False
        version = _version_record(run, 1, artifact, document, facts, is_published=facts["published"])
        run.student = version if facts["published"] else None
        run.status, run.ended_at, run.message = Run.Status.FINISHED, timezone.now(), ""
        run.save(update_fields=["student", "status", "ended_at", "message"])
        notify_run_ended(run)
        if run.student is not None:
            notify_published(run)
    logger.info("The hub's model was imported.")
    return True


def _files_take(joint: JointRun, document: Publication, facts: dict[str, Any]) -> str:
    """Fetch and store the files of the hub's model; return the name under which they are stored."""
    content, onnx = file_fetch(joint, "file", document.file), file_fetch(joint, "onnx", document.onnx)
    published_load(facts["learner"], content)
    artifact = f"students/{joint.run_id}-{uuid4().hex[:12]}.model"
    model_store(artifact, content)
    model_store(f"{artifact}.onnx", onnx)
    return artifact


def _version_record(
    run: Run, number: int, artifact: str, document: Publication, facts: dict[str, Any], *, is_published: bool
) -> StudentModel:
    version = StudentModel.objects.create(
        run=run,
        version=number,
        artifact=artifact,
        digest=document.file,
        onnx=f"{artifact}.onnx",
        onnx_digest=document.onnx,
        **{name: facts[name] for name in FIELDS},
    )
    facts = {"learner": version.learner, "labels": run.labels, "version": number, "calibration": version.calibration}
    facts |= {"card": card_digest(version.card)}
    release_record(
        study=run.study,
        kind=Release.Kind.MODEL,
        run=run.pk,
        content={"digest": version.digest, "onnx": version.onnx_digest, "published": is_published, **facts},
        acting_user_id=run.approved_by_id,
    )
    return version


def hub_models_publish() -> None:
    """Publish, at this installation's sites, versions that hubs published after the runs had finished.

    If a hub is unreachable or has sent an invalid message, the next call asks it again.
    """
    finished = JointRun.objects.filter(run__status=Run.Status.FINISHED, run__alliance__left_at=None)
    for joint in finished.exclude(run__alliance__own_name="").exclude(model={}).select_related("run__alliance__study"):
        try:
            document, facts = model_verify(joint)
            shown = joint.run.student
            if not facts["published"] or (shown is not None and shown.digest == document.file):
                continue
            known = joint.run.students.filter(digest=document.file).first()
            if known is None or not known.is_withdrawn:
                _version_follow(joint, document, facts, "" if known else _files_take(joint, document, facts))
        except (Unreachable, Refused, ValueError, KeyError) as error:
            logger.warning("The hub's new version of run %s could not be imported: %s", joint.pk, error)


@transaction.atomic
def _version_follow(joint: JointRun, document: Publication, facts: dict[str, Any], artifact: str) -> None:
    study_lock(joint.run.study_id)
    run = Run.objects.select_for_update(of=("self",)).select_related("study").get(pk=joint.pk)
    version = run.students.filter(digest=document.file).first()
    if version is None:
        number = run.students.count() + 1
        version = _version_record(run, number, artifact, document, facts, is_published=False)
    if run.student_id == version.pk or version.is_withdrawn:
        return
    run.student = version
    run.save(update_fields=["student"])
    notify_published(run)
    release_record(
        study=run.study,
        kind=Release.Kind.CHOICE,
        run=run.pk,
        content={"version": version.version, "digest": version.digest, "reason": ""},
        acting_user_id=None,
    )


def hub_withdrawals_apply() -> None:
    """Withdraw models and tables at this installation's sites if their hubs have withdrawn them."""
    given = {"withdrawn_at": None, "run__joint__isnull": False}
    for version in StudentModel.objects.filter(**given).exclude(run__joint__withdrawn={}):
        if reason := _withdrawn_at_hub(version):
            student_withdraw(run=version.run, version=version.version, reason=reason, acting_user=None)
    for table in RunResult.objects.filter(**given).exclude(run__joint__withdrawn={}):
        if reason := _withdrawn_at_hub(table):
            result_withdraw(run=table.run, reason=reason, acting_user=None)


def _withdrawn_at_hub(published: StudentModel | RunResult) -> str:
    """Return the hub's reason for withdrawing a result that this site has published; empty if it has not done so."""
    word = published.run.joint.withdrawn.get(published.digest)
    if word is None:
        return ""
    why = Withdrawal.read(word["content"].encode()).reason
    longest = StudentModel._meta.get_field("withdrawal_reason").max_length
    return (_("The hub withdrew the run: %(why)s") % {"why": why})[:longest]
