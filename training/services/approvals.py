"""Approval of a run, which is decided in a request and carried out by a worker.

Computing a plan takes up to half a minute, so a request only records the decision (person, time, share, revision) and a
digest of the facts on which the plan is based. A worker then computes the plan and checks, under the study's lock,
whether these facts have changed. If not, the run is approved with its share. Otherwise it becomes a draft again, with
the reason.

Consents, withdrawals and erasures in the meantime do not affect the approval, because plans are based on public numbers
(condition 1 in docs/gaussian-accounts.md) and a run uses the consents in force when it asks.
"""

import json
import logging
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from accounting.shares import NOT_FREE, ROUNDING, decimal_sum, share_check, share_free, share_grant
from common.logging import logging_run
from common.sentences import Sentence, gettext_noop, message_of
from consent.permissions import second_person_check
from consent.selectors import policy_in_force
from consent.services import study_lock, study_open_check
from consent.services.changes import changes_recorded
from learning.mechanisms.protocol import PlanError
from training.alliances.approvals import joint_approve, joint_check
from training.engine.budgets import head_count_sigma, planned_promises
from training.engine.commits import waiting_runs_wake
from training.engine.scheduling import send
from training.errors import STATE
from training.methods.planning import with_majority
from training.models import Run
from training.notices import notify_approval_failed, notify_run_approved
from training.services.runs import run_check

logger = logging.getLogger(__name__)

_CHANGED = gettext_noop(
    "The ε policy or the head counts changed while the plan was being calculated. Review the new plan and approve it "
    "again."
)
_NO_LONGER = gettext_noop(
    "The operator who approved this run can no longer approve runs in this study. Another operator has to approve it."
)


def run_approve(*, run: Run, acting_user: AbstractBaseUser, share: float = 1.0, revision: int | None = None) -> Run:
    """Record that ``acting_user`` approves a draft with a ``share`` of every holder's cap; a worker then plans the run.

    Approving an approved run has no effect. If ``revision`` is given, a draft that has changed since that revision is
    refused.

    Raises:
        PlanError: the run cannot be carried out.
        ValidationError: the run cannot be carried out, less than the share is free, the draft was changed, or
            ``acting_user`` proposed it and therefore must not approve it.
    """
    share_check(share)
    with transaction.atomic():
        study_open_check(study_lock(run.study_id))
        run = _locked(run.pk)
        if run.status != Run.Status.DRAFT:
            _ended_check(run)
            return run
        if revision is not None and revision != run.revision:
            raise ValidationError(
                _("The proposal has changed since you opened it. Look at the plan again."), code=STATE
            )
        _second_person_check(run, acting_user)
        run_check(run)
        if run.alliance is not None:
            joint_check(run)
        if not run.rehearsal and share > (free := _share_free(run)) + ROUNDING:
            raise ValidationError({"share": _(NOT_FREE) % {"free": free}})
        run.plan_basis = _basis_of(run)
        run.share, run.status, run.message = share, Run.Status.PLANNING, ""
        run.approved_by_id = acting_user.pk
        run.approved_at = run.heartbeat = timezone.now()
        with changes_recorded([run], acting_user=acting_user):
            run.save()
        send("run_advance", run.pk)
    return run


def run_plan(run: Run) -> bool:
    """Compute the plan of an approved run and carry out its approval; return whether the run continues.

    This can be repeated after a crash, because nothing changes before the final transaction.
    """
    try:
        with translation.override("en"):  # store messages in English, because pages translate them
            return _plan(run, run.share)
    except (PlanError, ValidationError) as error:
        reason = " ".join(error.messages) if isinstance(error, ValidationError) else message_of(error)
        approval_fail(run.pk, reason, approved_at=run.approved_at)
        return False


def _plan(run: Run, share: float) -> bool:
    plan = with_majority(run_check(run).plan(run, share), run).to_json()
    with transaction.atomic():
        study_open_check(study_lock(run.study_id))
        held = _locked(run.pk)
        if (held.status, held.approved_at) != (Run.Status.PLANNING, run.approved_at):
            return held.status == Run.Status.PLANNING  # if approved again
        approver = held.approved_by
        if approver is None or not approver.has_perm("training.approve_run", held.study):
            raise PlanError(_NO_LONGER)
        _second_person_check(held, approver)
        run_check(held)
        if _basis_of(held) != held.plan_basis:
            raise PlanError(_CHANGED)
        if not held.rehearsal and share > (free := share_free(held.study)) + ROUNDING:
            raise PlanError(Sentence(NOT_FREE, free=free))
        _carry_out(held, plan, approver)
    return True


