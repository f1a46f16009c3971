"""Commands on a run: propose, check, approve, cancel. Starting the started, or ending the ended, does nothing."""

import logging
from collections.abc import Callable
from contextlib import suppress
from secrets import randbits
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.shares import share_check, share_grant, share_settle
from common.logging import logging_run
from common.slots import slot
from consent.models import Study
from consent.permissions import second_person_check
from consent.services import study_lock, study_open_check
from consent.services.changes import changes_recorded
from learning.formats import TabularSchema, records_alike, schema_from_json
from learning.mechanisms.protocol import PlanError
from learning.outcomes import OUTCOME_LABELS
from training.alliances.approvals import joint_approve
from training.dispatch import send
from training.engine.budgets import rehearsed_check
from training.engine.spending import runs_send_on, used_share
from training.errors import REPEATED, STATE
from training.methods import METHODS, Outcome, method_by, method_of
from training.methods.base import RunMethod
from training.methods.lessons import student_check
from training.methods.planning import beside_majority
from training.models import Dataset, Run
from training.notices import run_approved_tell, run_ended_tell, run_proposed_tell
from training.services.ending import run_forget

logger = logging.getLogger(__name__)


@transaction.atomic
def run_propose(*, study: Study, acting_user: AbstractBaseUser, **fields: Any) -> Run:
    """A draft of a run.

    With a ``proposal_key`` and a ``proposal_digest`` among the fields, what was proposed with them before is returned.

    Raises:
        ValidationError: by field, where it could not be carried out; or the key was used for another proposal.
    """
    if key := fields.get("proposal_key"):
        study_lock(study.pk)
        earlier = Run.objects.filter(created_by_id=acting_user.pk, proposal_key=key).first()
        if earlier is not None:
            if earlier.proposal_digest != fields["proposal_digest"]:
                raise ValidationError(_("This key was used for another proposal. Choose a new one."), code=REPEATED)
            return earlier
    study_open_check(study)
    name = fields.get("method", Run.Method.PATE)
    if name in METHODS:
        fields.setdefault("batch_size", method_by(name, fields.get("variant", "")).batch_size)
    run = Run(study=study, rehearsal=study.rehearsal, created_by_id=acting_user.pk, **fields)
    if run.rehearsal and run.seed is None:
        run.seed = randbits(31)
    run_check(run)
    with changes_recorded([run], acting_user=acting_user):
        run.save()
    run_proposed_tell(run)
    return run


def run_check(run: Run) -> RunMethod:
    """Check that a run is well formed, and return its method: parameters, and the public part of its datasets.

    Nothing in the answer depends on consents or private records (condition 1 of the guarantee): who proposes or
    approves runs would learn of them.

    Raises:
        ValidationError: by field.
    """
    errors: dict[str, list[str]] = {}

    def wrong(field: str, message: object) -> None:
        errors.setdefault(field, []).append(str(message))

    # The database itself checks that what is referred to exists; what its constraints forbid is refused below, by
    # methods, or where a run is approved. To look for each in a query of its own takes longer than all else.
    references = {each.name for each in Run._meta.concrete_fields if each.is_relation and getattr(run, each.attname)}
    try:
        run.clean_fields(exclude=references)
    except ValidationError as error:
        errors.update(error.message_dict)
    _check_datasets(run, wrong)
    method = method_of(run) if run.method in METHODS else None
    learns = method is None or method.outcome == Outcome.MODEL
    taught = not run.private_dataset_id or bool(run.private_dataset.outcome.categories)
    if method is not None and run.private_dataset_id:
        _check_outcome(run, method, wrong)
    of_texts = bool(run.private_dataset_id) and not run.encoder and _is_of_texts(run.private_dataset)
    if run.public_dataset_id and learns and taught and not of_texts:
        student_check(run, wrong)
    elif (run.public_dataset_id and learns) or (method is not None and not method.needs_public_points):
        run.student_learner, run.student_parameters = "", {}
    else:
        wrong("public_dataset", _("Choose the public points that this method asks about, or learns on."))
    if of_texts and learns and run.method != Run.Method.SGD:
        wrong("method", _("Texts are learned from by gradient steps, or with an encoder. Choose one of the two."))
    if run.seed is not None and not run.rehearsal:
        wrong("seed", _("Only a rehearsal may have a seed: noise that can be repeated protects nobody."))
    if run.rehearsal:
        try:
            run.rehearsed = rehearsed_check(run.rehearsed)
        except ValidationError as error:
            wrong("rehearsed", "; ".join(error.messages))
    elif run.rehearsed:
        wrong("rehearsed", _("Only a run of a rehearsal study has these parameters."))
    if method is not None:
        method.check(run, wrong)
    if errors:
        raise ValidationError(errors)
    assert method is not None, "the name of a method is one of the model's choices"
    return method


def _is_of_texts(dataset: Dataset) -> bool:
    schema = schema_from_json(dataset.schema)
    return isinstance(schema, TabularSchema) and schema.text is not None


def _check_outcome(run: Run, method: RunMethod, wrong: Callable[[str, object], None]) -> None:
    kind = run.private_dataset.outcome.kind
    if kind not in method.learns:
        words = {"kind": _(OUTCOME_LABELS[kind])}
        wrong(
            "method",
            _("This method does not learn %(kind)s, which the private dataset declares. Choose private gradient steps.")
            % words,
        )