def _carry_out(run: Run, plan: dict[str, Any], approver: AbstractBaseUser) -> None:
    """Approve a locked run with its plan, in the caller's transaction."""
    run.plan, run.plan_basis = plan, ""
    run.snapshot_at = timezone.now()
    if not run.rehearsal:
        share_grant(study=run.study, subject=run.pk, purpose=gettext_noop("run"), share=run.share, acting_user=approver)
    run.status, run.message = Run.Status.APPROVED, ""
    if run.alliance is not None:
        joint_approve(run)
    with changes_recorded([run], acting_user=approver):
        run.save(update_fields=["plan", "plan_basis", "snapshot_at", "status", "message"])
    notify_run_approved(run)


@transaction.atomic
def approval_undo(*, run: Run, acting_user: AbstractBaseUser) -> Run:
    """Turn an approved run back into a draft before its plan is computed; a draft stays unchanged.

    Raises:
        ValidationError: the approval has been carried out, or the run has ended.
    """
    study_lock(run.study_id)
    run = _locked(run.pk)
    if run.status == Run.Status.DRAFT:
        return run
    _ended_check(run)
    if run.status != Run.Status.PLANNING:
        raise ValidationError(_("This run is already approved and planned. An operator can cancel it."), code=STATE)
    _draft_again(run, "", acting_user)
    with logging_run(run.pk):
        logger.info("User %s withdrew the approval.", acting_user.pk)
    return run


def approval_fail(run_id: str | UUID, reason: str, *, approved_at: datetime | None = None) -> bool:
    """Turn a run that cannot be approved back into a draft, and notify its proposer and approver of the reason.

    Returns:
        Whether the run became a draft: it must have been waiting for its plan and, if ``approved_at`` is given, the
        decision must date from that time.
    """
    with transaction.atomic():
        study_lock(Run.objects.values_list("study_id", flat=True).get(pk=run_id))
        run = _locked(run_id)
        if run.status != Run.Status.PLANNING or approved_at not in (None, run.approved_at):
            return False
        people = [person for person in (run.created_by_id, run.approved_by_id) if person is not None]
        _draft_again(run, reason, None)
        notify_approval_failed(run, people)
    logger.warning("The approval failed: %s", reason)
    return True


def _draft_again(run: Run, reason: str, acting_user: AbstractBaseUser | None) -> None:
    run.status, run.message, run.plan_basis = Run.Status.DRAFT, reason, ""
    run.share, run.approved_by, run.approved_at, run.heartbeat = 1.0, None, None, None
    with changes_recorded([run], acting_user=acting_user):
        run.save()
    waiting_runs_wake(run)


def _locked(pk: str | UUID) -> Run:
    return Run.objects.select_for_update(of=("self",)).select_related("study").get(pk=pk)


def _ended_check(run: Run) -> None:
    """Raise ValidationError for a decision about a run that ended without being carried out."""
    if run.status == Run.Status.CANCELLED:
        raise ValidationError(_("This run was cancelled. Propose it again."), code=STATE)
    if run.status == Run.Status.FAILED:
        raise ValidationError(_("This run has failed. Propose it again."), code=STATE)
    if run.status == Run.Status.WITHDRAWN:
        raise ValidationError(
            _("The person who proposed this run has withdrawn it, so it cannot be approved."), code=STATE
        )


def _second_person_check(run: Run, acting_user: AbstractBaseUser) -> None:
    second_person_check(
        run.study,
        run.created_by_id,
        acting_user,
        own=_("You proposed this run yourself, so another operator must approve it."),
    )


def _share_free(run: Run) -> float:
    """Return the share of every cap that is free for a run, not counting the shares of runs that are being approved."""
    others = Run.objects.filter(study=run.study, status=Run.Status.PLANNING, rehearsal=False).exclude(pk=run.pk)
    held = others.values_list("share", flat=True)
    return max(0.0, decimal_sum(share_free(run.study), *(-share for share in held)))


def _basis_of(run: Run) -> str:
    """Return a digest of the public facts that determine a plan together with the proposal. Raises PlanError."""
    policy = None if run.rehearsal else policy_in_force(run.study)
    promises = [asdict(promise) for promise in planned_promises(run)]
    facts = [run.revision, policy and policy.pk, promises, head_count_sigma(run)]
    return sha256(json.dumps(facts).encode()).hexdigest()