def _check_datasets(run: Run, wrong: Callable[[str, object], None]) -> None:
    kinds = {"private_dataset": Dataset.Kind.PRIVATE, "public_dataset": Dataset.Kind.PUBLIC}
    if run.test_dataset_id:
        kinds["test_dataset"] = Dataset.Kind.TEST
    if run.labelled_dataset_id:
        kinds["labelled_dataset"] = Dataset.Kind.PUBLIC
        _check_labelled(run, wrong)
    present = [field for field in kinds if getattr(run, f"{field}_id")]
    for field in present:
        dataset = getattr(run, field)
        if dataset.study_id != run.study_id:
            wrong(field, _("This dataset belongs to another study. Choose one of this study."))
        elif dataset.removed_at is not None:
            wrong(field, _("This dataset was removed. Choose another one."))
        elif dataset.drawn_by.filter(withdrawn_at__isnull=False).exists():
            wrong(field, _("These synthetic rows were withdrawn. Choose another dataset."))
        elif dataset.kind != kinds[field]:
            kind_words = {"kind": dataset.get_kind_display(), "wanted": kinds[field].label}
            wrong(field, _("This dataset is %(kind)s; choose a %(wanted)s one.") % kind_words)
        elif run.private_dataset_id and not records_alike(dataset.schema, run.private_dataset.schema):
            wrong(
                field,
                _("Its columns or classes differ from those of the private dataset. Import it with that schema."),
            )


def _check_labelled(run: Run, wrong: Callable[[str, object], None]) -> None:
    """Note what stands in the way of a student that also learns from labelled public rows."""
    field, labelled = "labelled_dataset", run.labelled_dataset
    assert labelled is not None, "it was chosen"
    if run.alliance_id:
        wrong(field, _("Over sites a student learns from releases alone. Leave this empty."))
    elif not run.public_dataset_id or (run.method in METHODS and method_of(run).outcome != Outcome.MODEL):
        wrong(field, _("Without public points there is no student to learn from labelled rows. Leave this empty."))
    elif labelled.pk == run.public_dataset_id:
        wrong(field, _("These are the points that the run asks about. Choose other labelled rows."))
    elif labelled.kind == Dataset.Kind.PUBLIC and not labelled.seen_classes:
        wrong(field, _("This dataset has no labels of classes. Import it with its labels, or choose another one."))


def run_approve(*, run: Run, acting_user: AbstractBaseUser, share: float = 1.0, revision: int | None = None) -> Run:
    """Let a draft start, on the consents of this moment, with a ``share`` of every holder's cap until it ends.

    Approving what has started changes nothing. With a ``revision``, that of the proposal which was looked at, a draft
    that was changed since is refused.

    Raises:
        NoSlotError: too many plans are computed; nothing was approved.
        PlanError: it could not be carried out.
        ValidationError: neither could it, less than the share is free, it was changed since, or ``acting_user``
            proposed it: another person approves.
    """
    share_check(share)
    if run.status == Run.Status.DRAFT:
        # A forecast can take seconds, which nobody is to wait for under the study's lock: there it is known already.
        with slot(acting_user.pk), suppress(PlanError, ValidationError):
            method_of(run).plan(run, share)
    return _run_approve(run, acting_user, share, revision)


@transaction.atomic
def _run_approve(run: Run, acting_user: AbstractBaseUser, share: float, revision: int | None) -> Run:
    study_open_check(study_lock(run.study_id))
    run = Run.objects.select_for_update(of=("self",)).select_related("study").get(pk=run.pk)
    if run.status != Run.Status.DRAFT:
        if run.status == Run.Status.CANCELLED:
            raise ValidationError(_("This run was cancelled. Propose it anew."), code=STATE)
        if run.status == Run.Status.FAILED:
            raise ValidationError(_("This run has failed. Propose it anew."), code=STATE)
        if run.status == Run.Status.WITHDRAWN:
            raise ValidationError(_("Its proposer has withdrawn this run. It cannot be approved."), code=STATE)
        return run
    if revision is not None and revision != run.revision:
        raise ValidationError(_("The proposal was changed since you looked. Look at the plan again."), code=STATE)
    second_person_check(
        run.study,
        run.created_by_id,
        acting_user,
        own=_("You proposed this run yourself. Another operator has to approve it."),
    )
    run.share = share
    run.plan = beside_majority(run_check(run).plan(run, share), run).to_json()
    run.snapshot_at = timezone.now()
    if not run.rehearsal:
        share_grant(study=run.study, subject=run.pk, purpose=gettext_noop("run"), share=share, acting_user=acting_user)
    run.status = Run.Status.APPROVED
    run.approved_by_id = acting_user.pk
    run.approved_at = run.heartbeat = timezone.now()
    if run.alliance is not None:
        joint_approve(run)
    with changes_recorded([run], acting_user=acting_user):
        run.save()
    send("run_advance", run.pk)
    run_approved_tell(run)
    return run


@transaction.atomic
def run_cancel(
    *, run: Run, acting_user: AbstractBaseUser | None, message: str = gettext_noop("An operator has cancelled the run.")
) -> Run:
    """End a run that has not ended. What was released stays released and charged; what was reserved is free again.

    ``acting_user`` is None where the last day of the study's records is over. ``message`` says why it ended.
    """
    study_lock(run.study_id)
    run = Run.objects.select_for_update().get(pk=run.pk)
    if run.has_ended:
        return run
    run.status = Run.Status.CANCELLED
    run.message = message
    run.ended_at = timezone.now()
    run.save()
    run_ended_tell(run)
    share_settle(study=run.study, subject=run.pk, used=used_share(run))
    runs_send_on(run)
    with logging_run(run.pk):
        logger.info("The run was cancelled by user %s.", acting_user.pk if acting_user else "nobody: its study ended")
    transaction.on_commit(lambda: run_forget(run))
    return run
